//! What one row asks and what it gets.

use crate::hash::Stream;
use crate::params::Sampling;

/// One row of a call: a token to draw.
///
/// Its result depends on its own logits and on what stands here, never on the rest of the batch.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    /// Checked parameters, with the seed.
    pub sampling: Sampling,
    /// t: the number of tokens before the new one. After a prefill of n tokens t = n; row j of a verification step t + j.
    pub position: u64,
    /// Which stream of random numbers.
    pub stream: Stream,
    /// The valid vocabulary: ids at or beyond it are padding and may hold anything. None: the width of the logits.
    pub vocabulary: Option<usize>,
    /// A draft token to verify instead of an ordinary draw.
    pub draft: Option<Draft<'a>>,
}

impl<'a> Row<'a> {
    /// An ordinary row.
    pub fn new(sampling: Sampling, position: u64) -> Self {
        Self { sampling, position, stream: Stream::Target, vocabulary: None, draft: None }
    }

    /// The same row with a draft to verify.
    pub fn with_draft(self, draft: Draft<'a>) -> Self {
        Self { draft: Some(draft), ..self }
    }

    /// The same row with a valid vocabulary narrower than the logits.
    pub fn with_vocabulary(self, vocabulary: usize) -> Self {
        Self { vocabulary: Some(vocabulary), ..self }
    }

    /// The same row on another stream.
    pub fn with_stream(self, stream: Stream) -> Self {
        Self { stream, ..self }
    }
}

/// A drafted token and the distribution it was drawn from.
#[derive(Clone, Copy, Debug)]
pub struct Draft<'a> {
    /// The token; −1 for none, which is never accepted.
    pub token: i64,
    /// The draft's logprob of every id of the row's valid vocabulary; −∞ where it had none.
    pub logprobs: &'a [f32],
    /// δ: the residual is target − draft · e^(−δ). 0 is exact; any δ costs at most δ of exactness.
    pub delta: f64,
}

impl<'a> Draft<'a> {
    /// DeepInfer's δ, the default.
    pub const DELTA: f64 = 5e-5;

    /// A draft with the default δ.
    pub fn new(token: i64, logprobs: &'a [f32]) -> Self {
        Self { token, logprobs, delta: Self::DELTA }
    }
}

/// The token of a row and what is known of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The token.
    pub token: u32,
    /// Its logprob in the processed distribution (after temperature and filters).
    pub logprob: f64,
    /// Its logprob in the model's own distribution, where asked for.
    pub raw_logprob: Option<f64>,
    /// How many ids the filters left.
    pub kept: usize,
    /// ln Σ exp(x) over all valid ids, before the filters.
    pub log_normalizer: f64,
    /// The best kept tokens, at most `top_logprobs`, by logprob descending, then id.
    pub top: Vec<TokenLogprob>,
    /// The seed used.
    pub seed: u64,
    /// The position.
    pub position: u64,
    /// What became of the draft, for a row that had one.
    pub verification: Option<Verification>,
}

/// A token in a list of the best.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TokenLogprob {
    /// The token.
    pub token: u32,
    /// Its logprob in the processed distribution.
    pub logprob: f64,
    /// Its logprob in the model's own distribution, where asked for.
    pub raw_logprob: Option<f64>,
}

/// What became of a draft.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Verification {
    /// Whether the draft is the token; if not, the token was drawn from the residual.
    pub accepted: bool,
    /// The probability with which a token drawn from the draft's distribution is accepted.
    pub accept_probability: f64,
    /// The draft's logprob of its token; None for no token.
    pub draft_logprob: Option<f64>,
}
