//! The shape of a decoder from a GGUF file's metadata.

use super::{Attention, Config, RopeScaling, alternating, most, require};
use crate::ModelError;
use crate::config::Architecture;
use crate::files::Gguf;

impl Config {
    /// Reads and checks the metadata.
    pub(crate) fn from_gguf(gguf: &Gguf) -> Result<Self, ModelError> {
        let name = gguf.text("general.architecture")?;
        let name = name.ok_or_else(|| ModelError::MissingKey("general.architecture".to_owned()))?;
        let architecture = Architecture::named(name, Architecture::gguf_name)?;
        let keys = Keys { gguf, prefix: name };
        let dim = keys.size("embedding_length", most::DIM)?;
        let layers = keys.size("block_count", most::LAYERS)?;
        let heads = keys.size("attention.head_count", most::HEADS)?;
        let head_dim = keys.size_or("attention.key_length", dim / heads, most::HEAD_DIM)?;
        let value_dim = keys.size_or("attention.value_length", head_dim, most::HEAD_DIM)?;
        keys.require("attention.value_length", value_dim, value_dim == head_dim, "equal to key_length")?;
        keys.absent_or_zero("final_logit_softcapping")?;
        keys.absent_or_zero("attn_logit_softcapping")?;
        let (attentions, layers) = keys.attentions(architecture, layers)?;
        Self {
            vocabulary: keys.vocabulary()?,
            context: keys.size("context_length", most::CONTEXT)?,
            dim,
            heads,
            kv_heads: keys.size_or("attention.head_count_kv", heads, most::HEADS)?,
            head_dim,
            feed_forward: keys.size("feed_forward_length", most::DIM)?,
            norm_epsilon: keys.positive("attention.layer_norm_rms_epsilon", None)? as f32,
            embedding_scale: architecture.embedding_scale(dim),
            attention_scale: attention_scale(architecture, layers.len(), dim / heads, head_dim),
            rope_dim: keys.size_or("rope.dimension_count", head_dim, most::HEAD_DIM)?,
            rope_pairing: architecture.gguf_pairing(),
            attentions,
            layers,
            architecture,
        }
        .check([&keys.key("attention.head_count_kv"), &keys.key("rope.dimension_count")])
    }
}

/// 1 / √(length of a head). Gemma 3's largest model, of 62 layers, was trained with dim / heads in place of the length,
/// which its files do not say.
fn attention_scale(architecture: Architecture, layers: usize, share: usize, head_dim: usize) -> f32 {
    let length = if architecture == Architecture::Gemma3 && layers == 62 { share } else { head_dim };
    1.0 / (length as f32).sqrt()
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

    /// The kinds of attention, and which of them each layer has.
    fn attentions(
        &self,
        architecture: Architecture,
        layers: usize,
    ) -> Result<(Vec<Attention>, Vec<usize>), ModelError> {
        let full = Attention {
            rope_base: self.positive("rope.freq_base", Some(10_000.0))?,
            rope_scaling: self.rope_scaling()?,
            window: None,
        };
        if architecture != Architecture::Gemma3 {
            return Ok((vec![full], vec![0; layers]));
        }
        let sliding = Attention {
            rope_base: self.positive("rope.freq_base_swa", Some(10_000.0))?,
            rope_scaling: RopeScaling::None,
            window: Some(self.size("attention.sliding_window", most::CONTEXT)?),
        };
        let period = self.size_or("attention.sliding_window_pattern", 6, most::LAYERS)?;
        Ok((vec![sliding, full], alternating(layers, period)))
    }

    fn rope_scaling(&self) -> Result<RopeScaling, ModelError> {
        match self.gguf.text(&self.key("rope.scaling.type"))?.unwrap_or("none") {
            "none" => Ok(RopeScaling::None),
            "linear" => Ok(RopeScaling::Linear(self.positive("rope.scaling.factor", None)?)),
            other => Err(ModelError::Unsupported {
                what: "the rope scaling",
                found: other.to_owned(),
                supported: "none, linear".to_owned(),
            }),
        }
    }

    fn vocabulary(&self) -> Result<usize, ModelError> {
        let name = "token_embd.weight";
        let rows = self.gguf.rows(name)?;
        require(name, rows, (1..=most::VOCABULARY).contains(&rows), &format!("1 to {} rows", most::VOCABULARY))?;
        Ok(rows)
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

    fn absent_or_zero(&self, name: &str) -> Result<(), ModelError> {
        let found = self.gguf.number(&self.key(name))?.unwrap_or(0.0);
        self.require(name, found, found == 0.0, "0 or absent: softcapping is not supported")
    }

    fn require(&self, name: &str, found: impl ToString, holds: bool, rule: &str) -> Result<(), ModelError> {
        require(&self.key(name), found, holds, rule)
    }
}
