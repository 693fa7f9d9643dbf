//! Folders of safetensors files that must be refused, by name and without a panic.

mod support;

use klero_models::{Model, ModelError};
use std::fs;
use std::path::PathBuf;
use support::Random;
use support::written::Written;

/// A copy of a tiny model, to be damaged.
struct Folder {
    _written: Written,
    path: PathBuf,
}

impl Folder {
    fn new(test: &str, model: &str) -> Self {
        let written = Written::new(test);
        Self { path: written.path(model), _written: written }
    }

    fn read(&self, file: &str) -> Vec<u8> {
        fs::read(self.path.join(file)).unwrap()
    }

    fn write(&self, file: &str, bytes: impl AsRef<[u8]>) {
        fs::write(self.path.join(file), bytes).unwrap();
    }

    /// Loads the model with one text in a file replaced by another.
    fn replaced(&self, file: &str, from: &str, to: &str) -> Result<Model, ModelError> {
        let sound = self.read(file);
        let text = String::from_utf8(sound.clone()).unwrap();
        assert!(text.contains(from), "{from} is not in {file}");
        self.write(file, text.replace(from, to));
        let result = Model::load(&self.path);
        self.write(file, sound);
        result
    }

    fn error(&self) -> ModelError {
        Model::load(&self.path).err().expect("it was not refused")
    }

    /// Loads the model with another header and other data in its safetensors file.
    fn safetensors(&self, header: &str, data: &[u8]) -> Result<Model, ModelError> {
        self.write("model.safetensors", [&(header.len() as u64).to_le_bytes(), header.as_bytes(), data].concat());
        Model::load(&self.path)
    }
}

fn header(bytes: &[u8]) -> (String, &[u8]) {
    let length = u64::from_le_bytes(*bytes.first_chunk().unwrap()) as usize;
    (String::from_utf8(bytes[8..8 + length].to_vec()).unwrap(), &bytes[8 + length..])
}

#[test]
fn what_is_not_supported_is_named() {
    let folder = Folder::new("unsupported", "llama");
    for (from, to, named) in [
        (r#""model_type": "llama""#, r#""model_type": "mamba""#, "`mamba`"),
        (r#""model_type": "llama""#, r#""kind": "llama""#, "the architecture"),
        (r#""rope_type": "llama3""#, r#""rope_type": "yarn""#, "`yarn`"),
        (r#""hidden_act": "silu""#, r#""hidden_act": "relu""#, "`hidden_act` is relu"),
        (r#""attention_bias": false"#, r#""attention_bias": true"#, "`attention_bias`"),
        (r#""attention_bias": false"#, r#""mlp_bias": true"#, "`mlp_bias`"),
        (r#""attention_bias": false"#, r#""final_logit_softcapping": 30.0"#, "`final_logit_softcapping`"),
        (r#""attention_bias": false"#, r#""partial_rotary_factor": 0.5"#, "`partial_rotary_factor`"),
        (r#""hidden_size": 32"#, r#""hidden_size": 0"#, "`hidden_size` is 0"),
        (r#""hidden_size": 32"#, r#""hidden_size": "large""#, "`hidden_size` is \"large\""),
        (r#""hidden_size": 32, "#, "", "no metadata `hidden_size`"),
        (r#""num_key_value_heads": 2"#, r#""num_key_value_heads": 3"#, "`num_key_value_heads` is 3"),
        (r#""num_attention_heads": 4"#, r#""head_dim": 7, "num_attention_heads": 4"#, "`head_dim` is 7"),
        (r#""rope_theta": 500.0"#, r#""rope_theta": -1.0"#, "`rope_theta` is -1"),
        (r#""factor": 8.0, "#, "", "no metadata `factor`"),
        (r#""num_hidden_layers": 2"#, r#""num_hidden_layers": 1"#, "`model.layers.1."),
        (r#""num_hidden_layers": 2"#, r#""num_hidden_layers": 3"#, "no tensor `model.layers.2.input_layernorm.weight`"),
        (r#""intermediate_size": 48"#, r#""intermediate_size": 64"#, "`model.layers."),
        (r#""model_type": "llama""#, r#""model_type": "qwen2""#, "no tensor `model.layers.0.self_attn.q_proj.bias`"),
        (r#""vocab_size""#, r#""vocab_size": 64, "was""#, "the embedding has 64 rows"),
    ] {
        let message = folder.replaced("config.json", from, to).err().unwrap_or_else(|| panic!("{to}")).to_string();
        assert!(message.contains(named), "{to}: {message}");
    }
    let folder = Folder::new("layer-types", "gemma3");
    for (from, to, named) in [
        ("sliding_attention", "chunked_attention", "`chunked_attention`"),
        (r#", "full_attention"]"#, "]", "`layer_types` is 3"),
        (r#""sliding_window": 5"#, r#""sliding_window": 0"#, "`sliding_window` is 0"),
    ] {
        let message = folder.replaced("config.json", from, to).err().unwrap_or_else(|| panic!("{to}")).to_string();
        assert!(message.contains(named), "{to}: {message}");
    }
}

#[test]
fn missing_and_damaged_files_are_named() {
    let folder = Folder::new("missing", "llama");
    for file in ["config.json", "tokenizer.json", "model.safetensors"] {
        let sound = folder.read(file);
        fs::remove_file(folder.path.join(file)).unwrap();
        assert!(matches!(folder.error(), ModelError::Io { path, .. } if path.ends_with(file)), "{file}");
        folder.write(file, &sound[..sound.len() / 2]);
        let message = folder.error().to_string();
        assert!(message.contains(file), "{message}");
        folder.write(file, sound);
    }
    for (file, content) in [
        ("tokenizer_config.json", "[]"),
        ("generation_config.json", "{"),
        ("config.json", &"[".repeat(100_000)),
        ("tokenizer.json", "{}"),
        ("tokenizer.json", r#"{"model": {"type": "BPE", "vocab": {"a": 4294967295}, "merges": []}}"#),
    ] {
        let sound = fs::read(folder.path.join(file)).ok();
        folder.write(file, content);
        let message = folder.error().to_string();
        assert!(message.contains(file) || message.contains("tokenizer"), "{message}");
        match sound {
            Some(sound) => folder.write(file, sound),
            None => fs::remove_file(folder.path.join(file)).unwrap(),
        }
    }
    assert!(Model::load(&folder.path).is_ok());
}

#[test]
fn an_index_may_only_name_files_beside_it() {
    let folder = Folder::new("index", "qwen2");
    let file = "model-00002-of-00003.safetensors";
    let index = "model.safetensors.index.json";
    for hostile in ["../../etc/passwd", "/etc/passwd", "a/../b", "", ".", ".."] {
        let message = folder.replaced(index, file, hostile).err().unwrap().to_string();
        assert!(message.contains("is not the name of a file beside it"), "{hostile:?}: {message}");
    }
    assert!(
        matches!(folder.replaced(index, file, "absent"), Err(ModelError::Io { path, .. }) if path.ends_with("absent"))
    );
    for (from, to) in [("weight_map", "map"), (&*format!("\"{file}\""), "7")] {
        assert!(matches!(folder.replaced(index, from, to), Err(ModelError::Format(_))));
    }
    // The same tensors in two files.
    fs::copy(folder.path.join(file), folder.path.join("model-00003-of-00003.safetensors")).unwrap();
    assert!(folder.error().to_string().contains("is there twice"));
}

#[test]
fn a_header_must_describe_the_file() {
    let folder = Folder::new("header", "llama");
    let sound = folder.read("model.safetensors");
    let (text, data) = header(&sound);
    assert!(folder.safetensors(&text, data).is_ok());
    for (from, to) in [
        (r#""dtype": "BF16""#, r#""dtype": "F64""#),
        (r#""dtype": "BF16""#, r#""dtype": "F33""#),
        (r#""shape": [32]"#, r#""shape": [33]"#),
        (r#""shape": [32]"#, r#""shape": [4294967296, 4294967296]"#),
        (r#""data_offsets": [0, "#, r#""data_offsets": [2, "#),
        (r#""data_offsets": [0, "#, r#""data_offsets": [18446744073709551615, "#),
    ] {
        assert!(text.contains(from));
        let error = folder.safetensors(&text.replacen(from, to, 1), data).err();
        assert!(matches!(error, Some(ModelError::Format(_))), "{to}: {error:?}");
    }
    // Sound, but not numbers that a model is made of.
    let error = folder.safetensors(&text.replace("BF16", "I16"), data).err();
    assert!(matches!(&error, Some(ModelError::Unsupported { found, .. }) if found == "I16"), "{error:?}");
    assert!(matches!(folder.safetensors(&text, &data[2..]), Err(ModelError::Format(_))));
    assert!(matches!(folder.safetensors(&text, &[data, &[0, 0]].concat()), Err(ModelError::Format(_))));
    for length in [0, 7, 1 << 40, u64::MAX, u64::MAX - 8] {
        folder.write("model.safetensors", [&length.to_le_bytes(), &sound[8..]].concat());
        assert!(matches!(folder.error(), ModelError::Format(_)), "{length}");
    }
    for length in (0..sound.len()).step_by(997) {
        folder.write("model.safetensors", &sound[..length]);
        assert!(matches!(folder.error(), ModelError::Format(_)), "cut to {length} bytes");
    }
}

/// A header larger than any model's is refused before memory is asked for; the file is a hole, so nothing large is written.
#[test]
fn a_huge_header_is_not_read() {
    let folder = Folder::new("huge", "llama");
    folder.write("model.safetensors", (1u64 << 33).to_le_bytes());
    let file = fs::OpenOptions::new().write(true).open(folder.path.join("model.safetensors")).unwrap();
    file.set_len(1 << 34).unwrap();
    assert!(folder.error().to_string().contains("must be at most"));
}

#[test]
fn no_damage_makes_loading_panic() {
    let folder = Folder::new("damage", "qwen3");
    let mut random = Random(5);
    for file in ["config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"] {
        let sound = folder.read(file);
        for _ in 0..150 {
            let mut bytes = sound.clone();
            for _ in 0..=random.below(3) {
                let at = random.below(bytes.len().min(2500));
                bytes[at] = [b'"', b'9', b'-', b'{', b']', bytes[at] ^ 1 << random.below(8)][random.below(6)];
            }
            folder.write(file, bytes);
            // What counts is that this returns.
            if let Ok(model) = Model::load(&folder.path) {
                let _ = model.tokenizer().encode("the lot is cast", false);
                let _ = model.forward(&mut [(&mut model.new_sequence(), &[1, 2])]);
            }
        }
        folder.write(file, sound);
    }
}
