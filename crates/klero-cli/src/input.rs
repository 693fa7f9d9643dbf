//! What commands read: a file, or the standard input.

use crate::failure::Failure;
use std::io::{self, Read};
use std::path::Path;

/// All bytes of a file; - is the standard input.
pub fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let read = match path.to_str() {
        Some("-") => io::stdin().lock().read_to_end(&mut bytes).map(|_| bytes),
        _ => std::fs::read(path),
    };
    read.map_err(|error| Failure::Run(format!("cannot read {}: {error}", path.display())))
}
