//! klero
mod cpu;
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
mod row;
mod weights;

pub use error::{Error, Input, RowError};
pub use explain::{ExplainedToken, Explanation, Fate, Lot};
pub use head::FusedHead;
pub use logits::Logits;
pub use params::{Draw, GREEDY_TEMPERATURE, ParamError, Sampling, SamplingParams, parse_seed};
pub use row::{Draft, Outcome, Row, TokenLogprob, Verification};
pub use weights::{BlockQ8_0, Weights};

/// The largest vocabulary: an id must fit the 20 bits that stand beside a score.
pub const MAX_VOCABULARY: usize = 1 << 20;

/// The longest list of best tokens.
pub const MAX_TOP_LOGPROBS: usize = 1000;
