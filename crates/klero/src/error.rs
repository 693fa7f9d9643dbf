//! What can go wrong: with a call as a whole, or with one row of it.

use thiserror::Error;

/// A call whose arguments do not fit together; no row was drawn.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum Error {
    /// Lengths, strides or counts do not agree; the text names the value and the rule.
    #[error("shape: {0}")]
    Shape(String),
    /// The vocabulary is larger than the 2^20 ids a score can carry.
    #[error("vocabulary: {0} ids, must be at most {max}", max = crate::MAX_VOCABULARY)]
    Vocabulary(usize),
    /// The shards of a vocabulary do not fit together, or a message between them is damaged.
    #[error("shards: {0}")]
    Shards(String),
}

/// Why one row gave no token. The other rows of the call are not affected.
#[derive(Clone, Copy, Debug, Error, PartialEq)]
pub enum RowError {
    /// A logit is NaN; the lowest such id.
    #[error("row {row}: {input} {id} is NaN")]
    Nan {
        /// The row.
        row: usize,
        /// Which numbers were judged.
        input: Input,
        /// The lowest such id.
        id: usize,
    },
    /// A logit is +∞, or penalties, bias or 1/T made it so, or a draft logprob is greater than 1e-3; the lowest such id.
    #[error(
        "row {row}: {input} {id} is infinite or overflows (+∞, beyond f32 after penalties, bias or 1/T, or a logprob above 1e-3)"
    )]
    Infinite {
        /// The row.
        row: usize,
        /// Which numbers were judged.
        input: Input,
        /// The lowest such id.
        id: usize,
    },
    /// No finite number is left.
    #[error("row {row}: every {input} is −∞ or masked, so no token can be drawn")]
    Empty {
        /// The row.
        row: usize,
        /// Which numbers were judged.
        input: Input,
    },
    /// The row's valid vocabulary is wider than the logits.
    #[error("row {row}: vocabulary is {valid}, must be at most {width}, the width of the logits")]
    Vocabulary {
        /// The row.
        row: usize,
        /// The bound asked for.
        valid: usize,
        /// The width there is.
        width: usize,
    },
    /// An id does not belong to the row's vocabulary.
    #[error("row {row}: {field} holds id {id}, must be below {valid}, the row's vocabulary")]
    Id {
        /// The row.
        row: usize,
        /// What holds the id.
        field: &'static str,
        /// The id.
        id: u32,
        /// The row's valid vocabulary.
        valid: usize,
    },
    /// A mask of allowed ids does not cover the vocabulary.
    #[error("row {row}: allowed has {found} words of 32 bits, must be at least {needed} for a vocabulary of {valid}")]
    Mask {
        /// The row.
        row: usize,
        /// The words given.
        found: usize,
        /// The words it takes.
        needed: usize,
        /// The row's valid vocabulary.
        valid: usize,
    },
    /// A draft does not fit its row.
    #[error("row {row}: draft_token is {token}, must be −1 (none) or an id below {valid}")]
    DraftToken {
        /// The row.
        row: usize,
        /// The token given.
        token: i64,
        /// The row's valid vocabulary.
        valid: usize,
    },
    /// A draft's logprobs do not cover the vocabulary.
    #[error("row {row}: draft_logprobs has length {found}, must be at least {valid}, the row's vocabulary")]
    DraftLength {
        /// The row.
        row: usize,
        /// The length given.
        found: usize,
        /// The row's valid vocabulary.
        valid: usize,
    },
    /// A draft's δ is not a finite number ≥ 0.
    #[error("row {row}: delta is {delta}, must be finite and at least 0")]
    DraftDelta {
        /// The row.
        row: usize,
        /// The value given.
        delta: f64,
    },
}

impl RowError {
    /// The same error, said of another row.
    #[must_use]
    pub fn with_row(mut self, to: usize) -> Self {
        match &mut self {
            Self::Nan { row, .. }
            | Self::Infinite { row, .. }
            | Self::Empty { row, .. }
            | Self::Vocabulary { row, .. }
            | Self::Id { row, .. }
            | Self::Mask { row, .. }
            | Self::DraftToken { row, .. }
            | Self::DraftLength { row, .. }
            | Self::DraftDelta { row, .. } => *row = to,
        }
        self
    }

    /// The row's status in one word: `nan`, `infinite`, `empty`, or `invalid` for arguments that do not fit.
    pub fn status(&self) -> &'static str {
        match self {
            Self::Nan { .. } => "nan",
            Self::Infinite { .. } => "infinite",
            Self::Empty { .. } => "empty",
            _ => "invalid",
        }
    }
}

/// The numbers of a row that were judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// The model's logits.
    Logit,
    /// The logprobs of the draft's distribution.
    DraftLogprob,
}

impl std::fmt::Display for Input {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Logit => "logit",
            Self::DraftLogprob => "draft logprob",
        })
    }
}
