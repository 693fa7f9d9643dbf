//! What can go wrong between a model file and its hidden states.

use std::path::PathBuf;
use thiserror::Error;

/// A model that cannot be read, or a call that does not fit it.
#[derive(Debug, Error)]
pub enum ModelError {
    /// The file cannot be opened or read.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The operating system's reason.
        source: std::io::Error,
    },
    /// The bytes are not a whole, well-formed file.
    #[error("not a usable model file: {0}")]
    Format(String),
    /// A metadata entry is absent.
    #[error("the file has no metadata `{0}`")]
    MissingKey(String),
    /// A metadata entry has a value that no model can have.
    #[error("metadata `{key}` is {found}, must be {rule}")]
    Key {
        /// The entry.
        key: String,
        /// Its value.
        found: String,
        /// What is required.
        rule: String,
    },
    /// The file is sound but asks for something that is not built.
    #[error("{what} `{found}` is not supported; supported: {supported}")]
    Unsupported {
        /// What kind of thing: the architecture, the tokenizer, …
        what: &'static str,
        /// What the file asks for.
        found: String,
        /// What there is.
        supported: String,
    },
    /// A tensor that the architecture needs is absent.
    #[error("the file has no tensor `{0}`")]
    MissingTensor(String),
    /// A tensor whose shape contradicts the metadata.
    #[error("tensor `{name}` has shape {found:?}, must be {expected:?}")]
    TensorShape {
        /// The tensor.
        name: String,
        /// Its shape, rows first.
        found: Vec<usize>,
        /// The shape that the metadata asks for.
        expected: Vec<usize>,
    },
    /// The vocabulary or the merges contradict themselves.
    #[error("tokenizer: {0}")]
    Tokenizer(String),
    /// The file does not say how a conversation is written.
    #[error("the model has no chat template: it was not made for conversations")]
    NoChatTemplate,
    /// The chat template is broken, asks for too much, or refuses the messages.
    #[error("chat template: {0}")]
    ChatTemplate(String),
    /// A token id outside the vocabulary.
    #[error("token {token} is outside the vocabulary of {vocabulary} ids")]
    Token {
        /// The id.
        token: u32,
        /// Number of ids.
        vocabulary: usize,
    },
    /// A sequence would grow beyond what the model was made for.
    #[error("{length} tokens exceed the model's context of {limit}")]
    ContextFull {
        /// Length the sequence would have.
        length: usize,
        /// The model's context length.
        limit: usize,
    },
    /// A sequence that another model made.
    #[error("the sequence was made by a model of another shape")]
    ForeignSequence,
    /// The default model is not in the cache folder, or is not the file it should be.
    #[error("the default model {}: {reason}; ./test and ./demo fetch it (scripts/fetch-model)", path.display())]
    DefaultModel {
        /// Where it is looked for.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A matrix whose parts do not fit together.
    #[error(transparent)]
    Matrix(#[from] klero::Error),
}

impl ModelError {
    pub(crate) fn format(error: impl ToString) -> Self {
        Self::Format(error.to_string())
    }
}
