//! The shape of a decoder, as the file's metadata gives it.

use crate::ModelError;
use crate::gguf::Gguf;

/// Architectures whose bodies are built.
const SUPPORTED: &str = "llama";

/// The numbers that define a decoder. All sizes are positive.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Config {
    /// The architecture's name in the file.
    pub architecture: String,
    /// Number of token ids V that the embedding and the LM head have.
    pub vocabulary: usize,
    /// The most tokens a sequence may have.
    pub context: usize,
    /// Length D of a hidden state.
    pub dim: usize,
    /// Number of layers.
    pub layers: usize,
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
    /// Base of the rotary position embedding's wavelengths.
    pub rope_base: f64,
    /// How many elements at the front of each head are rotated.
    pub rope_dim: usize,
}

impl Config {
    /// Reads and checks the metadata.
    pub(crate) fn read(gguf: &Gguf) -> Result<Self, ModelError> {
        let architecture = gguf.text("general.architecture")?;
        let architecture =
            architecture.ok_or_else(|| ModelError::MissingKey("general.architecture".to_owned()))?.to_owned();
        if architecture != "llama" {
            let what = "the architecture";
            return Err(ModelError::Unsupported { what, found: architecture, supported: SUPPORTED });
        }
        let keys = Keys { gguf, prefix: &architecture };
        let dim = keys.size("embedding_length", 1 << 20)?;
        let heads = keys.size("attention.head_count", 1 << 12)?;
        let kv_heads = keys.size_or("attention.head_count_kv", heads, 1 << 12)?;
        let head_dim = keys.size_or("attention.key_length", dim / heads, 1 << 16)?;
        let rope_dim = keys.size_or("rope.dimension_count", head_dim, 1 << 16)?;
        keys.require("attention.head_count_kv", kv_heads, heads.is_multiple_of(kv_heads), "a divisor of head_count")?;
        keys.require(
            "rope.dimension_count",
            rope_dim,
            rope_dim <= head_dim && rope_dim % 2 == 0,
            "even, one head at most",
        )?;
        let value_dim = keys.size_or("attention.value_length", head_dim, 1 << 16)?;
        keys.require("attention.value_length", value_dim, value_dim == head_dim, "equal to key_length")?;
        keys.no_rope_scaling()?;
        Ok(Self {
            vocabulary: gguf.rows("token_embd.weight")?,
            context: keys.size("context_length", 1 << 30)?,
            dim,
            layers: keys.size("block_count", 1 << 10)?,
            heads,
            kv_heads,
            head_dim,
            feed_forward: keys.size("feed_forward_length", 1 << 20)?,
            norm_epsilon: keys.positive("attention.layer_norm_rms_epsilon", None)? as f32,
            rope_base: keys.positive("rope.freq_base", Some(10_000.0))?,
            rope_dim,
            architecture,
        })
    }

    /// Length of all query heads together.
    pub(crate) fn query_dim(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Length of all key (or value) heads together.
    pub(crate) fn kv_dim(&self) -> usize {
        self.kv_heads * self.head_dim
    }
}

/// Metadata entries below an architecture's name.
struct Keys<'f> {
    gguf: &'f Gguf,
    prefix: &'f str,
}

impl Keys<'_> {
    fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.prefix)
    }

    fn size(&self, name: &str, most: usize) -> Result<usize, ModelError> {
        let size = self.gguf.count(&self.key(name))?.ok_or_else(|| ModelError::MissingKey(self.key(name)))?;
        self.require(name, size, (1..=most).contains(&size), &format!("from 1 to {most}"))?;
        Ok(size)
    }

    fn size_or(&self, name: &str, default: usize, most: usize) -> Result<usize, ModelError> {
        match self.gguf.value(&self.key(name)) {
            Some(_) => self.size(name, most),
            None if default > 0 => Ok(default),
            None => Err(ModelError::MissingKey(self.key(name))),
        }
    }

    fn positive(&self, name: &str, default: Option<f64>) -> Result<f64, ModelError> {
        let number = self.gguf.number(&self.key(name))?.or(default);
        let number = number.ok_or_else(|| ModelError::MissingKey(self.key(name)))?;
        self.require(name, number, number.is_finite() && number > 0.0, "finite and positive")?;
        Ok(number)
    }

    fn no_rope_scaling(&self) -> Result<(), ModelError> {
        let scaling = self.gguf.text(&self.key("rope.scaling.type"))?.unwrap_or("none");
        if scaling == "none" {
            return Ok(());
        }
        Err(ModelError::Unsupported { what: "the rope scaling", found: scaling.to_owned(), supported: "none" })
    }

    fn require(&self, name: &str, found: impl ToString, holds: bool, rule: &str) -> Result<(), ModelError> {
        if holds {
            return Ok(());
        }
        Err(ModelError::Key { key: self.key(name), found: found.to_string(), rule: rule.to_owned() })
    }
}
