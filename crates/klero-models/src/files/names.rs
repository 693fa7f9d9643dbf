//! Tensor names of safetensors models, and what GGUF files call the same tensors.

use crate::Architecture;

const WHOLE: [(&str, &str); 3] = [
    ("token_embd.weight", "model.embed_tokens.weight"),
    ("output_norm.weight", "model.norm.weight"),
    ("output.weight", "lm_head.weight"),
];

const PARTS: [(&str, &str); 14] = [
    ("attn_norm.weight", "input_layernorm.weight"),
    ("attn_q.weight", "self_attn.q_proj.weight"),
    ("attn_k.weight", "self_attn.k_proj.weight"),
    ("attn_v.weight", "self_attn.v_proj.weight"),
    ("attn_q.bias", "self_attn.q_proj.bias"),
    ("attn_k.bias", "self_attn.k_proj.bias"),
    ("attn_v.bias", "self_attn.v_proj.bias"),
    ("attn_q_norm.weight", "self_attn.q_norm.weight"),
    ("attn_k_norm.weight", "self_attn.k_norm.weight"),
    ("attn_output.weight", "self_attn.o_proj.weight"),
    ("ffn_norm.weight", "post_attention_layernorm.weight"),
    ("ffn_gate.weight", "mlp.gate_proj.weight"),
    ("ffn_up.weight", "mlp.up_proj.weight"),
    ("ffn_down.weight", "mlp.down_proj.weight"),
];

/// Where every half layer has a norm before and one after, `post_attention_layernorm` is the one after.
const POST_NORMS: [(&str, &str); 3] = [
    ("post_attention_norm.weight", "post_attention_layernorm.weight"),
    ("ffn_norm.weight", "pre_feedforward_layernorm.weight"),
    ("post_ffw_norm.weight", "post_feedforward_layernorm.weight"),
];

/// What a safetensors model calls a tensor that a GGUF file calls `name`.
pub(super) fn safetensors_name(architecture: Architecture, name: &str) -> String {
    let post_norms: &[_] = if architecture.has_post_norms() { &POST_NORMS } else { &[] };
    let theirs =
        |table: &[(&str, &'static str)], name: &str| table.iter().find(|(ours, _)| *ours == name).map(|(_, t)| *t);
    let part = |name: &str| theirs(post_norms, name).or_else(|| theirs(&PARTS, name));
    let layer = |name: &str| {
        let (layer, name) = name.strip_prefix("blk.")?.split_once('.')?;
        Some(format!("model.layers.{layer}.{}", part(name)?))
    };
    theirs(&WHOLE, name).map(str::to_owned).or_else(|| layer(name)).unwrap_or_else(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_norm_after_attention_is_told_from_the_one_before_the_feed_forward_part() {
        let name = |architecture, part: &str| safetensors_name(architecture, &format!("blk.3.{part}.weight"));
        let theirs = |part: &str| format!("model.layers.3.{part}.weight");
        assert_eq!(name(Architecture::Llama, "ffn_norm"), theirs("post_attention_layernorm"));
        assert_eq!(name(Architecture::Gemma3, "ffn_norm"), theirs("pre_feedforward_layernorm"));
        assert_eq!(name(Architecture::Gemma3, "post_attention_norm"), theirs("post_attention_layernorm"));
        assert_eq!(name(Architecture::Gemma3, "attn_q"), theirs("self_attn.q_proj"));
    }
}
