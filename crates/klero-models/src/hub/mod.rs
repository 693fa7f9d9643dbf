//! Models by their Hugging Face id.
//!
//! A [`ModelId`] such as `owner/name` stands for files in a repository at a commit. [`Hub::fetch`] chooses them, sees to it
//! that they are in the cache, and gives the path to load. The cache is the one that Hugging Face's own tools keep, so
//! what they fetched is not fetched again, nor the other way round.
//!
//! **What was fetched stays what it is.** A branch that is in the cache means the commit it stood for when it was fetched,
//! and nothing is asked of the hub, so a text can be written again tomorrow. Only what the cache cannot answer goes to the
//! hub. To move on to a newer commit, name it, or remove the repository's folder from the cache.
//!
//! **Nothing half fetched is taken for whole.** A file gets its name once all its bytes are there and their hash is the one
//! that the hub announced. A transfer that broke off goes on from where it was, in this call or in the next.

mod choice;
mod client;
mod download;
mod error;
mod folder;
mod id;
mod options;
mod part;
mod path;
mod patience;

pub use error::HubError;
pub use id::ModelId;
pub use options::Options;

use crate::files;
use choice::{Choice, INDEX};
use client::Client;
use download::Download;
use folder::Folder;
use serde::Deserialize;
use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};

/// Hears how a fetch goes; `()` does not care.
pub trait Progress {
    /// Something that a person may want to know and that stops nothing.
    fn note(&mut self, _note: &str) {}

    /// A file of `size` bytes begins to come, of which `there` are there. Called again if it has to begin anew.
    fn start(&mut self, _file: &str, _size: u64, _there: u64) {}

    /// As many bytes more are there.
    fn advance(&mut self, _bytes: u64) {}

    /// All bytes of the file are there.
    fn finish(&mut self) {}
}

impl Progress for () {}

/// A hub and the cache of what came from it.
///
/// ```no_run
/// use klero_models::hub::{Hub, ModelId};
///
/// let id = ModelId::parse("bartowski/SmolLM2-135M-Instruct-GGUF:Q8_0")?;
/// let path = Hub::from_env().fetch(&id, &mut ())?;
/// let model = klero_models::Model::load(&path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Hub {
    options: Options,
    client: Client,
}

impl Hub {
    /// The hub and the cache that the environment names: [`Options::from_env`].
    pub fn from_env() -> Self {
        Self::new(Options::from_env())
    }

    /// A hub and a cache.
    pub fn new(options: Options) -> Self {
        Self { client: Client::new(&options), options }
    }

    /// Sees to it that a model is in the cache, and returns what to load: the path of its GGUF file, or of the folder with
    /// `config.json`, `tokenizer.json` and safetensors.
    ///
    /// Of a repository's files it takes, if the id names none: the only GGUF file; else the safetensors with all that
    /// belongs to them; else, of several GGUF files, the only one with `Q4_K_M` in its name, or with `Q8_0`.
    ///
    /// # Errors
    /// Any [`HubError`]. What came before is kept, and the next call goes on from there.
    pub fn fetch(&self, id: &ModelId, progress: &mut dyn Progress) -> Result<PathBuf, HubError> {
        let folder = Folder::new(&self.options.cache, id.repository());
        if let Some(commit) = folder.commit(id.revision()) {
            let names = self.names(id, &folder, &commit, progress)?;
            match choice::choose(id, &names) {
                Ok(choice) => return self.complete(id, &folder, &commit, choice, progress),
                Err(error) if self.options.offline || commit == id.revision() => return Err(error),
                // What was asked for may have come since.
                Err(_) => {}
            }
        }
        if self.options.offline {
            return Err(self.offline(id.to_string()));
        }
        let listing = self.client.listing(id, id.revision())?;
        let choice = choice::choose(id, &listing.names)?;
        folder.note(id.revision(), &listing.commit, &listing.names)?;
        self.complete(id, &folder, &listing.commit, choice, progress)
    }

    /// The names of the files of a commit that is in the cache. Where only the hub knows them all and cannot be asked, those
    /// of the files that are here.
    fn names(
        &self,
        id: &ModelId,
        folder: &Folder,
        commit: &str,
        progress: &mut dyn Progress,
    ) -> Result<Vec<String>, HubError> {
        if let Some(names) = folder.names(commit) {
            return Ok(names);
        }
        if self.options.offline {
            return Ok(folder.names_here(commit));
        }
        match self.client.listing(id, commit) {
            Ok(listing) => {
                folder.note(commit, commit, &listing.names)?;
                Ok(listing.names)
            }
            Err(error) if error.is_passing() => {
                progress.note(&format!("{error}; going by what is in the cache"));
                Ok(folder.names_here(commit))
            }
            Err(error) => Err(error),
        }
    }

    /// Fetches what is missing of a choice.
    fn complete(
        &self,
        id: &ModelId,
        folder: &Folder,
        commit: &str,
        choice: Choice,
        progress: &mut dyn Progress,
    ) -> Result<PathBuf, HubError> {
        let mut need = |name: &str| {
            let file = folder.file(commit, name)?;
            if file.is_file() {
                return Ok(file);
            }
            if self.options.offline {
                return Err(self.offline(format!("{name} of {}", id.repository())));
            }
            let patience = self.options.patience();
            Download { client: &self.client, patience, id, folder, commit, name }.run(progress)?;
            Ok(file)
        };
        match choice {
            Choice::File(name) => need(&name),
            Choice::Snapshot(names) => {
                for name in &names {
                    let file = need(name)?;
                    if name == INDEX {
                        shards(&file)?.iter().try_for_each(|shard| need(shard).map(drop))?;
                    }
                }
                Ok(folder.snapshot(commit))
            }
        }
    }

    fn offline(&self, what: String) -> HubError {
        HubError::Offline { what, cache: self.options.cache.clone() }
    }
}

/// The part of an index of safetensors that is read.
#[derive(Deserialize)]
struct Index {
    weight_map: HashMap<String, String>,
}

/// The files that hold the tensors of an index.
fn shards(index: &Path) -> Result<BTreeSet<String>, HubError> {
    let wrong = |reason| HubError::Answer { url: index.display().to_string(), reason };
    let bytes = files::bytes(index).map_err(|error| wrong(error.to_string()))?;
    let index: Index =
        serde_json::from_slice(&bytes).map_err(|error| wrong(format!("no index of safetensors: {error}")))?;
    Ok(index.weight_map.into_values().collect())
}
