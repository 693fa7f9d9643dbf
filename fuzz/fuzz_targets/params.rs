//! Sampling parameters as JSON: refused with a message, or checked, and then the same once written and read again.

#![no_main]

use klero::SamplingParams;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(params) = serde_json::from_slice::<SamplingParams>(bytes) else { return };
    if let Err(error) = params.check() {
        assert!(error.to_string().starts_with(error.field));
        return;
    }
    let written = serde_json::to_string(&params).expect("checked parameters are numbers");
    let read: SamplingParams = serde_json::from_str(&written).expect("what was written is read");
    assert_eq!(read, params);
});
