//! Compiled kernels on disk, each under a name that its source, its options and the compiler's version decide.
//!
//! The folder is `$KLERO_KERNELS`, else `klero/kernels` in `$XDG_CACHE_HOME` or `~/.cache`. A file that cannot be read is compiled
//! anew, and one that cannot be written is done without: the cache saves time and decides nothing.

use crate::hash::splitmix64;
use std::fs;
use std::path::PathBuf;

/// A place for one compiled kernel.
pub(super) struct Entry(Option<PathBuf>);

impl Entry {
    /// The place of what `parts` describe.
    pub fn of(parts: &[&str]) -> Self {
        // Two different hashes of 64 bits, over the parts and their lengths.
        let digest = |start: u64| {
            parts.iter().fold(start, |state, part| {
                part.bytes()
                    .fold(splitmix64(state ^ part.len() as u64), |state, byte| splitmix64(state ^ u64::from(byte)))
            })
        };
        Self(folder().map(|folder| folder.join(format!("{:016x}{:016x}.cubin", digest(1), digest(2)))))
    }

    /// What lies there: a file that ends with the hash of the rest.
    pub fn read(&self) -> Option<Vec<u8>> {
        let mut bytes = fs::read(self.0.as_ref()?).ok()?;
        let end = bytes.len().checked_sub(8)?;
        let sum = bytes.split_off(end);
        (sum == check(&bytes)).then_some(bytes)
    }

    /// Puts it there, whole or not at all.
    pub fn write(&self, cubin: &[u8]) {
        let Some(path) = &self.0 else { return };
        let part = path.with_extension(format!("{}.part", std::process::id()));
        let kept = path.parent().map_or(Ok(()), fs::create_dir_all).is_ok()
            && fs::write(&part, [cubin, &check(cubin)].concat()).is_ok()
            && fs::rename(&part, path).is_ok();
        if !kept {
            let _ = fs::remove_file(&part);
        }
    }
}

fn check(bytes: &[u8]) -> [u8; 8] {
    bytes.iter().fold(bytes.len() as u64, |state, byte| splitmix64(state ^ u64::from(*byte))).to_le_bytes()
}

fn folder() -> Option<PathBuf> {
    let named = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    named("KLERO_KERNELS").or_else(|| {
        let caches = named("XDG_CACHE_HOME").or_else(|| named("HOME").map(|home| home.join(".cache")))?;
        Some(caches.join("klero/kernels"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_file_is_no_kernel() {
        let folder = std::env::temp_dir().join(format!("klero-kernels-{}", std::process::id()));
        let entry = Entry(Some(folder.join("a.cubin")));
        assert_eq!(entry.read(), None);
        entry.write(b"kernel");
        assert_eq!(entry.read().as_deref(), Some(&b"kernel"[..]));
        let path = folder.join("a.cubin");
        let whole = fs::read(&path).unwrap();
        for end in 0..whole.len() {
            fs::write(&path, &whole[..end]).unwrap();
            assert_eq!(entry.read(), None, "{end} bytes");
        }
        fs::write(&path, [&b"K"[..], &whole[1..]].concat()).unwrap();
        assert_eq!(entry.read(), None);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn every_part_counts() {
        let name = |parts: &[&str]| Entry::of(parts).0.unwrap();
        assert_ne!(name(&["ab", "c"]), name(&["a", "bc"]));
        assert_ne!(name(&["a"]), name(&["b"]));
        assert_eq!(name(&["a", "b"]), name(&["a", "b"]));
    }
}
