//! Bytes as a safetensors file, with requests for whatever tensors it may hold.

#![no_main]

use klero::Policy;
use klero_cli::{draw::replay, tensors::Tensors};
use libfuzzer_sys::fuzz_target;

const REQUESTS: &str = r#"
{"logits":"a","position":1,"seed":2}
{"logits":"a","row":0,"position":1,"seed":2,"top_p":0.5,"raw_logprobs":true,"top_logprobs":3}
{"hidden":"a","weights":"b","position":1,"seed":2}
{"hidden":"a","weights":"b","weights_type":"q6_k","position":1,"seed":2}
{"logits":"a","position":1,"seed":2,"allowed_bitmask":"b"}
{"logits":"a","position":1,"seed":2,"verify":{"draft_tokens":[0],"draft_logprobs":"b"}}
"#;

fuzz_target!(|bytes: &[u8]| {
    let Ok(tensors) = Tensors::deserialize(bytes) else { return };
    let mut replies = Vec::new();
    replay(&tensors, REQUESTS.as_bytes(), &Policy::default(), &mut replies).expect("memory to write to");
    for reply in replies.split(|byte| *byte == b'\n').filter(|reply| !reply.is_empty()) {
        let value: serde_json::Value = serde_json::from_slice(reply).expect("a reply is JSON");
        assert_eq!(value["status"] == "ok", value["token"].is_u64(), "{value}");
    }
});
