//! The shape of a decoder from the `config.json` beside safetensors files.
//!
//! Two generations of these files differ in where the rotary position embedding's numbers stand: in `rope_theta`,
//! `rope_local_base_freq` and `rope_scaling`, or all together in `rope_parameters`, which has an entry for each kind of
//! attention where there are several.

use super::{Attention, Config, Pairing, RopeScaling, alternating, most, require};
use crate::ModelError;
use crate::config::{Architecture, Gate};
use crate::files::Json;

const FULL: &str = "full_attention";
const SLIDING: &str = "sliding_attention";

impl Config {
    /// Reads and checks a `config.json`.
    pub(crate) fn from_json(json: &Json) -> Result<Self, ModelError> {
        let architecture = Architecture::named(json.text("model_type")?.unwrap_or_default(), Architecture::json_name)?;
        let shape = Shape { json, architecture };
        shape.refuse_what_is_not_built()?;
        let dim = shape.size("hidden_size", None, most::DIM)?;
        let heads = shape.size("num_attention_heads", None, most::HEADS)?;
        let head_dim = shape.size("head_dim", Some(dim / heads), most::HEAD_DIM)?;
        let layers = shape.layers(shape.size("num_hidden_layers", None, most::LAYERS)?)?;
        Self {
            vocabulary: shape.size("vocab_size", None, most::VOCABULARY)?,
            context: shape.size("max_position_embeddings", None, most::CONTEXT)?,
            dim,
            heads,
            kv_heads: shape.size("num_key_value_heads", Some(heads), most::HEADS)?,
            head_dim,
            feed_forward: shape.size("intermediate_size", None, most::DIM)?,
            norm_epsilon: shape.positive("rms_norm_eps", Some(1e-6))? as f32,
            embedding_scale: architecture.embedding_scale(dim),
            attention_scale: 1.0 / shape.positive("query_pre_attn_scalar", Some(head_dim as f64))?.sqrt() as f32,
            rope_dim: head_dim,
            rope_pairing: Pairing::Halves,
            attentions: shape.attentions()?,
            layers,
            architecture,
        }
        .check(["num_key_value_heads", "head_dim"])
    }
}

struct Shape<'j> {
    json: &'j Json,
    architecture: Architecture,
}

impl Shape<'_> {
    fn refuse_what_is_not_built(&self) -> Result<(), ModelError> {
        for key in ["mlp_bias", "use_sliding_window", "use_bidirectional_attention"] {
            let asked = self.json.flag(key)?.unwrap_or(false);
            require(key, asked, !asked, "false: anything else is not supported")?;
        }
        let bias = self.json.flag("attention_bias")?.unwrap_or(false) && !self.architecture.has_biases();
        require("attention_bias", bias, !bias, "false in this architecture: anything else is not supported")?;
        for key in ["final_logit_softcapping", "attn_logit_softcapping"] {
            let found = self.json.number(key)?.unwrap_or(0.0);
            require(key, found, found == 0.0, "0 or absent: softcapping is not supported")?;
        }
        let partial = self.json.number("partial_rotary_factor")?.unwrap_or(1.0);
        require("partial_rotary_factor", partial, partial == 1.0, "1: anything else is not supported")?;
        let (key, name) = match self.architecture.gate() {
            Gate::Silu => ("hidden_act", "silu"),
            Gate::Gelu => ("hidden_activation", "gelu_pytorch_tanh"),
        };
        let found = self.json.text(key)?.unwrap_or(name);
        require(key, found, found == name, &format!("{name}: anything else is not supported"))
    }

    /// For each layer, its kind of attention.
    fn layers(&self, count: usize) -> Result<Vec<usize>, ModelError> {
        if self.architecture != Architecture::Gemma3 {
            return Ok(vec![0; count]);
        }
        let Some(names) = self.json.texts("layer_types")? else {
            return Ok(alternating(count, self.size("sliding_window_pattern", Some(6), most::LAYERS)?));
        };
        require("layer_types", names.len(), names.len() == count, &format!("{count} entries, one for each layer"))?;
        let kind = |name: &str| match name {
            SLIDING => Ok(0),
            FULL => Ok(1),
            other => Err(ModelError::Unsupported {
                what: "the layer type",
                found: other.to_owned(),
                supported: format!("{SLIDING}, {FULL}"),
            }),
        };
        names.into_iter().map(kind).collect()
    }

    /// The kinds of attention that [`Shape::layers`] counts.
    fn attentions(&self) -> Result<Vec<Attention>, ModelError> {
        if self.architecture != Architecture::Gemma3 {
            let (rope_base, rope_scaling) = self.rope(None, "rope_theta", 10_000.0)?;
            return Ok(vec![Attention { rope_base, rope_scaling, window: None }]);
        }
        let window = Some(self.size("sliding_window", Some(4096), most::CONTEXT)?);
        let (rope_base, _) = self.rope(Some(SLIDING), "rope_local_base_freq", 10_000.0)?;
        let sliding = Attention { rope_base, rope_scaling: RopeScaling::None, window };
        let (rope_base, rope_scaling) = self.rope(Some(FULL), "rope_theta", 1_000_000.0)?;
        Ok(vec![sliding, Attention { rope_base, rope_scaling, window: None }])
    }

    /// Base and scaling of a kind of attention.
    fn rope(&self, kind: Option<&str>, base_key: &str, default: f64) -> Result<(f64, RopeScaling), ModelError> {
        let parameters = self.json.object("rope_parameters")?;
        let entry = match (&parameters, kind) {
            (Some(all), Some(kind)) => all.object(kind)?,
            _ => None,
        };
        if let Some(entry) = entry.or(parameters) {
            return Ok((positive(&entry, "rope_theta", Some(default))?, scaling(&entry)?));
        }
        let scaling = self.json.object("rope_scaling")?.map(|entry| scaling(&entry)).transpose()?;
        Ok((self.positive(base_key, Some(default))?, scaling.unwrap_or_default()))
    }

    fn size(&self, key: &str, default: Option<usize>, most: usize) -> Result<usize, ModelError> {
        let size = self.json.count(key)?.or(default).ok_or_else(|| ModelError::MissingKey(key.to_owned()))?;
        require(key, size, (1..=most).contains(&size), &format!("from 1 to {most}"))?;
        Ok(size)
    }

    fn positive(&self, key: &str, default: Option<f64>) -> Result<f64, ModelError> {
        positive(self.json, key, default)
    }
}

fn positive(json: &Json, key: &str, default: Option<f64>) -> Result<f64, ModelError> {
    let number = json.number(key)?.or(default).ok_or_else(|| ModelError::MissingKey(key.to_owned()))?;
    require(key, number, number.is_finite() && number > 0.0, "finite and positive")?;
    Ok(number)
}

fn scaling(entry: &Json) -> Result<RopeScaling, ModelError> {
    let name = entry.text("rope_type")?.or(entry.text("type")?).unwrap_or("default");
    match name {
        "default" => Ok(RopeScaling::None),
        "linear" => Ok(RopeScaling::Linear(positive(entry, "factor", None)?)),
        "llama3" => Ok(RopeScaling::Llama3 {
            factor: positive(entry, "factor", None)?,
            low: positive(entry, "low_freq_factor", None)?,
            high: positive(entry, "high_freq_factor", None)?,
            context: positive(entry, "original_max_position_embeddings", None)?,
        }),
        other => Err(ModelError::Unsupported {
            what: "the rope scaling",
            found: other.to_owned(),
            supported: "default, linear, llama3".to_owned(),
        }),
    }
}
