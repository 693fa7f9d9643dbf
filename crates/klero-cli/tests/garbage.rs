//! `klero draw` on bytes that nobody meant: damaged requests and damaged files get an answer, never a panic.

mod support;

use klero::{Policy, hash::splitmix64};
use klero_cli::{draw::replay, tensors::Tensors};
use safetensors::Dtype;
use serde_json::Value;
use support::{Tensor, noise, safetensors};

const LINES: &str = r#"{"logits":"m","row":1,"position":3,"seed":-1,"top_p":0.9,"top_k":5,"min_p":0.1,"filter_order":"min_p_first"}
{"logits":"m","row":0,"position":3,"prompt_ids":[1,2,9],"output_ids":[3,3],"repetition_penalty":1.5,"frequency_penalty":1}
{"logits":"m","row":2,"position":3,"logit_bias":{"5":-1.5,"12":90},"banned":[3],"allowed":[1,3,5],"ids":[0,39],"samples":9}
{"logits":"m","row":3,"position":3,"allowed_bitmask":"k","kept_ids":true,"confidence":true,"vocabulary":33}
{"hidden":"h","weights":"w","row":1,"position":3,"verify":{"draft_token":7,"draft_logprobs":"d","row":2,"delta":0.1}}
{"hidden":"h","weights":"w","position":3,"verify":{"draft_tokens":[7,8,9],"draft_logprobs":"d"},"draw":"inverse_cdf"}
{"logits":"m","position":18446744073709551615,"verify":{"draft_tokens":[7,8,9],"coupled":true},"allowed_bitmask":"k"}
{"logits":"m","row":1,"position":3,"verify":{"draft_token":-1,"one_hot":true},"top_logprobs":1000,"raw_logprobs":true}
"#;

fn file() -> Vec<u8> {
    let words: Vec<u32> = (0..8).map(splitmix64).map(|word| word as u32).collect();
    safetensors(&[
        Tensor::f32("m", &[4, 40], &noise(160, 1)),
        Tensor::f32("h", &[4, 8], &noise(32, 2)),
        Tensor::f32("w", &[40, 8], &noise(320, 3)),
        Tensor::f32("d", &[3, 40], &noise(120, 4).iter().map(|value| value - 5.0).collect::<Vec<_>>()),
        Tensor::words("k", Dtype::U32, &[4, 2], &words),
    ])
}

/// The same bytes after a few changes that depend on `seed` alone.
fn damaged(bytes: &[u8], seed: u64) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for i in 0..1 + seed % 4 {
        let hash = splitmix64(seed ^ splitmix64(i));
        let at = (hash >> 8) as usize % bytes.len();
        match hash % 8 {
            0 => bytes[at] = (hash >> 40) as u8,
            1 => bytes[at] = b"-.0123456789eE[]{}\":,\n"[(hash >> 40) as usize % 22],
            2 => drop(bytes.remove(at)),
            3 => bytes.insert(at, b'9'),
            4 => bytes[at] ^= 1 << (hash >> 40 & 7),
            5 => bytes.splice(at..at, *b"-").for_each(drop),
            // A number becomes another one, much larger.
            6 if bytes[at].is_ascii_digit() => bytes.splice(at..at, *b"109951162").for_each(drop),
            _ => bytes.truncate(at + 1),
        }
    }
    bytes
}

/// Replays and returns the statuses.
fn answers(file: &[u8], lines: &[u8]) -> Vec<String> {
    let Ok(tensors) = Tensors::deserialize(file) else { return Vec::new() };
    let mut out = Vec::new();
    let invalid = replay(&tensors, lines, &Policy::default(), &mut out).expect("a vector takes everything");
    let replies: Vec<Value> = String::from_utf8(out)
        .expect("replies are UTF-8")
        .lines()
        .map(|line| serde_json::from_str(line).expect("every reply is JSON"))
        .collect();
    let asked = lines.split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty()).count();
    assert_eq!(replies.len(), asked);
    let statuses: Vec<String> =
        replies.iter().map(|reply| reply["status"].as_str().expect("a status").to_owned()).collect();
    assert_eq!(statuses.iter().filter(|status| *status == "invalid").count(), invalid.len());
    for reply in &replies {
        assert_eq!(reply["token"].is_u64(), reply["status"] == "ok", "{reply}");
        assert_eq!(reply["logprob"].is_f64(), reply["status"] == "ok", "{reply}");
    }
    statuses
}

#[test]
fn damaged_requests_are_answered() {
    let file = file();
    assert_eq!(answers(&file, LINES.as_bytes()), ["ok"; 8]);
    let (mut ok, mut invalid) = (0, 0);
    for seed in 0..4000 {
        let statuses = answers(&file, &damaged(LINES.as_bytes(), seed));
        ok += statuses.iter().filter(|status| *status == "ok").count();
        invalid += statuses.iter().filter(|status| *status == "invalid").count();
    }
    assert!(ok > 4000 && invalid > 1000, "{ok} {invalid}");
}

#[test]
fn damaged_files_are_answered() {
    let file = file();
    let header = u64::from_le_bytes(file[..8].try_into().unwrap()) as usize + 8;
    for seed in 0..2000 {
        // The header alone, and numbers alone.
        let (head, numbers) = file.split_at(header);
        answers(&[&damaged(head, seed), numbers].concat(), LINES.as_bytes());
        let mut bits = file.clone();
        for i in 0..20 {
            let hash = splitmix64(seed ^ splitmix64(i));
            bits[header + (hash >> 8) as usize % (file.len() - header)] ^= hash as u8;
        }
        answers(&bits, LINES.as_bytes());
    }
}
