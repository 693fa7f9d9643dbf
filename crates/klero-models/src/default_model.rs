//! Where the default model lies, and whether it is the right file.

use crate::{ModelError, environment};
use sha2::{Digest, Sha256};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

const NAME: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";
const SIZE: u64 = 98_362_432;
const SHA256: &str = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53";

/// The path of the default model, SmolLM2-135M-Instruct, in Klero's cache folder: `$KLERO_CACHE`, else
/// `$XDG_CACHE_HOME/klero`, else `~/.cache/klero`.
///
/// Its SHA-256 is computed once; a small file beside it remembers for which size and time of change.
///
/// # Errors
/// [`ModelError::DefaultModel`] if it is not there, or is another file; [`ModelError::Io`] if it cannot be read.
pub fn default_model() -> Result<PathBuf, ModelError> {
    let path = cache_folder().join(NAME);
    let wrong = |reason: String| ModelError::DefaultModel { path: path.clone(), reason };
    let Ok(metadata) = fs::metadata(&path) else { return Err(wrong("is not there".to_owned())) };
    if metadata.len() != SIZE {
        return Err(wrong(format!("has {} bytes, must have {SIZE}", metadata.len())));
    }
    let io = |source| ModelError::Io { path: path.clone(), source };
    let changed = metadata.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
    let seal = format!("{SHA256} {SIZE} {}\n", changed.as_nanos());
    let seal_path = path.with_extension("gguf.verified");
    if fs::read_to_string(&seal_path).is_ok_and(|found| found == seal) {
        return Ok(path);
    }
    let found = sha256(&path).map_err(io)?;
    if found != SHA256 {
        return Err(wrong(format!("has SHA-256 {found}, must have {SHA256}")));
    }
    // A cache folder that cannot be written only means that the sum is computed again.
    let _ = fs::write(&seal_path, seal);
    Ok(path)
}

fn cache_folder() -> PathBuf {
    environment::variable("KLERO_CACHE").unwrap_or_else(|| environment::cache_folder().join("klero"))
}

fn sha256(path: &Path) -> std::io::Result<String> {
    let mut hash = Sha256::new();
    std::io::copy(&mut File::open(path)?, &mut hash)?;
    Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}
