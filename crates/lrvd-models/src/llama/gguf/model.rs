//! The file, and its weights under Hugging Face's names.

use std::path::Path;

use lrvd_burn::files::{GgufFile, WeightStore};

use super::config::config_json;
use super::tokenizer::{TokenizerFiles, tokenizer_files};
use crate::error::Result;
use crate::llama::{LlamaConfig, rows_in_pairs};
use crate::tokenizer::TextTokenizer;

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
/// Stretching of the rotary wavelengths, which the configuration holds.
pub(super) const ROPE_FACTORS: &str = "rope_freqs.weight";

/// A Llama in a GGUF file. Weights are read at first use.
#[derive(Debug)]
pub struct GgufModel {
    file: GgufFile,
    config: LlamaConfig,
    config_json: String,
}

impl GgufModel {
    /// Whether `path` is a file with the ending `.gguf`.
    pub fn is_at(path: &Path) -> bool {
        path.extension().is_some_and(|ending| ending == "gguf") && path.is_file()
    }

    /// Opens the file and reads its configuration.
    pub fn open(path: &Path) -> Result<Self> {
        let file = GgufFile::open(path)?;
        let config_json = config_json(&file)?;
        let config = LlamaConfig::parse(config_json.as_bytes(), path)?;
        Ok(Self { file, config, config_json })
    }

    /// The configuration.
    pub fn config(&self) -> &LlamaConfig {
        &self.config
    }

    /// The text of a `config.json` for this model.
    pub fn config_json(&self) -> &str {
        &self.config_json
    }

    /// The texts of the tokenizer's files.
    pub fn tokenizer_files(&self) -> Result<TokenizerFiles> {
        tokenizer_files(&self.file)
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> Result<TextTokenizer> {
        let files = self.tokenizer_files()?;
        let (text, settings) = (files.tokenizer.as_bytes(), files.settings.as_bytes());
        TextTokenizer::from_texts(text, settings, self.file.path())
    }

    /// The weights under Hugging Face's names, quantised ones in single precision.
    pub fn weights(&self) -> Result<WeightStore> {
        let LlamaConfig { num_attention_heads, num_key_value_heads, .. } = self.config;
        let heads = |name: &str| match name.strip_suffix("_proj.weight")?.rsplit('.').next()? {
            "q" => Some(num_attention_heads),
            "k" => Some(num_key_value_heads),
            _ => None,
        };
        let order = |name: &str, shape: &[usize]| rows_in_pairs(*shape.first()?, heads(name)?);
        Ok(WeightStore::open(self.file.path())?
            .without(ROPE_FACTORS)
            .rename(hugging_face_name)?
            .reorder_rows(order))
    }
}

/// What a Hugging Face checkpoint calls a tensor of the file; unknown names stay.
fn hugging_face_name(name: &str) -> String {
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

/// The number of rows of the word embedding.
pub(super) fn vocab_size(file: &GgufFile) -> Result<usize, lrvd_burn::Error> {
    const EMBEDDING: &str = "token_embd.weight";
    let shape = file.tensors().info(EMBEDDING).map(|(_, shape)| shape);
    shape
        .and_then(|shape| shape.first().copied())
        .ok_or_else(|| lrvd_burn::Error::no_tensor(file.path(), EMBEDDING))
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
