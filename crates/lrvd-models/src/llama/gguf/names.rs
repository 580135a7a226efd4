//! Names of tensors, and orders of rows, in a file of llama.cpp and in a Hugging Face checkpoint.

use crate::llama::LlamaConfig;

/// Names outside the layers, in the file and in a Hugging Face checkpoint.
const WHOLE: [(&str, &str); 3] =
    [("token_embd", "model.embed_tokens"), ("output_norm", "model.norm"), ("output", "lm_head")];
/// Names within a layer.
const LAYER: [(&str, &str); 9] = [
    ("attn_norm", "input_layernorm"),
    ("attn_q", "self_attn.q_proj"),
    ("attn_k", "self_attn.k_proj"),
    ("attn_v", "self_attn.v_proj"),
    ("attn_output", "self_attn.o_proj"),
    ("ffn_norm", "post_attention_layernorm"),
    ("ffn_gate", "mlp.gate_proj"),
    ("ffn_up", "mlp.up_proj"),
    ("ffn_down", "mlp.down_proj"),
];

/// What a Hugging Face checkpoint calls a tensor of the file; unknown names stay.
pub(super) fn hugging_face_name(name: &str) -> String {
    let known = || {
        let (stem, part) = name.rsplit_once('.')?;
        let found = |table: &[(&str, &'static str)], stem: &str| {
            table.iter().find(|(own, _)| *own == stem).map(|(_, other)| *other)
        };
        match stem.strip_prefix("blk.") {
            None => Some(format!("{}.{part}", found(&WHOLE, stem)?)),
            Some(rest) => {
                let (layer, stem) = rest.split_once('.')?;
                Some(format!("model.layers.{layer}.{}.{part}", found(&LAYER, stem)?))
            }
        }
    };
    known().unwrap_or_else(|| name.to_owned())
}

/// What the file calls a module of Hugging Face's, without `.weight`.
pub(super) fn file_stem(path: &str) -> Option<String> {
    let found = |table: &[(&'static str, &str)], path: &str| {
        table.iter().find(|(_, other)| *other == path).map(|(own, _)| *own)
    };
    match path.strip_prefix("model.layers.").and_then(|rest| rest.split_once('.')) {
        Some((layer, rest)) => Some(format!("blk.{layer}.{}", found(&LAYER, rest)?)),
        None => found(&WHOLE, path).map(str::to_owned),
    }
}

/// Heads of a query or key projection, by module path: their rows have another order in llama.cpp.
pub(super) fn heads(path: &str, config: &LlamaConfig) -> Option<usize> {
    match path.rsplit('.').next()? {
        "q_proj" => Some(config.num_attention_heads),
        "k_proj" => Some(config.num_key_value_heads),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_hugging_faces() {
        for (own, other) in [
            ("token_embd.weight", "model.embed_tokens.weight"),
            ("output.weight", "lm_head.weight"),
            ("blk.12.attn_q.weight", "model.layers.12.self_attn.q_proj.weight"),
            ("blk.0.ffn_norm.weight", "model.layers.0.post_attention_layernorm.weight"),
            ("blk.0.ffn_gate_exps.weight", "blk.0.ffn_gate_exps.weight"),
            ("odd", "odd"),
        ] {
            assert_eq!(hugging_face_name(own), other);
            if let Some(path) = other.strip_suffix(".weight").filter(|_| own != other) {
                assert_eq!(file_stem(path).map(|stem| stem + ".weight").as_deref(), Some(own));
            }
        }
    }
}
