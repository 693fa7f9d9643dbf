//! The tiny models that `tests/transformers/models.py` writes.

use super::tiny::TempFolder;
use std::path::{Path, PathBuf};
use std::process::Command;

/// All of them, in a folder of their own.
pub struct Written(TempFolder);

pub const NAMES: [&str; 5] = ["llama", "qwen2", "qwen3", "gemma3", "gemma3-new"];

impl Written {
    /// Runs the script. `name` tells this folder from those of other tests.
    pub fn new(name: &str) -> Self {
        let folder = TempFolder::new(name);
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transformers/models.py");
        let status = Command::new("python3").arg(script).arg("write").arg(&folder.0).status();
        assert!(status.expect("python3 is needed").success(), "the models were not written");
        Self(folder)
    }

    /// The folder of a model.
    pub fn path(&self, model: &str) -> PathBuf {
        self.0.0.join(model)
    }
}
