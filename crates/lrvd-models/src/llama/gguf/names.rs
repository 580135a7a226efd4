//! Names of tensors, and orders of rows, in a file of llama.cpp and in a Hugging Face checkpoint.

use crate::llama::config::LlamaConfig;

/// Names outside the layers, in the file and in a Hugging Face checkpoint.
const WHOLE: [[&str; 2]; 3] =
    [["token_embd", "model.embed_tokens"], ["output_norm", "model.norm"], ["output", "lm_head"]];
/// Names within a layer.
const LAYER: [[&str; 2]; 9] = [
    ["attn_norm", "input_layernorm"],
    ["attn_q", "self_attn.q_proj"],
    ["attn_k", "self_attn.k_proj"],
    ["attn_v", "self_attn.v_proj"],
    ["attn_output", "self_attn.o_proj"],
    ["ffn_norm", "post_attention_layernorm"],
    ["ffn_gate", "mlp.gate_proj"],
    ["ffn_up", "mlp.up_proj"],
    ["ffn_down", "mlp.down_proj"],
];

/// Starts of the names within a layer, in the order of the tables.
const LAYERS: [&str; 2] = ["blk.", "model.layers."];

/// What a Hugging Face checkpoint calls a tensor of the file; unknown names stay.
pub(super) fn hugging_face_name(name: &str) -> String {
    let translated = || {
        let (stem, part) = name.rsplit_once('.')?;
        Some(format!("{}.{part}", counterpart(stem, 0)?))
    };
    translated().unwrap_or_else(|| name.to_owned())
}

/// What the file calls a module of Hugging Face's, without `.weight`.
pub(super) fn file_stem(path: &str) -> Option<String> {
    counterpart(path, 1)
}

/// The other name of a module that has the name `path` in column `column` of the tables.
fn counterpart(path: &str, column: usize) -> Option<String> {
    let find = |table: &[[&'static str; 2]], name: &str| {
        table.iter().find(|names| names[column] == name).map(|names| names[1 - column])
    };
    match path.strip_prefix(LAYERS[column]).and_then(|rest| rest.split_once('.')) {
        Some((layer, name)) => {
            Some(format!("{}{layer}.{}", LAYERS[1 - column], find(&LAYER, name)?))
        }
        None => find(&WHOLE, path).map(str::to_owned),
    }
}

/// For every row of a query or key projection in Hugging Face's order, which pairs features `i` and `i + width/2` of a
/// head, its place in a file of llama.cpp, which pairs `2i` and `2i + 1`. None if `rows` are not `heads` heads of an even
/// width.
pub fn rows_in_pairs(rows: usize, heads: usize) -> Option<Vec<usize>> {
    let width = rows.checked_div(heads)?;
    if width == 0 || !rows.is_multiple_of(heads) || !width.is_multiple_of(2) {
        return None;
    }
    let place = |row: usize| {
        let (head, within) = (row / width, row % width);
        head * width + 2 * (within % (width / 2)) + within / (width / 2)
    };
    Some((0..rows).map(place).collect())
}

/// For every row of a file of llama.cpp its place in Hugging Face's order: the inverse of [`rows_in_pairs`].
pub fn rows_in_halves(rows: usize, heads: usize) -> Option<Vec<usize>> {
    let mut places = vec![0; rows];
    for (row, place) in rows_in_pairs(rows, heads)?.into_iter().enumerate() {
        places[place] = row;
    }
    Some(places)
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
    #![allow(clippy::unwrap_used)]
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

    #[test]
    fn the_orders_are_those_of_the_converters() {
        // numpy: arange(12).reshape(2, 2, 3).swapaxes(1, 2).reshape(12), as llama.cpp's `permute` does for 2 heads.
        assert_eq!(rows_in_halves(12, 2).unwrap(), [0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11]);
        let pairs = rows_in_pairs(12, 2).unwrap();
        let back: Vec<usize> = rows_in_halves(12, 2).unwrap().iter().map(|&i| pairs[i]).collect();
        assert_eq!(back, (0..12).collect::<Vec<_>>());
        for (rows, heads) in [(12, 0), (12, 5), (6, 2), (0, 2)] {
            assert_eq!(rows_in_pairs(rows, heads), None, "{rows} {heads}");
        }
    }
}
