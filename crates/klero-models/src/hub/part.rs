//! A file that comes piece by piece, and its hash.

use super::HubError;
use super::folder::{at, beside, make_parent};
use sha1::{Digest, Sha1};
use sha2::Sha256;
use sha2::digest::DynDigest;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

/// The bytes of a file up to some position, on disk; those of an earlier call included.
pub struct Part {
    path: PathBuf,
    file: File,
    etag: String,
    length: u64,
    size: u64,
    hash: Option<Hash>,
}

/// Bytes that are read at a time.
pub const PIECE: usize = 1 << 18;

impl Part {
    /// The part of a blob that is there, if any.
    ///
    /// # Errors
    /// [`HubError::Cache`]; [`HubError::NoSpace`] if the rest would not fit.
    pub fn open(blob: &Path, etag: &str, size: u64, name: &str) -> Result<Self, HubError> {
        let path = beside(blob, ".incomplete");
        make_parent(&path)?;
        let file = File::options().create(true).read(true).append(true).open(&path).map_err(at(&path))?;
        let mut part = Self { path, file, etag: etag.to_owned(), length: 0, size, hash: Hash::new(etag, size) };
        part.read_back()?;
        let needed = part.size - part.length;
        let free = fs4::available_space(&part.path).map_err(at(&part.path))?;
        if needed > free {
            let folder = part.path.parent().unwrap_or(&part.path).to_owned();
            return Err(HubError::NoSpace { file: name.to_owned(), needed, free, folder });
        }
        Ok(part)
    }

    /// Bytes that are there.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Bytes that are missing.
    pub fn missing(&self) -> u64 {
        self.size - self.length
    }

    /// Hashes what an earlier call left; it is of no use if it is more than the whole.
    fn read_back(&mut self) -> Result<(), HubError> {
        let length = self.file.metadata().map_err(at(&self.path))?.len();
        if length > self.size {
            return self.restart();
        }
        let mut buffer = vec![0; PIECE];
        while self.length < length {
            let count = self.file.read(&mut buffer).map_err(at(&self.path))?;
            if count == 0 {
                break;
            }
            self.count(&buffer[..count]);
        }
        Ok(())
    }

    /// Begins again.
    pub fn restart(&mut self) -> Result<(), HubError> {
        self.file.set_len(0).map_err(at(&self.path))?;
        self.length = 0;
        self.hash = Hash::new(&self.etag, self.size);
        Ok(())
    }

    /// Adds bytes, no more than are missing.
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), HubError> {
        self.file.write_all(bytes).map_err(at(&self.path))?;
        self.count(bytes);
        Ok(())
    }

    fn count(&mut self, bytes: &[u8]) {
        self.length += bytes.len() as u64;
        self.hash.iter_mut().for_each(|hash| hash.state.update(bytes));
    }

    /// Makes the blob of it, once all bytes are there and their hash is the right one.
    ///
    /// # Errors
    /// [`HubError::Cache`]; [`HubError::Corrupt`], and then nothing is kept.
    pub fn finish(mut self, blob: &Path, name: &str) -> Result<(), HubError> {
        if let Some(hash) = self.hash.take() {
            let (what, found) = (hash.name, hash.hex());
            if !found.eq_ignore_ascii_case(&self.etag) {
                let expected = self.etag.clone();
                return Err(self.discard(HubError::Corrupt { file: name.to_owned(), what, found, expected }));
            }
        }
        self.file.sync_all().and_then(|()| fs::rename(&self.path, blob)).map_err(at(blob))
    }

    /// Removes what is there, for this reason.
    pub fn discard(&self, reason: HubError) -> HubError {
        fs::remove_file(&self.path).map_err(at(&self.path)).err().unwrap_or(reason)
    }
}

/// The hash that an etag is, of the bytes so far. Hugging Face gives the SHA-256 of large files and the Git hash of
/// small ones; of other servers' etags nothing is known.
struct Hash {
    name: &'static str,
    state: Box<dyn DynDigest>,
}

impl Hash {
    fn new(etag: &str, size: u64) -> Option<Self> {
        let is_hex = etag.bytes().all(|byte| byte.is_ascii_hexdigit());
        match etag.len() {
            64 if is_hex => Some(Self { name: "SHA-256", state: Box::new(Sha256::new()) }),
            40 if is_hex => {
                let state = Box::new(Sha1::new_with_prefix(format!("blob {size}\0")));
                Some(Self { name: "Git hash", state })
            }
            _ => None,
        }
    }

    fn hex(self) -> String {
        self.state.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}
