//! One file of the hub on its way into the cache.

use super::client::{Client, Metadata};
use super::folder::Folder;
use super::part::{PIECE, Part};
use super::patience::Patience;
use super::{HubError, ModelId, Progress};
use std::fs;
use std::io::Read;

/// A file of a repository at a commit.
pub struct Download<'a> {
    pub client: &'a Client,
    pub patience: Patience,
    pub id: &'a ModelId,
    pub folder: &'a Folder,
    pub commit: &'a str,
    pub name: &'a str,
}

impl Download<'_> {
    /// Fetches the file, unless the cache has its bytes, perhaps of another commit.
    pub fn run(&self, progress: &mut dyn Progress) -> Result<(), HubError> {
        let file = self.folder.file(self.commit, self.name)?;
        let metadata = self.metadata(progress)?;
        let blob = self.folder.blob(&metadata.etag)?;
        let busy = || progress.note(&format!("waiting for another process that fetches {}", self.name));
        let _lock = self.folder.lock(&metadata.etag, busy)?;
        if fs::metadata(&file).is_ok_and(|other| other.len() == metadata.size) {
            return Ok(());
        }
        if !fs::metadata(&blob).is_ok_and(|other| other.len() == metadata.size) {
            let mut part = Part::open(&blob, &metadata.etag, metadata.size, self.name)?;
            self.fill(&mut part, &metadata, progress)?;
            part.finish(&blob, self.name)?;
        }
        self.folder.link(&blob, &file)
    }

    fn metadata(&self, progress: &mut dyn Progress) -> Result<Metadata, HubError> {
        let mut patience = self.patience.clone();
        loop {
            match self.client.metadata(self.id, self.commit, self.name) {
                Err(error) => patience.wait(error, |note| progress.note(note))?,
                metadata => return metadata,
            }
        }
    }

    /// Fetches what is missing, again from where a transfer broke off, until nothing more comes.
    fn fill(&self, part: &mut Part, metadata: &Metadata, progress: &mut dyn Progress) -> Result<(), HubError> {
        let mut patience = self.patience.clone();
        let mut furthest = part.length();
        progress.start(self.name, metadata.size, part.length());
        while part.missing() > 0 {
            let transfer = self.transfer(part, metadata, progress);
            if part.length() > furthest {
                furthest = part.length();
                patience = self.patience.clone();
            }
            if let Err(error) = transfer {
                patience.wait(error, |note| progress.note(note))?;
            }
        }
        progress.finish();
        Ok(())
    }

    /// Fetches until all is there or the transfer breaks off.
    fn transfer(&self, part: &mut Part, metadata: &Metadata, progress: &mut dyn Progress) -> Result<(), HubError> {
        let corrupt = |found: &str| HubError::Corrupt {
            file: self.name.to_owned(),
            what: "size",
            found: found.to_owned(),
            expected: metadata.size.to_string(),
        };
        let Some(bytes) = self.client.bytes(self.id, &metadata.url, part.length())? else {
            return Err(part.discard(corrupt(&format!("no more than {}", part.length()))));
        };
        if let Some(size) = bytes.size.filter(|size| *size != metadata.size) {
            return Err(part.discard(corrupt(&size.to_string())));
        }
        if bytes.from != part.length() {
            part.restart()?;
            progress.start(self.name, metadata.size, 0);
        }
        let mut body = bytes.body.into_reader();
        let mut buffer = vec![0; PIECE];
        while part.missing() > 0 {
            let room = buffer.len().min(usize::try_from(part.missing()).unwrap_or(usize::MAX));
            let (file, length, size) = (self.name.to_owned(), part.length(), metadata.size);
            let broken = |reason| HubError::Broken { file, length, size, reason };
            match body.read(&mut buffer[..room]) {
                Ok(0) => return Err(broken("the server ended it".to_owned())),
                Ok(count) => {
                    part.append(&buffer[..count])?;
                    progress.advance(count as u64);
                }
                Err(error) => return Err(broken(error.to_string())),
            }
        }
        Ok(())
    }
}
