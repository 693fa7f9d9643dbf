//! The name of a model on the hub.

use super::HubError;
use super::path::is_inside;
use std::fmt::{self, Display};
use std::str::FromStr;

/// A model on the hub: `owner/name`, `owner/name@revision`, `owner/name:FILE.gguf`, or all of it in this order.
///
/// What stands after the colon names one GGUF file of the repository: in full where it ends in `.gguf`, else by any part
/// of its name, such as `Q4_K_M`, in any case.
///
/// ```
/// use klero_models::hub::ModelId;
///
/// let id: ModelId = "HuggingFaceTB/SmolLM2-135M-Instruct@refs/pr/1".parse()?;
/// assert_eq!((id.repository(), id.revision(), id.file()), ("HuggingFaceTB/SmolLM2-135M-Instruct", "refs/pr/1", None));
///
/// let id = ModelId::parse("owner/name-GGUF:Q4_K_M")?;
/// assert_eq!((id.revision(), id.file()), ("main", Some("Q4_K_M")));
///
/// assert!(ModelId::parse("../name").is_err());
/// # Ok::<(), klero_models::hub::HubError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ModelId {
    repository: String,
    revision: Option<String>,
    file: Option<String>,
}

/// The branch that is meant where none is named.
const MAIN: &str = "main";

/// Bytes that the hub allows a repository's `owner/name`.
const LONGEST: usize = 96;

impl ModelId {
    /// Reads an id.
    ///
    /// # Errors
    /// [`HubError::Id`], which says what an id looks like.
    pub fn parse(text: &str) -> Result<Self, HubError> {
        let wrong = |rule| HubError::Id { id: text.to_owned(), rule };
        let (text, file) = match text.split_once(':') {
            Some((text, file)) => (text, Some(file)),
            None => (text, None),
        };
        let (repository, revision) = match text.split_once('@') {
            Some((repository, revision)) => (repository, Some(revision)),
            None => (text, None),
        };
        let words = repository.split_once('/').filter(|(owner, name)| is_word(owner) && is_word(name));
        if words.is_none() || repository.len() > LONGEST {
            return Err(wrong(
                "it must be OWNER/NAME[@REVISION][:FILE.gguf], with letters, digits, - . _ in both names",
            ));
        }
        if revision.is_some_and(|revision| !is_inside(revision)) {
            return Err(wrong("what stands after the @ must be a branch, a tag or a commit"));
        }
        if file.is_some_and(|file| !is_inside(file)) {
            return Err(wrong("what stands after the colon must be a file of the repository, or a part of its name"));
        }
        Ok(Self {
            repository: repository.to_owned(),
            revision: revision.map(str::to_owned),
            file: file.map(str::to_owned),
        })
    }

    /// `owner/name`.
    pub fn repository(&self) -> &str {
        &self.repository
    }

    /// The branch, tag or commit; `main` where the id names none.
    pub fn revision(&self) -> &str {
        self.revision.as_deref().unwrap_or(MAIN)
    }

    /// The GGUF file asked for, or a part of its name.
    pub fn file(&self) -> Option<&str> {
        self.file.as_deref()
    }
}

/// Half of a repository's name, by the hub's own rules.
fn is_word(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    let edge = |byte: Option<&u8>| byte.is_some_and(|byte| !b"-.".contains(byte));
    let bytes = text.as_bytes();
    bytes.iter().all(|byte| allowed(*byte))
        && edge(bytes.first())
        && edge(bytes.last())
        && !text.contains("--")
        && !text.contains("..")
}

impl FromStr for ModelId {
    type Err = HubError;

    fn from_str(text: &str) -> Result<Self, HubError> {
        Self::parse(text)
    }
}

impl Display for ModelId {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&self.repository)?;
        self.revision.iter().try_for_each(|revision| write!(f, "@{revision}"))?;
        self.file.iter().try_for_each(|file| write!(f, ":{file}"))
    }
}
