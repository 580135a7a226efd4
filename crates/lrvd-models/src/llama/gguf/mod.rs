//! A Llama, Mistral or Qwen in one file of llama.cpp.
//!
//! A `.gguf` file holds weights, configuration and tokenizer. Each is converted to what the Hugging Face folder of
//! the same model holds: `config.json`, `tokenizer.json` and `tokenizer_config.json` as texts, and weights under
//! Hugging Face's names, with the rows of a Llama's query and key projections in its order; Qwen's are stored so.

mod adapter;
mod config;
mod tokenizer;

use std::path::Path;

use lrvd_burn::files::{GgufFile, WeightStore};

pub use adapter::{GgufAdapter, write_gguf_adapter};
use config::{ROPE_FACTORS, config_json};
pub use tokenizer::TokenizerFiles;
use tokenizer::tokenizer_files;

use crate::error::{Error, Result};
use crate::llama::config::LlamaConfig;
use crate::tokenizer::TextTokenizer;

/// Number of files that the tensors of a model are in.
const PARTS: &str = "split.count";

/// A model in a GGUF file. Weights are read at first use.
#[derive(Debug)]
pub struct GgufModel {
    file: GgufFile,
    /// The configuration.
    pub config: LlamaConfig,
    /// The text of a `config.json` for this model.
    pub config_json: String,
}

impl GgufModel {
    /// `true` if `path` is a file with the ending `.gguf`.
    pub fn is_at(path: &Path) -> bool {
        path.extension().is_some_and(|ending| ending == "gguf") && path.is_file()
    }

    /// Opens the file and reads its configuration.
    pub fn open(path: &Path) -> Result<Self> {
        let file = GgufFile::open(path)?;
        if let Some(parts) = file.count(PARTS)?.filter(|&parts| parts > 1) {
            let part = file.count("split.no")?.unwrap_or(0) + 1;
            let expected = "1 (`llama-gguf-split --merge` joins the files of a model)";
            let found = format!("{parts}: this is file {part} of a model in several");
            return Err(Error::format(path, PARTS, expected, found));
        }
        let config_json = config_json(&file)?;
        let config = LlamaConfig::parse(config_json.as_bytes(), path)?;
        Ok(Self { file, config, config_json })
    }

    /// The texts of the tokenizer's files.
    pub fn tokenizer_files(&self) -> Result<TokenizerFiles> {
        tokenizer_files(&self.file)
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> Result<TextTokenizer> {
        let files = self.tokenizer_files()?;
        let text = files.tokenizer.as_bytes();
        let settings = files.settings.as_bytes();
        TextTokenizer::from_texts(text, settings, self.file.path())
    }

    /// The weights under Hugging Face's names, quantised ones in single precision.
    pub fn weights(&self) -> Result<WeightStore> {
        let place = |name: &str, shape: &[usize]| {
            let name = (name != ROPE_FACTORS).then(|| hugging_face_name(name))?;
            let path = name.rsplit_once('.').map(|(path, _)| path);
            let heads = path.and_then(|path| heads(path, &self.config));
            let rows = shape.first().zip(heads).and_then(|(&n, heads)| rows_in_pairs(n, heads));
            Some((name, rows))
        };
        Ok(WeightStore::open(self.file.path())?.map(place)?)
    }
}

/// Names outside the layers, in the file and in a Hugging Face checkpoint.
const WHOLE: [[&str; 2]; 3] =
    [["token_embd", "model.embed_tokens"], ["output_norm", "model.norm"], ["output", "lm_head"]];
/// Names within a layer.
const LAYER: [[&str; 2]; 11] = [
    ["attn_norm", "input_layernorm"],
    ["attn_q", "self_attn.q_proj"],
    ["attn_k", "self_attn.k_proj"],
    ["attn_v", "self_attn.v_proj"],
    ["attn_output", "self_attn.o_proj"],
    ["attn_q_norm", "self_attn.q_norm"],
    ["attn_k_norm", "self_attn.k_norm"],
    ["ffn_norm", "post_attention_layernorm"],
    ["ffn_gate", "mlp.gate_proj"],
    ["ffn_up", "mlp.up_proj"],
    ["ffn_down", "mlp.down_proj"],
];

/// Starts of the names within a layer, in the order of the tables.
const LAYERS: [&str; 2] = ["blk.", "model.layers."];

/// Name of a tensor of the file in a Hugging Face checkpoint; unknown names stay.
fn hugging_face_name(name: &str) -> String {
    let translated = name
        .rsplit_once('.')
        .and_then(|(stem, part)| Some(format!("{}.{part}", counterpart(stem, 0)?)));
    translated.unwrap_or_else(|| name.to_owned())
}

/// The other name of a module, without `.weight`, that has the name `path` in column `column` of the tables.
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

/// Heads of a query or key projection whose rows have another order in llama.cpp, by module path.
fn heads(path: &str, config: &LlamaConfig) -> Option<usize> {
    if !config.family.spec().gguf_pairs {
        return None;
    }
    match path.rsplit('.').next()? {
        "q_proj" => Some(config.num_attention_heads),
        "k_proj" => Some(config.num_key_value_heads),
        _ => None,
    }
}
