//! What changes a row's logits, as the command line and requests ask for it: owned, for rows to borrow from.

use klero::{Edits, History, LogitBias, MAX_VOCABULARY, ParamError};
use std::collections::BTreeSet;

/// Penalised text, bias and bans.
#[derive(Clone, Debug, Default)]
pub struct OwnedEdits {
    /// The text so far.
    pub history: History,
    /// What is added to single logits.
    pub bias: LogitBias,
    /// Ids that may not be drawn.
    pub banned: BTreeSet<u32>,
}

impl OwnedEdits {
    /// The same for a row.
    pub fn edits(&self) -> Edits<'_> {
        Edits { history: Some(&self.history), bias: Some(&self.bias), banned: Some(&self.banned), ..Edits::default() }
    }
}

/// Reads an id written as text.
///
/// # Errors
/// [`ParamError`] for what cannot be an id of any vocabulary.
pub fn parse_id(text: &str) -> Result<u32, ParamError> {
    let id = text.parse::<u32>().ok().filter(|id| (*id as usize) < MAX_VOCABULARY);
    id.ok_or_else(|| ParamError { field: "an id", value: text.to_owned(), rule: "an integer in 0..=1048575" })
}
