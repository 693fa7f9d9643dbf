//! Bytes as a GGUF file: a model, or an error, in bounded memory.

#![no_main]

use klero_models::Model;
use libfuzzer_sys::fuzz_target;
use std::sync::OnceLock;
use std::{env, fs, path::PathBuf, process};

fn path() -> &'static PathBuf {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| env::temp_dir().join(format!("klero-fuzz-{}.gguf", process::id())))
}

fuzz_target!(|bytes: &[u8]| {
    fs::write(path(), bytes).expect("a file to read");
    if let Ok(model) = Model::load(path()) {
        let _ = model.forward(&mut [(&mut model.new_sequence(), &[0])]);
    }
});
