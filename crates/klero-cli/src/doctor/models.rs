//! Models on this machine: the default one, others beside it, and what Hugging Face's tools have fetched.

use super::page::{Section, bytes};
use crate::words::count;
use klero_models::ModelError;
use serde::Serialize;
use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Models found.
#[derive(Serialize)]
pub struct Models {
    default: DefaultModel,
    hugging_face: Cache,
}

/// The default model.
#[derive(Serialize)]
struct DefaultModel {
    path: PathBuf,
    state: State,
    /// In bytes, of a file that is there.
    size: Option<u64>,
    /// What is wrong.
    error: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
enum State {
    Intact,
    Missing,
    Damaged,
}

/// A folder of Hugging Face snapshots.
#[derive(Serialize)]
struct Cache {
    folder: PathBuf,
    snapshots: Vec<Snapshot>,
    /// Why the folder cannot be read; None too if it is not there.
    error: Option<String>,
}

/// One revision of a repository.
#[derive(Debug, PartialEq, Serialize)]
struct Snapshot {
    repository: String,
    revision: String,
    folder: PathBuf,
    /// The files with weights, sorted.
    files: Vec<Weights>,
}

/// A file with weights.
#[derive(Debug, PartialEq, Serialize)]
struct Weights {
    /// Its path in the snapshot.
    name: String,
    /// In bytes; None for a file that was not fetched to its end.
    size: Option<u64>,
}

impl Models {
    /// Looks in both caches.
    pub fn find() -> Self {
        Self {
            default: DefaultModel::find(),
            hugging_face: Cache::find(hub_folder(|name| env::var_os(name).map(PathBuf::from))),
        }
    }

    /// Whether the default model is there and is not what it should be.
    pub fn damaged(&self) -> bool {
        self.default.state == State::Damaged
    }

    pub fn section(&self) -> Section {
        Section::new("models")
            .with("default", self.default.describe())
            .with("Hugging Face", self.hugging_face.describe())
    }
}

impl DefaultModel {
    fn find() -> Self {
        let (path, error) = match klero_models::default_model() {
            Ok(path) => (path, None),
            Err(error) => match &error {
                ModelError::DefaultModel { path, reason } => (path.clone(), Some(reason.clone())),
                ModelError::Io { path, source } => (path.clone(), Some(source.to_string())),
                _ => (PathBuf::new(), Some(error.to_string())),
            },
        };
        let size = fs::metadata(&path).ok().map(|metadata| metadata.len());
        let state = match (&error, size) {
            (None, _) => State::Intact,
            (Some(_), Some(_)) => State::Damaged,
            (Some(_), None) => State::Missing,
        };
        Self { path, state, size, error }
    }

    fn describe(&self) -> String {
        let state = match self.state {
            State::Intact => format!("intact, {}", bytes(self.size.unwrap_or_default())),
            State::Missing => "is not there; scripts/fetch-model fetches it".to_owned(),
            State::Damaged => {
                format!("damaged: {}; scripts/fetch-model fetches it", self.error.as_deref().unwrap_or_default())
            }
        };
        format!("{state}\n{}", self.path.display())
    }
}

/// The folder that Hugging Face's tools use, given the environment.
fn hub_folder(variable: impl Fn(&str) -> Option<PathBuf>) -> PathBuf {
    let set = |name: &str| variable(name).filter(|value| !value.as_os_str().is_empty());
    let cache = || set("XDG_CACHE_HOME").unwrap_or_else(|| set("HOME").unwrap_or_default().join(".cache"));
    let home = || set("HF_HOME").unwrap_or_else(|| cache().join("huggingface"));
    set("HF_HUB_CACHE").or_else(|| set("HUGGINGFACE_HUB_CACHE")).unwrap_or_else(|| home().join("hub"))
}

impl Cache {
    fn find(folder: PathBuf) -> Self {
        let (snapshots, error) = match snapshots(&folder) {
            Ok(snapshots) => (snapshots, None),
            Err(error) if error.kind() == io::ErrorKind::NotFound => (Vec::new(), None),
            Err(error) => (Vec::new(), Some(error.to_string())),
        };
        Self { folder, snapshots, error }
    }

    fn describe(&self) -> String {
        let mut lines = match &self.error {
            Some(error) => vec![format!("cannot be read: {error}")],
            None if self.snapshots.is_empty() => vec!["none".to_owned()],
            None => self.snapshots.iter().map(Snapshot::describe).collect(),
        };
        lines.push(self.folder.display().to_string());
        lines.join("\n")
    }
}

/// All snapshots with weights: `models--OWNER--NAME/snapshots/REVISION`.
fn snapshots(hub: &Path) -> io::Result<Vec<Snapshot>> {
    let mut found = Vec::new();
    for repository in names(hub)? {
        let Some(name) = repository.strip_prefix("models--") else { continue };
        let folder = hub.join(&repository).join("snapshots");
        // A repository of which nothing was fetched yet has no such folder.
        for revision in names(&folder).unwrap_or_default() {
            let folder = folder.join(&revision);
            let mut files = Vec::new();
            weights(&folder, "", &mut files);
            if !files.is_empty() {
                found.push(Snapshot { repository: name.replace("--", "/"), revision, folder, files });
            }
        }
    }
    Ok(found)
}

/// The names in a folder, sorted.
fn names(folder: &Path) -> io::Result<Vec<String>> {
    let name = |entry: io::Result<fs::DirEntry>| Ok(entry?.file_name().to_string_lossy().into_owned());
    let mut names = fs::read_dir(folder)?.map(name).collect::<io::Result<Vec<String>>>()?;
    names.sort_unstable();
    Ok(names)
}

/// Adds the files with weights in a folder and those in it. Links are followed to files, never to folders.
fn weights(folder: &Path, prefix: &str, files: &mut Vec<Weights>) {
    for entry in names(folder).unwrap_or_default() {
        let (path, name) = (folder.join(&entry), format!("{prefix}{entry}"));
        if fs::symlink_metadata(&path).is_ok_and(|metadata| metadata.is_dir()) {
            weights(&path, &format!("{name}/"), files);
        } else if [".gguf", ".safetensors"].iter().any(|ending| name.ends_with(ending)) {
            files.push(Weights { name, size: fs::metadata(&path).ok().map(|metadata| metadata.len()) });
        }
    }
}

impl Snapshot {
    /// The repository and its files: GGUF files by name, for each is a model; safetensors by number, for all are one.
    fn describe(&self) -> String {
        let (models, parts): (Vec<&Weights>, Vec<&Weights>) =
            self.files.iter().partition(|file| file.name.ends_with(".gguf"));
        let mut words: Vec<String> = models.iter().map(|file| format!("{}, {}", file.name, size(&[file]))).collect();
        if !parts.is_empty() {
            words.push(format!("{} safetensors, {}", count(parts.len()), size(&parts)));
        }
        let revision: String = self.revision.chars().take(8).collect();
        format!("{} @{revision}: {}", self.repository, words.join("; "))
    }
}

/// The size of some files together.
fn size(files: &[&Weights]) -> String {
    let sizes: Option<Vec<u64>> = files.iter().map(|file| file.size).collect();
    sizes.map_or("incomplete".to_owned(), |sizes| bytes(sizes.iter().sum()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hub_folder_follows_the_environment() {
        let folder = |set: &[(&str, &str)]| {
            let value = |name: &str| set.iter().find(|(key, _)| *key == name).map(|(_, value)| PathBuf::from(value));
            hub_folder(value).to_str().unwrap().to_owned()
        };
        let home = ("HOME", "/h");
        assert_eq!(folder(&[home]), "/h/.cache/huggingface/hub");
        assert_eq!(folder(&[home, ("XDG_CACHE_HOME", "/x")]), "/x/huggingface/hub");
        assert_eq!(folder(&[home, ("XDG_CACHE_HOME", "/x"), ("HF_HOME", "/f")]), "/f/hub");
        assert_eq!(folder(&[home, ("HF_HOME", "")]), "/h/.cache/huggingface/hub");
        assert_eq!(folder(&[home, ("HF_HOME", "/f"), ("HF_HUB_CACHE", "/c")]), "/c");
        assert_eq!(folder(&[home, ("HF_HOME", "/f"), ("HUGGINGFACE_HUB_CACHE", "/o")]), "/o");
    }
}
