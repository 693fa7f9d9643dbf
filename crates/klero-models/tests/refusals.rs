//! Files and calls that must be refused, by name and without a panic.

mod support;

use klero_models::{Model, ModelError};
use std::fs;
use std::io::Read;
use support::tiny::{CONTEXT, DIM, TempFile, Tiny, Value};
use support::{Random, model};

fn load(name: &str, bytes: &[u8]) -> Result<Model, ModelError> {
    Model::load(&TempFile::new(name, bytes).0)
}

fn error(name: &str, bytes: &[u8]) -> ModelError {
    load(name, bytes).err().unwrap_or_else(|| panic!("{name} was not refused"))
}

#[test]
fn the_tiny_model_is_sound() {
    let tiny = load("sound", &Tiny::llama().bytes()).unwrap();
    let tokens = tiny.tokenizer().encode("hello", false).unwrap();
    let hidden = tiny.forward(&mut [(&mut tiny.new_sequence(), &tokens)]).unwrap();
    assert_eq!((tokens, hidden.len()), ("hello".bytes().map(u32::from).collect(), 5 * DIM));
    assert!(hidden.iter().all(|h| h.is_finite()));
}

#[test]
fn an_unknown_architecture_is_named() {
    let mut tiny = Tiny::llama();
    tiny.set("general.architecture", Value::Text("mamba".into()));
    let error = error("architecture", &tiny.bytes());
    assert!(matches!(&error, ModelError::Unsupported { found, .. } if found == "mamba"));
    assert_eq!(error.to_string(), "the architecture `mamba` is not supported; supported: llama, qwen2, qwen3, gemma3");
}

#[test]
fn unknown_tokenizers_and_scalings_are_named() {
    for (key, name) in
        [("tokenizer.ggml.model", "bert"), ("tokenizer.ggml.pre", "chatglm"), ("llama.rope.scaling.type", "yarn")]
    {
        let mut tiny = Tiny::llama();
        tiny.set(key, Value::Text(name.into()));
        assert!(matches!(error(name, &tiny.bytes()), ModelError::Unsupported { found, .. } if found == name));
    }
}

#[test]
fn missing_surplus_and_misshapen_tensors_are_named() {
    let mut tiny = Tiny::llama();
    tiny.tensors.retain(|tensor| tensor.name != "blk.0.ffn_up.weight");
    assert!(
        matches!(error("missing", &tiny.bytes()), ModelError::MissingTensor(name) if name == "blk.0.ffn_up.weight")
    );

    let mut tiny = Tiny::llama();
    tiny.f32("blk.0.attn_q.bias", &[DIM]);
    assert!(error("surplus", &tiny.bytes()).to_string().contains("`blk.0.attn_q.bias`"));

    let mut tiny = Tiny::llama();
    tiny.tensor("blk.0.ffn_down.weight").shape = vec![64, 32];
    assert!(
        matches!(error("shape", &tiny.bytes()), ModelError::TensorShape { name, .. } if name == "blk.0.ffn_down.weight")
    );
}

#[test]
fn dimensions_that_cannot_be_multiplied_are_refused() {
    let large = 1 << 33;
    for shape in
        [vec![large, large], vec![u64::MAX, 2], vec![0, large, large], vec![large, 0, large], vec![large, large, 0]]
    {
        let mut tiny = Tiny::llama();
        tiny.tensor("blk.0.ffn_down.weight").shape = shape.clone();
        let text = error("dimensions", &tiny.bytes()).to_string();
        assert!(text.contains("blk.0.ffn_down.weight") && text.contains("an impossible shape"), "{shape:?}: {text}");
    }
}

#[test]
fn impossible_numbers_are_refused_by_key() {
    for (key, value) in [
        ("llama.attention.head_count", Value::U32(0)),
        ("llama.attention.head_count", Value::Text("two".into())),
        ("llama.attention.head_count_kv", Value::U32(3)),
        ("llama.rope.dimension_count", Value::U32(7)),
        ("llama.attention.value_length", Value::U32(8)),
        ("llama.block_count", Value::U32(u32::MAX)),
        ("llama.rope.freq_base", Value::F32(f32::NAN)),
        ("llama.attention.layer_norm_rms_epsilon", Value::F32(-1.0)),
    ] {
        let mut tiny = Tiny::llama();
        tiny.set(key, value);
        assert!(matches!(error("number", &tiny.bytes()), ModelError::Key { key: named, .. } if named == key), "{key}");
    }
    let mut tiny = Tiny::llama();
    tiny.metadata.retain(|(key, _)| key != "llama.context_length");
    assert!(matches!(error("absent", &tiny.bytes()), ModelError::MissingKey(key) if key == "llama.context_length"));
}

#[test]
fn contradicting_vocabularies_are_refused() {
    let texts = |texts: &[&str]| Value::Texts(texts.iter().map(|text| (*text).to_owned()).collect());
    for (key, value) in [
        ("tokenizer.ggml.merges", texts(&["a b"])), // "ab" is no token
        ("tokenizer.ggml.merges", texts(&["ab"])),
        ("tokenizer.ggml.merges", texts(&["<|im_end|> <|im_end|>"])),
        ("tokenizer.ggml.tokens", texts(&["a"])),
        ("tokenizer.ggml.token_type", texts(&["a"])),
    ] {
        let mut tiny = Tiny::llama();
        tiny.set(key, value);
        assert!(matches!(error("vocabulary", &tiny.bytes()), ModelError::Tokenizer(_)), "{key}");
    }
}

#[test]
fn counts_that_no_file_could_hold_are_refused_before_memory_is_asked_for() {
    let array = |kind: u32, count: u64| [&kind.to_le_bytes()[..], &count.to_le_bytes()].concat();
    for value in [
        Value::Raw(9, array(0, u64::MAX)),
        Value::Raw(9, array(8, 1 << 40)),
        Value::Raw(9, array(9, 1)),
        Value::Raw(8, u64::MAX.to_le_bytes().to_vec()),
        Value::Raw(77, vec![]),
    ] {
        let mut tiny = Tiny::llama();
        tiny.metadata.insert(0, ("x".to_owned(), value));
        assert!(matches!(error("count", &tiny.bytes()), ModelError::Format(_)));
    }
    let mut tiny = Tiny::llama();
    tiny.set("general.alignment", Value::U32(0));
    assert!(matches!(error("alignment", &tiny.bytes()), ModelError::Format(_)));
    for shape in [vec![u64::MAX, u64::MAX], vec![1; 5], vec![1 << 39, 4]] {
        let mut tiny = Tiny::llama();
        tiny.tensor("output_norm.weight").shape = shape;
        assert!(matches!(error("dimensions", &tiny.bytes()), ModelError::Format(_)));
    }
    for at in [8, 16] {
        let mut bytes = Tiny::llama().bytes();
        bytes[at..at + 8].fill(0xFF);
        assert!(matches!(error("entries", &bytes), ModelError::Format(_)));
    }
}

#[test]
fn no_damage_makes_loading_panic() {
    let sound = Tiny::llama().bytes();
    let mut random = Random(3);
    for _ in 0..3000 {
        let mut bytes = sound.clone();
        for _ in 0..=random.below(3) {
            let at = random.below(8000);
            bytes[at] = [0, 1, 0x7F, 0x80, 0xFF, bytes[at] ^ 1 << random.below(8)][random.below(6)];
        }
        // Most damage is in tensor data or token texts and passes; what counts is that this returns.
        if let Ok(model) = load("damaged", &bytes) {
            let _ = model.forward(&mut [(&mut model.new_sequence(), &[1, 2])]);
        }
    }
}

#[test]
fn a_truncated_file_is_refused_wherever_it_ends() {
    let tiny = Tiny::llama().bytes();
    for length in (0..tiny.len()).step_by(97).chain([tiny.len() - 1]) {
        assert!(matches!(error("cut", &tiny[..length]), ModelError::Format(_)), "{length} bytes");
    }
    // The default model, its header whole or not; what follows is a hole in the file, so nothing large is written.
    let path = klero_models::default_model().unwrap();
    let size = fs::metadata(&path).unwrap().len();
    let mut header = Vec::new();
    fs::File::open(&path).unwrap().take(2_000_000).read_to_end(&mut header).unwrap();
    for length in [4, 1000, 1_000_000, 1_785_000, 2_000_000, size / 2, size - 1] {
        let file = TempFile::new("model", &header[..header.len().min(length as usize)]);
        fs::OpenOptions::new().write(true).open(&file.0).unwrap().set_len(length).unwrap();
        assert!(matches!(Model::load(&file.0), Err(ModelError::Format(_))), "{length} bytes");
    }
    assert!(matches!(Model::load("/no/such/file".as_ref()), Err(ModelError::Io { .. })));
}

#[test]
fn calls_that_do_not_fit_change_nothing() {
    let tiny = load("calls", &Tiny::llama().bytes()).unwrap();
    let (mut a, mut b) = (tiny.new_sequence(), tiny.new_sequence());
    let limit = CONTEXT as usize;
    let vocabulary = tiny.config().vocabulary;

    let found = tiny.forward(&mut [(&mut a, &[1, 2]), (&mut b, &[3, vocabulary as u32])]);
    assert!(matches!(found, Err(ModelError::Token { token, .. }) if token as usize == vocabulary));
    let found = tiny.forward(&mut [(&mut a, &[1]), (&mut b, &vec![1; limit + 1])]);
    assert!(matches!(found, Err(ModelError::ContextFull { length, limit: l }) if length == l + 1 && l == limit));
    let found = tiny.forward(&mut [(&mut a, &[1]), (&mut model().new_sequence(), &[1])]);
    assert!(matches!(found, Err(ModelError::ForeignSequence)));
    assert!(a.is_empty() && b.is_empty());

    tiny.forward(&mut [(&mut a, &vec![1; limit])]).unwrap();
    assert!(matches!(tiny.forward(&mut [(&mut a, &[1])]), Err(ModelError::ContextFull { .. })));
    assert!(tiny.forward(&mut [(&mut a, &[])]).unwrap().is_empty());
    assert!(tiny.forward(&mut []).unwrap().is_empty());
}
