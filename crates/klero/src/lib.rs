//! klero
mod cpu;
mod error;
mod weights;

pub use error::{Error, Input, RowError};
pub use weights::{BlockQ8_0, Weights};

/// The largest vocabulary: an id must fit the 20 bits that stand beside a score.
pub const MAX_VOCABULARY: usize = 1 << 20;
