//! Models of every architecture, from safetensors files, against transformers; and the same models as GGUF files.
//!
//! The models are tiny and random. What transformers makes of them is recorded in `transformers/expected.json`
//! (`./test transformers` checks the record).

mod support;

use klero_models::{Architecture, Model};
use safetensors::{Dtype, SafeTensors};
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::fs;
use support::tiny::{TempFile, Tensor, Tiny, Value};
use support::written::{NAMES, Written};

fn load(written: &Written, name: &str) -> Model {
    Model::load(&written.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn expected() -> BTreeMap<String, Vec<Json>> {
    serde_json::from_str(include_str!("transformers/expected.json")).unwrap()
}

fn ids(json: &Json) -> Vec<u32> {
    json.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
}

fn numbers(json: &Json) -> Vec<f64> {
    json.as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect()
}

fn hidden(model: &Model, tokens: &[u32]) -> Vec<f32> {
    model.forward(&mut [(&mut model.new_sequence(), tokens)]).unwrap()
}

fn assert_near(found: &[f32], expected: &[f64], what: &str) {
    assert!(found.len() >= expected.len());
    for (found, expected) in found.iter().zip(expected) {
        assert!((f64::from(*found) - expected).abs() < 1e-4, "{what}: {found}, not {expected}");
    }
}

#[test]
fn hidden_states_logits_and_ids_are_those_of_transformers() {
    let written = Written::new("transformers");
    let expected = expected();
    assert!(expected.keys().map(String::as_str).eq(["gemma3", "gemma3-new", "llama", "qwen2", "qwen3"]));
    for (name, texts) in expected {
        let model = load(&written, &name);
        for example in texts {
            let text = example["text"].as_str().unwrap();
            let what = format!("{name}, {text:?}");
            let tokenizer = model.tokenizer();
            let begin = tokenizer.bos().filter(|_| tokenizer.adds_bos());
            let tokens: Vec<u32> = begin.into_iter().chain(tokenizer.encode(text, true).unwrap()).collect();
            assert_eq!(tokens, ids(&example["tokens"]), "{what}");
            assert_eq!(
                tokenizer.decode(&tokens[begin.iter().len()..], true),
                text.replace("cafe\u{301}", "café"),
                "{what}"
            );
            let (hidden, dim) = (hidden(&model, &tokens), model.config().dim);
            let last: Vec<f64> = example["hidden"].as_array().unwrap().iter().flat_map(numbers).collect();
            assert_near(&hidden[hidden.len() - last.len()..], &last, &what);
            let mut logits = vec![0.0; model.config().vocabulary];
            model.head().matmul(&hidden[hidden.len() - dim..], &mut logits).unwrap();
            assert_near(&logits, &numbers(&example["logits"]), &what);
        }
    }
}

#[test]
fn special_tokens_come_from_the_files_beside_the_tokenizer() {
    let written = Written::new("specials");
    let model = load(&written, "qwen2");
    let end = model.tokenizer().encode("<|end|>", true).unwrap();
    assert_eq!((model.tokenizer().ends(), model.tokenizer().adds_bos()), (&end[..], false));
    assert!(model.tokenizer().encode("<|end|>", false).unwrap().len() > 1, "not asked for, it is text");
    assert_eq!(model.tokenizer().chat_template(), Some("{{ messages }}"));
    assert!(model.tokenizer().vocabulary() < model.config().vocabulary, "the last ids are padding");

    let model = load(&written, "gemma3");
    assert_eq!((model.tokenizer().bos(), model.tokenizer().adds_bos()), (Some(2), true));
    assert_eq!(model.tokenizer().ends(), [1]);
    fs::write(written.path("gemma3").join("generation_config.json"), r#"{"eos_token_id": [1, 106, 4000000000]}"#)
        .unwrap();
    fs::write(written.path("gemma3").join("chat_template.jinja"), "a file of its own").unwrap();
    let model = load(&written, "gemma3");
    assert_eq!(model.tokenizer().ends(), [1, 106]);
    assert_eq!(model.tokenizer().chat_template(), Some("a file of its own"));
}

/// A hidden state has the same bits however its text was cut, with windows shorter than the text, and beside others.
#[test]
fn bits_do_not_depend_on_chunks_or_batch_mates() {
    let written = Written::new("bits");
    for name in NAMES {
        let model = load(&written, name);
        let tokens: Vec<u32> = (0..23).map(|i| i * 37 % 251 + 3).collect();
        let whole = hidden(&model, &tokens);
        let other: Vec<u32> = tokens.iter().rev().copied().collect();
        for cut in [1, 4, 5, 6, 17] {
            let (mut mine, mut mate) = (model.new_sequence(), model.new_sequence());
            let mut pieces = model.forward(&mut [(&mut mine, &tokens[..cut]), (&mut mate, &other)]).unwrap();
            pieces.truncate(cut * model.config().dim);
            for token in &tokens[cut..] {
                pieces.extend(model.forward(&mut [(&mut mine, &[*token])]).unwrap());
            }
            assert!(whole.iter().map(|h| h.to_bits()).eq(pieces.iter().map(|h| h.to_bits())), "{name}, cut at {cut}");
        }
    }
}

/// The parts of a layer: in GGUF files, in safetensors files, and in those with norms after each half layer.
const PARTS: [(&str, &str); 15] = [
    ("attn_norm.weight", "input_layernorm.weight"),
    ("attn_q.weight", "self_attn.q_proj.weight"),
    ("attn_k.weight", "self_attn.k_proj.weight"),
    ("attn_v.weight", "self_attn.v_proj.weight"),
    ("attn_q.bias", "self_attn.q_proj.bias"),
    ("attn_k.bias", "self_attn.k_proj.bias"),
    ("attn_v.bias", "self_attn.v_proj.bias"),
    ("attn_q_norm.weight", "self_attn.q_norm.weight"),
    ("attn_k_norm.weight", "self_attn.k_norm.weight"),
    ("attn_output.weight", "self_attn.o_proj.weight"),
    ("ffn_gate.weight", "mlp.gate_proj.weight"),
    ("ffn_up.weight", "mlp.up_proj.weight"),
    ("ffn_down.weight", "mlp.down_proj.weight"),
    ("post_attention_norm.weight", "post_attention_layernorm.weight"),
    ("post_ffw_norm.weight", "post_feedforward_layernorm.weight"),
];

fn gguf_name(architecture: Architecture, name: &str) -> String {
    let Some((layer, part)) = name.strip_prefix("model.layers.").and_then(|rest| rest.split_once('.')) else {
        let whole = ["model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"];
        let ours = ["token_embd.weight", "output_norm.weight", "output.weight"];
        return ours[whole.iter().position(|whole| *whole == name).unwrap()].to_owned();
    };
    let before = if architecture == Architecture::Gemma3 {
        "pre_feedforward_layernorm.weight"
    } else {
        "post_attention_layernorm.weight"
    };
    let part = match PARTS.iter().find(|(_, theirs)| *theirs == part) {
        _ if part == before => "ffn_norm.weight",
        found => found.unwrap().0,
    };
    format!("blk.{layer}.{part}")
}

/// A model of safetensors files as a GGUF file in f32, with the byte-level vocabulary of the tiny models.
fn converted(written: &Written, name: &str, architecture: Architecture) -> Tiny {
    let folder = written.path(name);
    let config: Json = serde_json::from_slice(&fs::read(folder.join("config.json")).unwrap()).unwrap();
    let number = |key: &str| Value::U32(config[key].as_u64().unwrap() as u32);
    let mut tiny = Tiny::llama();
    tiny.tensors.clear();
    tiny.metadata.retain(|(key, _)| !key.starts_with("llama."));
    let prefix = architecture.to_string();
    tiny.set("general.architecture", Value::Text(prefix.clone()));
    for (ours, theirs) in [
        ("block_count", "num_hidden_layers"),
        ("context_length", "max_position_embeddings"),
        ("embedding_length", "hidden_size"),
        ("feed_forward_length", "intermediate_size"),
        ("attention.head_count", "num_attention_heads"),
        ("attention.head_count_kv", "num_key_value_heads"),
    ] {
        tiny.set(&format!("{prefix}.{ours}"), number(theirs));
    }
    let base = config["rope_theta"].as_f64().or(config["rope_parameters"]["rope_theta"].as_f64()).unwrap();
    tiny.set(&format!("{prefix}.rope.freq_base"), Value::F32(base as f32));
    let epsilon = config["rms_norm_eps"].as_f64().unwrap() as f32;
    tiny.set(&format!("{prefix}.attention.layer_norm_rms_epsilon"), Value::F32(epsilon));
    if config["head_dim"].is_u64() {
        tiny.set(&format!("{prefix}.attention.key_length"), number("head_dim"));
        tiny.set(&format!("{prefix}.attention.value_length"), number("head_dim"));
    }
    if architecture == Architecture::Gemma3 {
        tiny.set("gemma3.attention.sliding_window", number("sliding_window"));
        tiny.set("gemma3.attention.sliding_window_pattern", Value::U32(2));
        tiny.set("gemma3.rope.scaling.type", Value::Text("linear".into()));
        tiny.set("gemma3.rope.scaling.factor", Value::F32(8.0));
    }
    for entry in fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.extension().is_some_and(|extension| extension == "safetensors") {
            let bytes = fs::read(&entry).unwrap();
            for (theirs, view) in SafeTensors::deserialize(&bytes).unwrap().tensors() {
                tiny.tensors.push(tensor(architecture, &theirs, &view));
            }
        }
    }
    tiny
}

fn tensor(architecture: Architecture, name: &str, view: &safetensors::tensor::TensorView) -> Tensor {
    let offset = if architecture == Architecture::Gemma3 && name.ends_with("norm.weight") { 1.0 } else { 0.0 };
    let halves = || view.data().as_chunks::<2>().0.iter().copied();
    let values: Vec<f32> = match view.dtype() {
        Dtype::F32 => view.data().as_chunks().0.iter().map(|four| f32::from_le_bytes(*four)).collect(),
        Dtype::BF16 => halves().map(|pair| half::bf16::from_le_bytes(pair).to_f32()).collect(),
        _ => halves().map(|pair| half::f16::from_le_bytes(pair).to_f32()).collect(),
    };
    Tensor {
        name: gguf_name(architecture, name),
        shape: view.shape().iter().map(|n| *n as u64).collect(),
        kind: 0,
        data: values.iter().flat_map(|value| (value + offset).to_le_bytes()).collect(),
    }
}

/// Gemma's queries are scaled by a number that GGUF files leave out, so its model is asked for the usual one.
#[test]
fn a_gguf_file_of_the_same_weights_gives_the_same_bits() {
    let written = Written::new("gguf");
    let path = written.path("gemma3").join("config.json");
    let usual =
        fs::read_to_string(&path).unwrap().replace(r#""query_pre_attn_scalar": 20"#, r#""query_pre_attn_scalar": 16"#);
    fs::write(&path, usual).unwrap();
    let tokens = [1, 77, 200, 3, 3, 140, 9, 255, 31];
    for (name, architecture) in
        [("qwen2", Architecture::Qwen2), ("gemma3", Architecture::Gemma3), ("qwen3", Architecture::Qwen3)]
    {
        let folder = load(&written, name);
        let file = converted(&written, name, architecture);
        let file = Model::load(&TempFile::new(name, &file.bytes()).0).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(file.config().architecture, architecture);
        let (a, b) = (hidden(&folder, &tokens), hidden(&file, &tokens));
        // The folder's weights may be of 16 bits; their products are as exact, but are added in another order.
        let near = a.iter().zip(&b).all(|(a, b)| (a - b).abs() < 1e-4);
        assert!(near, "{name}: {:?} {:?}", &a[..8], &b[..8]);
    }
}
