//! Klero draws the next token of a language model.
//!
//! From final hidden states and LM-head weights ([`FusedHead`]), or from ready logits ([`Logits`]), and each row's
//! parameters, it returns the token: exactly from the requested distribution, reproducible from `(seed, position)`
//! alone, and the same whatever the batch, the thread count, the tile and the shards.
//!
//! ```
//! use klero::{FusedHead, Row, SamplingParams, Weights};
//!
//! // A vocabulary of three tokens, hidden states of two numbers.
//! let weights = Weights::f32(3, 2, vec![1.0, 0.0, 0.0, 1.0, 0.5, 0.5])?;
//! let head = FusedHead::new(&weights)?;
//!
//! let params = SamplingParams { temperature: 0.8, top_p: 0.95, seed: Some(42), ..Default::default() };
//! let row = Row::new(params.check()?, 7); // seven tokens stand before the new one
//!
//! for outcome in head.draw(&[0.3, 1.7], &[row])? {
//!     let outcome = outcome?; // a bad row is its own error, never its neighbours'
//!     println!("token {} with logprob {:.3}, seed {}", outcome.token, outcome.logprob, outcome.seed);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! What exactly is computed is written down in `docs/law.md`; how the code is laid out, in `docs/architecture.md`. In
//! short:
//!
//! - Penalties, bias and masks ([`Edits`], [`Policy`]); then temperature, top-p on the full distribution, top-k and min-p
//!   ([`SamplingParams`]).
//! - Two exact draws: Gumbel noise keyed by (seed, position, id), or the inverse CDF ([`Draw`]).
//! - Every sum that decides is a sum of integers, and every exponential and logarithm is the library's own ([`math`]), so
//!   equal logits give equal tokens everywhere.
//! - Processed and raw logprobs, the kept count and the log-normaliser come with the token ([`Outcome`]).
//! - Drafted tokens are verified by rejection, or share the row's noise ([`Draft`], [`Speculation`]).
//! - From one set of rows come tokens, outcomes, samples, prompt logprobs ([`Batch`]); a vocabulary may be cut into shards,
//!   which are merged to the same bits ([`ShardStep`]).
//! - One draw can be taken apart for a person ([`Batch::explain`]).
//!
//! Work runs on the current rayon pool; `pool.install(|| head.draw(…))` chooses another.

mod batch;
mod cpu;
#[cfg(feature = "cuda")]
pub mod cuda;
mod edits;
mod element;
mod engine;
mod error;
mod explain;
pub mod hash;
mod head;
mod logits;
mod mass;
pub mod math;
pub mod noise;
mod order;
mod params;
pub mod position;
mod row;
mod shard;
mod speculation;
mod weights;

pub use batch::{Batch, PromptLogprob};
pub use cpu::instruction_sets;
pub use edits::{Edits, History, LogitBias, Policy};
pub use element::Element;
pub use error::{Error, Input, RowError};
pub use explain::{Cut, ExplainedToken, Explanation, Fate, Lot};
pub use head::FusedHead;
pub use logits::Logits;
pub use params::{Draw, FilterOrder, GREEDY_TEMPERATURE, ParamError, Sampling, SamplingParams, parse_seed};
pub use row::{Confidence, Draft, Outcome, Proposal, Row, TokenLogprob, Verification};
pub use shard::{Shard, ShardDraw, ShardStep};
pub use speculation::{Proposed, Speculated, Speculation};
pub use weights::{BlockQ4_0, BlockQ4K, BlockQ5K, BlockQ6K, BlockQ8_0, Weights};

/// The largest vocabulary: an id must fit the 20 bits that stand beside a score.
pub const MAX_VOCABULARY: usize = 1 << 20;

/// The longest list of best tokens.
pub const MAX_TOP_LOGPROBS: usize = 1000;
