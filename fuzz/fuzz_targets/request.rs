//! Request lines of `klero draw`, over tensors that exist: a reply of valid JSON for every line, whatever it is.

#![no_main]

use klero::Policy;
use klero_cli::{draw::replay, tensors::Tensors};
use libfuzzer_sys::fuzz_target;
use std::sync::OnceLock;

/// A file with logits `l` `[3, 70]`, a hidden state `h` `[8]`, weights `w` `[70, 8]`, logprobs `d` `[2, 70]` and a mask `m`
/// `[3]`.
fn tensors() -> &'static [u8] {
    static FILE: OnceLock<Vec<u8>> = OnceLock::new();
    FILE.get_or_init(|| {
        let tensors = [("l", vec![3, 70]), ("h", vec![8]), ("w", vec![70, 8]), ("d", vec![2, 70]), ("m", vec![3])];
        let (mut header, mut data) = (serde_json::Map::new(), Vec::new());
        for (name, shape) in tensors {
            let start = data.len();
            let count: usize = shape.iter().product();
            for i in 0..count {
                let value = ((i * 37 % 101) as f32 - 50.0) / 20.0;
                match name {
                    "m" => data.extend((0xA5A5_5A5A_u32.rotate_left(i as u32)).to_le_bytes()),
                    "d" => data.extend((value - 4.0).to_le_bytes()),
                    _ => data.extend(value.to_le_bytes()),
                }
            }
            let dtype = if name == "m" { "U32" } else { "F32" };
            let entry = serde_json::json!({"dtype": dtype, "shape": shape, "data_offsets": [start, data.len()]});
            header.insert(name.to_owned(), entry);
        }
        let header = serde_json::to_vec(&header).expect("JSON");
        [&(header.len() as u64).to_le_bytes()[..], &header, &data].concat()
    })
}

fuzz_target!(|bytes: &[u8]| {
    let tensors = Tensors::deserialize(tensors()).expect("a sound file");
    let mut replies = Vec::new();
    replay(&tensors, bytes, &Policy::default(), &mut replies).expect("memory to write to");
    for reply in replies.split(|byte| *byte == b'\n').filter(|reply| !reply.is_empty()) {
        let value: serde_json::Value = serde_json::from_slice(reply).expect("a reply is JSON");
        let ok = value["status"] == "ok";
        assert_eq!(ok, value["token"].as_u64().is_some_and(|token| token < 70), "{value}");
        assert_eq!(ok, value["error"].is_null(), "{value}");
    }
});
