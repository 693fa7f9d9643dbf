//! What tells the architectures apart.

use crate::ModelError;
use crate::config::Pairing;
use std::fmt;

/// A family of decoders. All have an embedding, layers of attention and a gated feed-forward part, each after a norm, and
/// a last norm; they differ in what is listed here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Architecture {
    /// Llama 2 and 3, SmolLM2 and many others.
    Llama,
    /// Qwen 2 and 2.5: queries, keys and values have biases.
    Qwen2,
    /// Qwen 3: a norm over each query and key head.
    Qwen3,
    /// Gemma 3, its text part: norms over heads and after each half layer, a GELU gate, sliding windows.
    Gemma3,
}

use Architecture::{Gemma3, Llama, Qwen2, Qwen3};

impl Architecture {
    /// All of them.
    pub const ALL: [Self; 4] = [Llama, Qwen2, Qwen3, Gemma3];

    /// The name in a GGUF file's `general.architecture`.
    pub(crate) fn gguf_name(self) -> &'static str {
        match self {
            Llama => "llama",
            Qwen2 => "qwen2",
            Qwen3 => "qwen3",
            Gemma3 => "gemma3",
        }
    }

    /// The name in a `config.json`'s `model_type`.
    pub(crate) fn json_name(self) -> &'static str {
        match self {
            Gemma3 => "gemma3_text",
            other => other.gguf_name(),
        }
    }

    /// Finds an architecture by one of its names.
    pub(crate) fn named(name: &str, names: fn(Self) -> &'static str) -> Result<Self, ModelError> {
        let unsupported = || {
            let supported = Self::ALL.map(names).join(", ");
            ModelError::Unsupported { what: "the architecture", found: name.to_owned(), supported }
        };
        Self::ALL.into_iter().find(|architecture| names(*architecture) == name).ok_or_else(unsupported)
    }

    /// Whether queries, keys and values have biases.
    pub(crate) fn has_biases(self) -> bool {
        self == Qwen2
    }

    /// Whether every query and key head is normalised.
    pub(crate) fn has_head_norms(self) -> bool {
        matches!(self, Qwen3 | Gemma3)
    }

    /// Whether what a half layer adds is normalised first.
    pub(crate) fn has_post_norms(self) -> bool {
        self == Gemma3
    }

    /// The gate of the feed-forward part.
    pub(crate) fn gate(self) -> Gate {
        if self == Gemma3 { Gate::Gelu } else { Gate::Silu }
    }

    /// How GGUF files order the elements of queries and keys. The conversion permutes those of Llama.
    pub(crate) fn gguf_pairing(self) -> Pairing {
        if self == Llama { Pairing::Neighbours } else { Pairing::Halves }
    }

    /// What training frameworks subtract from the weights of norms before they store them, and GGUF files do not.
    pub(crate) fn norm_offset(self) -> f32 {
        if self == Gemma3 { 1.0 } else { 0.0 }
    }

    /// What a token's embedding is multiplied by.
    pub(crate) fn embedding_scale(self, dim: usize) -> f32 {
        if self == Gemma3 { (dim as f32).sqrt() } else { 1.0 }
    }
}

impl fmt::Display for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(self.gguf_name())
    }
}

/// The function g in down · (g(gate · h) ⊙ up · h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gate {
    /// x · σ(x)
    Silu,
    /// x · ½ (1 + tanh(√(2/π) (x + 0.044715 x³))), the usual approximation of x · Φ(x)
    Gelu,
}
