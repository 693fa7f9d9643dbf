//! The shape of a decoder, as a file's metadata gives it.
//!
//! All architectures are one decoder with parts that are there or not and numbers that differ; [`Architecture`] says which
//! parts, [`Config`] holds the numbers. They are read from a GGUF file's metadata (`gguf.rs`) or from the `config.json`
//! beside safetensors files (`json.rs`).

mod architecture;
mod gguf;
mod json;

pub use architecture::Architecture;
pub(crate) use architecture::Gate;

use crate::ModelError;

/// The numbers that define a decoder. All sizes are positive.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Config {
    /// Which parts the decoder has.
    pub architecture: Architecture,
    /// Number of token ids V that the embedding and the LM head have.
    pub vocabulary: usize,
    /// The most tokens a sequence may have.
    pub context: usize,
    /// Length D of a hidden state.
    pub dim: usize,
    /// Number of query heads.
    pub heads: usize,
    /// Number of key and value heads; each serves `heads / kv_heads` query heads.
    pub kv_heads: usize,
    /// Length of one head.
    pub head_dim: usize,
    /// Width of the feed-forward layer.
    pub feed_forward: usize,
    /// Added to the mean square of a normalisation.
    pub norm_epsilon: f32,
    /// What a token's embedding is multiplied by.
    pub embedding_scale: f32,
    /// What the product of a query and a key is multiplied by.
    pub attention_scale: f32,
    /// How many elements at the front of each head are rotated.
    pub rope_dim: usize,
    /// Which of them are rotated together.
    pub rope_pairing: Pairing,
    /// The kinds of attention there are.
    pub attentions: Vec<Attention>,
    /// For each layer, the index of its kind of attention.
    pub layers: Vec<usize>,
}

/// How the layers of one kind see the text before a token.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Attention {
    /// Base of the rotary position embedding's wavelengths.
    pub rope_base: f64,
    /// How its wavelengths are stretched.
    pub rope_scaling: RopeScaling,
    /// How many tokens are seen, the token itself included; None where all are.
    pub window: Option<usize>,
}

/// How the wavelengths of a rotary position embedding are stretched for a context longer than that of the training.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum RopeScaling {
    /// Not at all.
    #[default]
    None,
    /// All by one factor.
    Linear(f64),
    /// Llama 3: wavelengths above `context / low` by `factor`, those below `context / high` not at all, and a smooth
    /// passage between.
    Llama3 {
        /// The stretch of long wavelengths.
        factor: f64,
        /// Turns within the context below which a pair is stretched wholly.
        low: f64,
        /// Turns within the context above which a pair is left alone.
        high: f64,
        /// The context of the training.
        context: f64,
    },
}

/// Which elements of a head a rotary position embedding turns together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pairing {
    /// (0, 1), (2, 3), …
    Neighbours,
    /// (0, n / 2), (1, n / 2 + 1), …
    Halves,
}

impl Config {
    /// Length of all query heads together.
    pub(crate) fn query_dim(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Length of all key (or value) heads together.
    pub(crate) fn kv_dim(&self) -> usize {
        self.kv_heads * self.head_dim
    }

    /// The kind of attention of a layer.
    pub(crate) fn attention(&self, layer: usize) -> &Attention {
        &self.attentions[self.layers[layer]]
    }
}

/// Names the metadata entry whose value no model can have.
fn require(key: &str, found: impl ToString, holds: bool, rule: &str) -> Result<(), ModelError> {
    if holds {
        return Ok(());
    }
    Err(ModelError::Key { key: key.to_owned(), found: found.to_string(), rule: rule.to_owned() })
}

/// Largest values of sizes, far above any model's, so that no product of them overflows.
mod most {
    pub(super) const VOCABULARY: usize = 1 << 24;
    pub(super) const CONTEXT: usize = 1 << 30;
    pub(super) const DIM: usize = 1 << 20;
    pub(super) const LAYERS: usize = 1 << 10;
    pub(super) const HEADS: usize = 1 << 12;
    pub(super) const HEAD_DIM: usize = 1 << 16;
}

impl Config {
    /// Checks what the sizes must have in common; `keys` names them: heads of keys and values, and rotated elements.
    fn check(self, [kv_heads, rope_dim]: [&str; 2]) -> Result<Self, ModelError> {
        let divides = self.heads.is_multiple_of(self.kv_heads);
        require(kv_heads, self.kv_heads, divides, &format!("a divisor of the {} heads", self.heads))?;
        let fits = self.rope_dim <= self.head_dim && self.rope_dim.is_multiple_of(2);
        require(rope_dim, self.rope_dim, fits, &format!("even, at most one head ({})", self.head_dim))?;
        Ok(self)
    }
}

/// Layers of which every `period`-th sees the whole text (kind 1) and the others a window (kind 0).
fn alternating(layers: usize, period: usize) -> Vec<usize> {
    (1..=layers).map(|layer| usize::from(layer.is_multiple_of(period))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_layer_of_a_period_sees_everything() {
        assert_eq!(alternating(7, 3), [0, 0, 1, 0, 0, 1, 0]);
        assert_eq!(alternating(3, 1), [1, 1, 1]);
    }
}
