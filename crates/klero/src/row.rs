//! What one row asks and what it gets.

use crate::edits::Edits;
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
    /// What changes the logits before temperature.
    pub edits: Edits<'a>,
    /// Ids whose logprobs are reported whatever is drawn.
    pub ids: &'a [u32],
}

impl<'a> Row<'a> {
    /// An ordinary row.
    pub fn new(sampling: Sampling, position: u64) -> Self {
        let edits = Edits::default();
        Self { sampling, position, stream: Stream::Target, vocabulary: None, draft: None, edits, ids: &[] }
    }

    /// The same row with a draft to verify.
    pub fn with_draft(self, draft: Draft<'a>) -> Self {
        Self { draft: Some(draft), ..self }
    }

    /// The same row with other edits of its logits.
    pub fn with_edits(self, edits: Edits<'a>) -> Self {
        Self { edits, ..self }
    }

    /// The same row, asked for the logprobs of these ids.
    pub fn with_ids(self, ids: &'a [u32]) -> Self {
        Self { ids, ..self }
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

/// A drafted token, and how it is to be verified.
#[derive(Clone, Copy, Debug)]
pub struct Draft<'a> {
    /// The token; −1 for none, which is never accepted.
    pub token: i64,
    /// How the token came about.
    pub proposal: Proposal<'a>,
}

/// How a drafted token came about, which decides how it is verified.
#[derive(Clone, Copy, Debug)]
pub enum Proposal<'a> {
    /// It was drawn from a distribution: accepted or replaced by rejection, so that what is emitted follows the target.
    Distribution {
        /// The draft's logprob of every id of the row's valid vocabulary; −∞ where it had none.
        logprobs: &'a [f32],
        /// δ: the residual is target − draft · e^(−δ). 0 is exact; any δ costs at most δ of exactness.
        delta: f64,
    },
    /// It is a guess without a distribution, as from an n-gram: one that holds nothing but the token.
    OneHot {
        /// δ, as above.
        delta: f64,
    },
    /// It was drawn with the noise of this very row (same seed, position and stream): accepted if it is the token that
    /// the target draws. So the text is the same with and without drafts, whatever they are.
    Coupled,
}

impl<'a> Draft<'a> {
    /// DeepInfer's δ, the default.
    pub const DELTA: f64 = 5e-5;

    /// A token drawn from a distribution, with the default δ.
    pub fn new(token: i64, logprobs: &'a [f32]) -> Self {
        Self { token, proposal: Proposal::Distribution { logprobs, delta: Self::DELTA } }
    }

    /// A token without a distribution, with the default δ.
    pub fn one_hot(token: i64) -> Self {
        Self { token, proposal: Proposal::OneHot { delta: Self::DELTA } }
    }

    /// A token drawn with the noise of its row.
    pub fn coupled(token: i64) -> Self {
        Self { token, proposal: Proposal::Coupled }
    }

    /// The same draft with another δ, where its proposal has one.
    #[must_use]
    pub fn with_delta(self, delta: f64) -> Self {
        let proposal = match self.proposal {
            Proposal::Distribution { logprobs, .. } => Proposal::Distribution { logprobs, delta },
            Proposal::OneHot { .. } => Proposal::OneHot { delta },
            Proposal::Coupled => Proposal::Coupled,
        };
        Self { proposal, ..self }
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
    /// The logprobs of the row's `ids`, in their order; −∞ for one that was removed.
    pub asked: Vec<TokenLogprob>,
    /// The kept ids in vocabulary order, where asked for.
    pub kept_ids: Option<Vec<u32>>,
    /// How sure the processed distribution is, where asked for.
    pub confidence: Option<Confidence>,
    /// The best kept tokens, at most `top_logprobs`, by logprob descending, then id.
    pub top: Vec<TokenLogprob>,
    /// The seed used.
    pub seed: u64,
    /// The position.
    pub position: u64,
    /// What became of the draft, for a row that had one.
    pub verification: Option<Verification>,
}

/// How sure a processed distribution p is: what parallel decoders choose their tokens by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Confidence {
    /// −Σ p ln p over the kept ids, in nats.
    pub entropy: f64,
    /// The greatest p.
    pub largest: f64,
    /// The sum of the p of all kept ids whose x is smaller than the drawn token's.
    pub smaller: f64,
}

/// A token with its logprobs.
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
    /// The probability with which a token drawn from the draft's distribution is accepted; for a coupled draft the
    /// target's probability of its token.
    pub accept_probability: f64,
    /// The draft's logprob of its token; None for no token or no distribution.
    pub draft_logprob: Option<f64>,
}
