//! What is drawn, in words that every peer understands.

use klero::{Row, SamplingParams};
use serde::Serialize;
use std::path::PathBuf;

/// One draw: a row of logits and its parameters. Off is what [`SamplingParams`] calls off.
#[derive(Clone, Debug, Serialize)]
pub struct Case {
    /// "draw": what is asked of a peer.
    pub kind: &'static str,
    /// Its name in tables.
    pub name: String,
    /// The file with the row, f32, little-endian.
    pub input: PathBuf,
    pub vocabulary: usize,
    pub temperature: f64,
    pub top_k: i64,
    pub top_p: f64,
    pub min_p: f64,
    pub logprobs: usize,
    /// How long a peer may measure, in milliseconds.
    pub budget_ms: u64,
}

/// Temperature, top-k, top-p, min-p.
pub type Filters = (f64, i64, f64, f64);

/// Temperature 0.8 with the filters people use, and greedy.
pub const FILTERS: [(&str, Filters); 6] = [
    ("no filter", (0.8, -1, 1.0, 0.0)),
    ("top-k 50", (0.8, 50, 1.0, 0.0)),
    ("top-p 0.95", (0.8, -1, 0.95, 0.0)),
    ("top-k 50, top-p 0.95", (0.8, 50, 0.95, 0.0)),
    ("min-p 0.05", (0.8, -1, 1.0, 0.05)),
    ("greedy", (0.0, -1, 1.0, 0.0)),
];

impl Case {
    /// A draw without logprobs.
    pub fn new(name: String, vocabulary: usize, (temperature, top_k, top_p, min_p): Filters) -> Self {
        let (kind, input, logprobs, budget_ms) = ("draw", PathBuf::new(), 0, 0);
        Self { kind, name, input, vocabulary, temperature, top_k, top_p, min_p, logprobs, budget_ms }
    }

    /// The row that Klero draws, at a position of its own.
    pub fn row(&self, position: u64) -> Row<'static> {
        let params = SamplingParams {
            temperature: self.temperature,
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            top_logprobs: self.logprobs,
            seed: Some(1),
            ..Default::default()
        };
        Row::new(params.check().expect("the parameters are sound"), position)
    }
}
