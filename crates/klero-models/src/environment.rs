//! What the process's environment says of folders.

use std::env;
use std::path::PathBuf;

/// A variable that is set to something.
pub fn variable(name: &str) -> Option<PathBuf> {
    env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// The user's cache folder: `$XDG_CACHE_HOME`, else `~/.cache`.
pub fn cache_folder() -> PathBuf {
    variable("XDG_CACHE_HOME").unwrap_or_else(|| variable("HOME").unwrap_or_default().join(".cache"))
}
