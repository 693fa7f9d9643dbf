//! JSON files beside a model, read key by key so that an error can name the key.

use crate::ModelError;
use serde_json::{Map, Value};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Bytes that such a file may have; tokenizers of 2^18 tokens have some thirty million.
const MAX_BYTES: u64 = 1 << 28;

/// A JSON object.
#[derive(Clone, Debug, Default)]
pub(crate) struct Json(Map<String, Value>);

impl Json {
    /// Reads a file that must be there.
    pub(crate) fn read(path: &Path) -> Result<Self, ModelError> {
        Self::parse(path, &bytes(path)?)
    }

    /// Reads a file that may be absent.
    pub(crate) fn read_if_there(path: &Path) -> Result<Self, ModelError> {
        if path.exists() { Self::read(path) } else { Ok(Self::default()) }
    }

    fn parse(path: &Path, bytes: &[u8]) -> Result<Self, ModelError> {
        let object = serde_json::from_slice(bytes).map(Self);
        object.map_err(|error| ModelError::Format(format!("{}: {error}", path.display())))
    }

    /// An entry, if it is there and not null.
    pub(crate) fn value(&self, key: &str) -> Option<&Value> {
        self.0.get(key).filter(|value| !value.is_null())
    }

    /// A text, if it is there.
    pub(crate) fn text(&self, key: &str) -> Result<Option<&str>, ModelError> {
        self.typed(key, "a text", Value::as_str)
    }

    /// A list of texts, if it is there.
    pub(crate) fn texts(&self, key: &str) -> Result<Option<Vec<&str>>, ModelError> {
        self.typed(key, "a list of texts", |value| value.as_array()?.iter().map(Value::as_str).collect())
    }

    /// A non-negative integer, if it is there.
    pub(crate) fn count(&self, key: &str) -> Result<Option<usize>, ModelError> {
        self.typed(key, "an integer ≥ 0", |value| usize::try_from(value.as_u64()?).ok())
    }

    /// A number, if it is there.
    pub(crate) fn number(&self, key: &str) -> Result<Option<f64>, ModelError> {
        self.typed(key, "a number", Value::as_f64)
    }

    /// A flag, if it is there.
    pub(crate) fn flag(&self, key: &str) -> Result<Option<bool>, ModelError> {
        self.typed(key, "true or false", Value::as_bool)
    }

    /// An object, if it is there.
    pub(crate) fn object(&self, key: &str) -> Result<Option<Self>, ModelError> {
        self.typed(key, "an object", |value| value.as_object().cloned().map(Self))
    }

    fn typed<'v, T>(
        &'v self,
        key: &str,
        rule: &str,
        read: impl FnOnce(&'v Value) -> Option<T>,
    ) -> Result<Option<T>, ModelError> {
        let Some(value) = self.value(key) else { return Ok(None) };
        let wrong = || {
            let found: String = value.to_string().chars().take(60).collect();
            ModelError::Key { key: key.to_owned(), found, rule: rule.to_owned() }
        };
        read(value).map(Some).ok_or_else(wrong)
    }
}

/// The bytes of a small file.
pub(crate) fn bytes(path: &Path) -> Result<Vec<u8>, ModelError> {
    let io = |source| ModelError::Io { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    File::open(path).map_err(io)?.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(io)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(ModelError::Format(format!("{}: more than {MAX_BYTES} bytes", path.display())));
    }
    Ok(bytes)
}
