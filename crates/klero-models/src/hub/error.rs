//! What can go wrong between the name of a model and its files.

use std::io;
use std::path::PathBuf;
use std::time::Duration;
use thiserror::Error;

/// A model that cannot be named, found, fetched or stored.
#[derive(Debug, Error)]
pub enum HubError {
    /// The text is no id.
    #[error("`{id}` is not the id of a model: {rule}")]
    Id {
        /// The text.
        id: String,
        /// What is required.
        rule: &'static str,
    },
    /// The hub knows no such repository, or does not tell this user of it.
    #[error(
        "there is no model `{repository}` at {endpoint}; if it is private, set HF_TOKEN to a token that may read it"
    )]
    NoRepository {
        /// `owner/name`.
        repository: String,
        /// The hub.
        endpoint: String,
    },
    /// The repository has no such branch, tag or commit.
    #[error("`{repository}` has no revision `{revision}`")]
    NoRevision {
        /// `owner/name`.
        repository: String,
        /// The branch, tag or commit.
        revision: String,
    },
    /// The repository has no such file.
    #[error("`{repository}` has no GGUF file `{file}`; it has {}", list(there))]
    NoFile {
        /// `owner/name`.
        repository: String,
        /// The file, or the part of a name, that was asked for.
        file: String,
        /// Its GGUF files.
        there: Vec<String>,
    },
    /// Several files fit what was asked for.
    #[error(
        "several GGUF files of `{repository}` fit; ask for one as {repository}:FILE, with FILE one of {}",
        list(files)
    )]
    Several {
        /// `owner/name`.
        repository: String,
        /// The files.
        files: Vec<String>,
    },
    /// The repository holds no model that could be loaded.
    #[error("`{repository}` has neither a GGUF file nor config.json, tokenizer.json and model.safetensors")]
    NoModel {
        /// `owner/name`.
        repository: String,
    },
    /// The hub wants to know who asks, or refuses whom it knows.
    #[error(
        "the hub refuses `{repository}` ({status}): accept its licence at {endpoint}/{repository} if it asks for that, \
         and set HF_TOKEN to a token that may read it{}",
        if *token { " (the one that was sent may not)" } else { "" }
    )]
    Refused {
        /// `owner/name`.
        repository: String,
        /// The hub.
        endpoint: String,
        /// The HTTP status, 401 or 403.
        status: u16,
        /// Whether a token was sent.
        token: bool,
    },
    /// The hub answered, but not with what was asked for.
    #[error("{url} answered with status {status}{}", wait.map(|wait| format!(" and asks to wait {wait:?}")).unwrap_or_default())]
    Status {
        /// What was asked for.
        url: String,
        /// The HTTP status.
        status: u16,
        /// How long it asks to wait.
        wait: Option<Duration>,
    },
    /// The hub's answer makes no sense.
    #[error("{url}: {reason}")]
    Answer {
        /// What was asked for.
        url: String,
        /// What is wrong.
        reason: String,
    },
    /// The hub cannot be reached.
    #[error("cannot reach {url}: {reason}")]
    Network {
        /// What was asked for.
        url: String,
        /// Why.
        reason: String,
    },
    /// A transfer ended early, again and again. What came is kept, and the next call goes on from there.
    #[error("the transfer of {file} broke off after {length} of {size} bytes: {reason}")]
    Broken {
        /// The file.
        file: String,
        /// Bytes that are there.
        length: u64,
        /// Bytes of the whole.
        size: u64,
        /// Why.
        reason: String,
    },
    /// What came is not what was announced. Nothing of it is kept.
    #[error("{file} has {what} {found}, must have {expected}")]
    Corrupt {
        /// The file.
        file: String,
        /// The size in bytes, or the kind of hash.
        what: &'static str,
        /// What came.
        found: String,
        /// What was announced.
        expected: String,
    },
    /// A name given by the hub would lead out of the cache folder.
    #[error("the hub gives {what} `{}`, which is not safe to store", name.escape_debug())]
    Unsafe {
        /// What is named so.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// Nothing may be fetched, and the cache does not hold what is needed.
    #[error("HF_HUB_OFFLINE is set, and {} does not hold {what}", cache.display())]
    Offline {
        /// The id, or a file of the repository.
        what: String,
        /// The cache folder.
        cache: PathBuf,
    },
    /// The disk is too small.
    #[error("{file} needs {needed} bytes, and {} has {free} free", folder.display())]
    NoSpace {
        /// The file.
        file: String,
        /// Bytes to come.
        needed: u64,
        /// Bytes free.
        free: u64,
        /// Where.
        folder: PathBuf,
    },
    /// The cache cannot be read or written.
    #[error("cannot use the cache at {}: {source}", path.display())]
    Cache {
        /// The file or folder.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
}

impl HubError {
    /// Whether this says more of the way to the hub, at this moment, than of what was asked for.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Network { .. } | Self::Broken { .. } => true,
            Self::Status { status, .. } => *status == 429 || *status >= 500,
            _ => false,
        }
    }
}

/// Names on one line, and how many are left out.
fn list(names: &[String]) -> String {
    const SHOWN: usize = 40;
    let shown = names.iter().take(SHOWN).map(|name| name.escape_debug().to_string()).collect::<Vec<_>>().join(", ");
    match names.len() {
        0 => "none".to_owned(),
        count if count > SHOWN => format!("{shown}, … and {} more", count - SHOWN),
        _ => shown,
    }
}
