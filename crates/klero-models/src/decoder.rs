//! The decoder's weights, layer by layer. What they compute is in `pass.rs`.

use crate::files::Tensors;
use crate::rope::Rope;
use crate::{Architecture, Config, ModelError};
use klero::Weights;
use rayon::prelude::*;

/// The layers of a model and its last norm, without its embedding and head.
pub(crate) struct Decoder {
    pub(crate) layers: Vec<Layer>,
    pub(crate) norm: Vec<f32>,
    /// One for each kind of attention.
    pub(crate) ropes: Vec<Rope>,
}

/// One layer. Matrices that multiply the same row are kept as one. What an architecture does not have is None.
pub(crate) struct Layer {
    pub(crate) attention_norm: Vec<f32>,
    /// Queries, keys and values.
    pub(crate) qkv: Weights<'static>,
    pub(crate) bias: Option<Vec<f32>>,
    /// The norms of query heads and of key heads.
    pub(crate) head_norms: Option<[Vec<f32>; 2]>,
    pub(crate) output: Weights<'static>,
    pub(crate) post_attention_norm: Option<Vec<f32>>,
    pub(crate) feed_forward_norm: Vec<f32>,
    /// The gate and what it gates.
    pub(crate) gate_up: Weights<'static>,
    pub(crate) down: Weights<'static>,
    pub(crate) post_feed_forward_norm: Option<Vec<f32>>,
}

const LAST_NORM: &str = "output_norm.weight";
const ROPE_FACTORS: &str = "rope_freqs.weight";

/// The parts of every layer, as they are named in a GGUF file.
const PARTS: [&str; 9] = [
    "attn_norm.weight",
    "attn_q.weight",
    "attn_k.weight",
    "attn_v.weight",
    "attn_output.weight",
    "ffn_norm.weight",
    "ffn_gate.weight",
    "ffn_up.weight",
    "ffn_down.weight",
];
const BIASES: [&str; 3] = ["attn_q.bias", "attn_k.bias", "attn_v.bias"];
const HEAD_NORMS: [&str; 2] = ["attn_q_norm.weight", "attn_k_norm.weight"];
const POST_NORMS: [&str; 2] = ["post_attention_norm.weight", "post_ffw_norm.weight"];

impl Decoder {
    /// Loads all layers, in parallel.
    pub(crate) fn load(tensors: &dyn Tensors, config: &Config) -> Result<Self, ModelError> {
        let factors = match tensors.has(ROPE_FACTORS) {
            true => Some(tensors.vector(ROPE_FACTORS, config.rope_dim / 2)?),
            false => None,
        };
        let layer = |l| Layer::load(tensors, config, l);
        let rope = |attention| Rope::new(attention, config.rope_dim, factors.as_deref());
        Ok(Self {
            layers: (0..config.layers.len()).into_par_iter().map(layer).collect::<Result<_, _>>()?,
            norm: tensors.vector(LAST_NORM, config.dim)?,
            ropes: config.attentions.iter().map(rope).collect(),
        })
    }

    /// The names of all tensors that a decoder of this shape may read. A file with another one (an expert, the bias of a
    /// matrix that has none here) is another model.
    pub(crate) fn reads(config: &Config) -> impl Iterator<Item = String> {
        let architecture = config.architecture;
        let parts = move || PARTS.into_iter().chain(optional_parts(architecture));
        let layers = (0..config.layers.len()).flat_map(move |l| parts().map(move |part| format!("blk.{l}.{part}")));
        layers.chain([LAST_NORM, ROPE_FACTORS].map(str::to_owned))
    }
}

fn optional_parts(architecture: Architecture) -> impl Iterator<Item = &'static str> {
    let biases = BIASES.into_iter().filter(move |_| architecture.has_biases());
    let head_norms = HEAD_NORMS.into_iter().filter(move |_| architecture.has_head_norms());
    let post_norms = POST_NORMS.into_iter().filter(move |_| architecture.has_post_norms());
    biases.chain(head_norms).chain(post_norms)
}

impl Layer {
    fn load(tensors: &dyn Tensors, config: &Config, layer: usize) -> Result<Self, ModelError> {
        let name = |part: &str| format!("blk.{layer}.{part}");
        let [attention_norm, q, k, v, output, feed_forward_norm, gate, up, down] = PARTS.map(name);
        let architecture = config.architecture;
        let (dim, query_dim, kv_dim, wide) = (config.dim, config.query_dim(), config.kv_dim(), config.feed_forward);
        let [post_attention_norm, post_feed_forward_norm] =
            POST_NORMS.map(|part| architecture.has_post_norms().then(|| tensors.vector(&name(part), dim)).transpose());
        Ok(Self {
            attention_norm: tensors.vector(&attention_norm, dim)?,
            qkv: tensors.matrix(&[(&q, query_dim), (&k, kv_dim), (&v, kv_dim)], dim)?,
            bias: architecture.has_biases().then(|| biases(tensors, name, [query_dim, kv_dim, kv_dim])).transpose()?,
            head_norms: architecture
                .has_head_norms()
                .then(|| head_norms(tensors, name, config.head_dim))
                .transpose()?,
            output: tensors.matrix(&[(&output, dim)], query_dim)?,
            post_attention_norm: post_attention_norm?,
            feed_forward_norm: tensors.vector(&feed_forward_norm, dim)?,
            gate_up: tensors.matrix(&[(&gate, wide), (&up, wide)], dim)?,
            down: tensors.matrix(&[(&down, dim)], wide)?,
            post_feed_forward_norm: post_feed_forward_norm?,
        })
    }
}

/// The biases of queries, keys and values, one after the other.
fn biases(tensors: &dyn Tensors, name: impl Fn(&str) -> String, dims: [usize; 3]) -> Result<Vec<f32>, ModelError> {
    let mut all = Vec::new();
    for (part, dim) in BIASES.into_iter().zip(dims) {
        all.extend(tensors.vector(&name(part), dim)?);
    }
    Ok(all)
}

fn head_norms(
    tensors: &dyn Tensors,
    name: impl Fn(&str) -> String,
    head_dim: usize,
) -> Result<[Vec<f32>; 2], ModelError> {
    let [query, key] = HEAD_NORMS.map(|part| tensors.vector(&name(part), head_dim));
    Ok([query?, key?])
}
