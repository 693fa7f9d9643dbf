//! The decoder's weights, layer by layer. What they compute is in `pass.rs`.

use crate::gguf::Gguf;
use crate::rope::Rope;
use crate::{Config, ModelError};
use klero::Weights;
use rayon::prelude::*;

/// The layers of a model and its last norm, without its embedding and head.
pub(crate) struct Decoder {
    pub(crate) layers: Vec<Layer>,
    pub(crate) norm: Vec<f32>,
    pub(crate) rope: Rope,
}

/// One layer. Matrices that multiply the same row are kept as one.
pub(crate) struct Layer {
    pub(crate) attention_norm: Vec<f32>,
    /// Queries, keys and values.
    pub(crate) qkv: Weights<'static>,
    pub(crate) output: Weights<'static>,
    pub(crate) feed_forward_norm: Vec<f32>,
    /// The gate and what it gates.
    pub(crate) gate_up: Weights<'static>,
    pub(crate) down: Weights<'static>,
}

const LAST_NORM: &str = "output_norm.weight";
const ROPE_FACTORS: &str = "rope_freqs.weight";
/// The parts of a layer, as they are named in a file.
const PARTS: [&str; 9] =
    ["attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_norm", "ffn_gate", "ffn_up", "ffn_down"];

impl Decoder {
    /// Loads all layers, in parallel.
    pub(crate) fn load(gguf: &Gguf, config: &Config) -> Result<Self, ModelError> {
        let factors = match gguf.has(ROPE_FACTORS) {
            true => Some(gguf.vector(ROPE_FACTORS, config.rope_dim / 2)?),
            false => None,
        };
        let layer = |l| Layer::load(gguf, config, l);
        Ok(Self {
            layers: (0..config.layers).into_par_iter().map(layer).collect::<Result<_, _>>()?,
            norm: gguf.vector(LAST_NORM, config.dim)?,
            rope: Rope::new(config.rope_base, config.rope_dim, factors.as_deref()),
        })
    }

    /// Whether the decoder reads a tensor. One that it would pass over (a bias, an expert) makes another model of the
    /// file.
    pub(crate) fn reads(tensor: &str, config: &Config) -> bool {
        let Some((layer, part)) = tensor.strip_prefix("blk.").and_then(|rest| rest.split_once('.')) else {
            return [LAST_NORM, ROPE_FACTORS].contains(&tensor);
        };
        let known = part.strip_suffix(".weight").is_some_and(|part| PARTS.contains(&part));
        known && layer.parse().is_ok_and(|layer: usize| layer < config.layers)
    }
}

impl Layer {
    fn load(gguf: &Gguf, config: &Config, layer: usize) -> Result<Self, ModelError> {
        let [attn_norm, q, k, v, output, ffn_norm, gate, up, down] =
            PARTS.map(|part| format!("blk.{layer}.{part}.weight"));
        let (dim, query_dim, kv_dim, wide) = (config.dim, config.query_dim(), config.kv_dim(), config.feed_forward);
        Ok(Self {
            attention_norm: gguf.vector(&attn_norm, dim)?,
            qkv: gguf.matrix(&[(&q, query_dim), (&k, kv_dim), (&v, kv_dim)], dim)?,
            output: gguf.matrix(&[(&output, dim)], query_dim)?,
            feed_forward_norm: gguf.vector(&ffn_norm, dim)?,
            gate_up: gguf.matrix(&[(&gate, wide), (&up, wide)], dim)?,
            down: gguf.matrix(&[(&down, dim)], wide)?,
        })
    }
}
