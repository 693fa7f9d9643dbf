//! Where pictures go: files that are whole or not there.

use crate::failure::Failure;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Whether a path stands for the standard output.
pub fn is_stdout(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Writes a file, or the standard output.
///
/// # Errors
/// [`Failure::Run`] names the file.
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    if is_stdout(path) {
        let mut out = io::stdout().lock();
        return Ok(out.write_all(bytes).and_then(|()| out.flush())?);
    }
    let written = match fs::canonicalize(path) {
        // A device or a pipe cannot be replaced.
        Ok(real) if !real.is_file() => fs::write(real, bytes),
        Ok(real) => replace(&real, bytes),
        Err(_) => replace(path, bytes),
    };
    written.map_err(|error| Failure::Run(format!("cannot write {}: {error}", path.display())))
}

/// Writes beside the file and renames, so that nobody ever reads a part.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let beside = beside(path)?;
    let renamed = fs::write(&beside, bytes).and_then(|()| fs::rename(&beside, path));
    if renamed.is_err() {
        let _ = fs::remove_file(&beside);
    }
    renamed
}

/// A file in the same folder that no other process uses.
fn beside(path: &Path) -> io::Result<PathBuf> {
    let name = path.file_name().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "it names no file"))?;
    let mut hidden = std::ffi::OsString::from(".");
    hidden.push(name);
    hidden.push(format!(".{}", std::process::id()));
    Ok(path.with_file_name(hidden))
}
