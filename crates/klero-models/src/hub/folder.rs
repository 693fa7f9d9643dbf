//! A repository in the cache, laid out as Hugging Face's own tools do, so that they and this share what was fetched:
//!
//! ```text
//! models--OWNER--NAME/blobs/ETAG               a file, by its hash; ETAG.incomplete while it comes
//! models--OWNER--NAME/snapshots/COMMIT/FILE    a link to it
//! models--OWNER--NAME/refs/REVISION            the commit that a branch or tag stood for
//! .locks/models--OWNER--NAME/ETAG.lock         held by whoever fetches it
//! ```
//!
//! One thing is added: `.files/COMMIT`, the names of all files of a commit. It tells without a request which file
//! an id means, though only some of them were fetched.

use super::HubError;
use super::path::{is_commit, is_inside, is_name};
use fs4::FileExt;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The folder of a repository.
pub struct Folder {
    root: PathBuf,
    locks: PathBuf,
}

impl Folder {
    pub fn new(cache: &Path, repository: &str) -> Self {
        let name = format!("models--{}", repository.replace('/', "--"));
        Self { root: cache.join(&name), locks: cache.join(".locks").join(name) }
    }

    /// The commit that a revision stood for when it was fetched.
    pub fn commit(&self, revision: &str) -> Option<String> {
        let commit = match is_commit(revision) {
            true => revision.to_owned(),
            false => fs::read_to_string(self.root.join("refs").join(revision)).ok()?.trim().to_owned(),
        };
        (is_commit(&commit) && self.snapshot(&commit).is_dir()).then_some(commit)
    }

    /// The folder of a commit's files.
    pub fn snapshot(&self, commit: &str) -> PathBuf {
        self.root.join("snapshots").join(commit)
    }

    /// Where a file of a commit is, or would be.
    ///
    /// # Errors
    /// [`HubError::Unsafe`].
    pub fn file(&self, commit: &str, name: &str) -> Result<PathBuf, HubError> {
        match is_inside(name) {
            true => Ok(self.snapshot(commit).join(name)),
            false => Err(HubError::Unsafe { what: "a file the name", name: name.to_owned() }),
        }
    }

    /// Where the bytes of an etag are, or would be.
    ///
    /// # Errors
    /// [`HubError::Unsafe`].
    pub fn blob(&self, etag: &str) -> Result<PathBuf, HubError> {
        match is_name(etag) {
            true => Ok(self.root.join("blobs").join(etag)),
            false => Err(HubError::Unsafe { what: "a file the etag", name: etag.to_owned() }),
        }
    }

    /// All names of a commit's files, if they were noted.
    pub fn names(&self, commit: &str) -> Option<Vec<String>> {
        serde_json::from_slice(&fs::read(self.root.join(".files").join(commit)).ok()?).ok()
    }

    /// The names of those files of a commit that are here.
    pub fn names_here(&self, commit: &str) -> Vec<String> {
        let mut names = Vec::new();
        walk(&self.snapshot(commit), "", &mut names);
        names
    }

    /// Notes what a revision stands for, and which files there are.
    pub fn note(&self, revision: &str, commit: &str, names: &[String]) -> Result<(), HubError> {
        let list = serde_json::to_vec(names).expect("strings are written as JSON");
        write(&self.root.join(".files").join(commit), &list)?;
        let snapshot = self.snapshot(commit);
        fs::create_dir_all(&snapshot).map_err(at(&snapshot))?;
        match is_commit(revision) {
            true => Ok(()),
            false => write(&self.root.join("refs").join(revision), commit.as_bytes()),
        }
    }

    /// Makes a file of a commit of a blob that is whole.
    pub fn link(&self, blob: &Path, file: &Path) -> Result<(), HubError> {
        make_parent(file)?;
        if file.symlink_metadata().is_ok() {
            fs::remove_file(file).map_err(at(file))?;
        }
        let up = file.strip_prefix(&self.root).map_or(0, |path| path.components().count() - 1);
        let blob_name = blob.strip_prefix(&self.root).unwrap_or(blob);
        let target: PathBuf = std::iter::repeat_n(Path::new(".."), up).chain([blob_name]).collect();
        // Where there are no links, the bytes are kept under this name alone.
        symlink(&target, file).or_else(|_| fs::rename(blob, file)).map_err(at(file))
    }

    /// Waits until nobody else fetches an etag, and keeps others waiting as long as the file returned is open.
    ///
    /// Calls `busy` if it has to wait.
    pub fn lock(&self, etag: &str, busy: impl FnOnce()) -> Result<File, HubError> {
        let path = self.locks.join(format!("{etag}.lock"));
        make_parent(&path)?;
        let file = File::options().create(true).append(true).open(&path).map_err(at(&path))?;
        if FileExt::try_lock(&file).is_err() {
            busy();
            FileExt::lock(&file).map_err(at(&path))?;
        }
        Ok(file)
    }
}

#[cfg(unix)]
fn symlink(target: &Path, link: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(target, link)
}

#[cfg(not(unix))]
fn symlink(_: &Path, _: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// The files of a folder and those below, but for links to nothing.
fn walk(folder: &Path, prefix: &str, names: &mut Vec<String>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let Ok(name) = entry.file_name().into_string() else { continue };
        let (path, name) = (entry.path(), format!("{prefix}{name}"));
        match fs::metadata(&path) {
            Ok(metadata) if metadata.is_file() => names.push(name),
            Ok(_) if entry.file_type().is_ok_and(|kind| kind.is_dir()) => walk(&path, &format!("{name}/"), names),
            _ => {}
        }
    }
}

/// Writes a small file, whole or not at all.
fn write(path: &Path, bytes: &[u8]) -> Result<(), HubError> {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    make_parent(path)?;
    let new = beside(path, &format!(".{}-{}.new", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed)));
    fs::write(&new, bytes).and_then(|()| fs::rename(&new, path)).map_err(at(path))
}

/// The path with something after its last name.
pub fn beside(path: &Path, more: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(more);
    name.into()
}

pub fn make_parent(path: &Path) -> Result<(), HubError> {
    path.parent().map_or(Ok(()), |folder| fs::create_dir_all(folder).map_err(at(folder)))
}

/// Turns an error of the operating system into one that names the path.
pub fn at(path: &Path) -> impl Fn(io::Error) -> HubError {
    move |source| HubError::Cache { path: path.to_owned(), source }
}
