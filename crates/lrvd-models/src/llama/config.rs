//! The settings of a Llama `config.json`.
//!
//! Typed, checked once, with transformers' defaults; both spellings of the rotary settings are read (`rope_theta` and
//! `rope_scaling` at the top level, or `rope_parameters` of transformers 5). A value that would change the result and
//! is not supported is an error that names it; an unknown key is kept in [`LlamaConfig::unrecognised`].

mod rotary;

use std::path::Path;

pub use self::rotary::Llama3Scaling;
use crate::config_reader::Reader;
use crate::error::Result;

/// Keys that are not read and change nothing here.
const HARMLESS: &[&str] = &[
    "auto_map",
    "id2label",
    // Splits products for tensor parallelism; the sums are the same.
    "pretraining_tp",
    "problem_type",
];

/// Keys that change the model unless they are null, false or empty.
const DEFAULT_ONLY: &[&str] =
    &["cross_attention_hidden_size", "sliding_window", "tie_encoder_decoder"];

/// A Llama model with a language-modelling head.
///
/// Names are those of `config.json`; sizes are numbers of features by default.
#[derive(Debug, Clone, PartialEq)]
pub struct LlamaConfig {
    /// Rows of the word embedding; at least 1.
    pub vocab_size: usize,
    /// Width of the hidden states.
    pub hidden_size: usize,
    /// Width between the feed-forward projections.
    pub intermediate_size: usize,
    /// Number of layers; at least 1.
    pub num_hidden_layers: usize,
    /// Number of query heads.
    pub num_attention_heads: usize,
    /// Number of key and value heads; divides the number of query heads. As many: multi-head attention; one:
    /// multi-query; between: grouped-query.
    pub num_key_value_heads: usize,
    /// Width of a head, even; heads times this need not be `hidden_size`.
    pub head_dim: usize,
    /// Longest input of the training, in tokens. Not enforced: longer ones are used as they are.
    pub max_position_embeddings: usize,
    /// Added to the mean square in every norm.
    pub rms_norm_eps: f64,
    /// Base of the rotary wavelengths.
    pub rope_theta: f64,
    /// Stretching of the rotary wavelengths, if any.
    pub rope_scaling: Option<Llama3Scaling>,
    /// The head is the word embedding, transposed.
    pub tie_word_embeddings: bool,
    /// Dropout probability of the attention weights in training.
    pub attention_dropout: f64,
    /// Standard deviation of new weights.
    pub initializer_range: f64,
    /// Token that starts a text.
    pub bos_token_id: Option<u32>,
    /// Tokens that end a text; newer models have several.
    pub eos_token_ids: Vec<u32>,
    /// Padding token, where there is one.
    pub pad_token_id: Option<u32>,
    /// Keys of the file that were neither read nor known to be harmless, sorted.
    unrecognised: Vec<String>,
}

impl LlamaConfig {
    /// Reads a `config.json`, and of a `generation_config.json` beside it the tokens that end a text, of which it often
    /// has more.
    pub fn read(file: &Path) -> Result<Self> {
        let mut config = Self::of(&Reader::open(file)?)?;
        let beside = file.with_file_name("generation_config.json");
        if beside.is_file() {
            let more = tokens(&Reader::open(&beside)?, "eos_token_id")?;
            for id in more {
                if !config.eos_token_ids.contains(&id) {
                    config.eos_token_ids.push(id);
                }
            }
        }
        Ok(config)
    }

    /// Reads the text of a `config.json`; `file` is only named in errors.
    pub fn parse(text: &[u8], file: &Path) -> Result<Self> {
        Self::of(&Reader::new(text, file)?)
    }

    fn of(reader: &Reader<'_>) -> Result<Self> {
        reader.only("model_type", "llama", None)?;
        reader.only("hidden_act", "silu", Some("silu"))?;
        for key in ["attention_bias", "mlp_bias"] {
            if reader.boolean(key)? == Some(true) {
                return Err(reader.unsupported(key, true, "false"));
            }
        }
        let hidden_size = reader.required("hidden_size")?;
        let num_attention_heads = reader.required("num_attention_heads")?;
        let (rope_theta, rope_scaling) = rotary::read(reader)?;
        Ok(Self {
            vocab_size: reader.required("vocab_size")?,
            hidden_size,
            intermediate_size: reader.required("intermediate_size")?,
            num_hidden_layers: reader.required("num_hidden_layers")?,
            num_attention_heads,
            num_key_value_heads: key_value_heads(reader, num_attention_heads)?,
            head_dim: head_dim(reader, hidden_size, num_attention_heads)?,
            max_position_embeddings: reader.count("max_position_embeddings", 1)?.unwrap_or(2048),
            rms_norm_eps: reader.float("rms_norm_eps", f64::MIN_POSITIVE..=1.0)?.unwrap_or(1e-6),
            rope_theta,
            rope_scaling,
            tie_word_embeddings: reader.boolean("tie_word_embeddings")?.unwrap_or(false),
            attention_dropout: reader.float("attention_dropout", 0.0..=1.0)?.unwrap_or(0.0),
            initializer_range: reader.float("initializer_range", 0.0..=f64::MAX)?.unwrap_or(0.02),
            bos_token_id: token(reader, "bos_token_id")?,
            eos_token_ids: tokens(reader, "eos_token_id")?,
            pad_token_id: token(reader, "pad_token_id")?,
            unrecognised: reader.rest(HARMLESS, DEFAULT_ONLY)?,
        })
    }

    /// Keys of the file that were neither read nor known to be harmless, sorted.
    pub fn unrecognised(&self) -> &[String] {
        &self.unrecognised
    }
}

/// Wider heads are those of a damaged file, whose rotary tables must not be made.
const WIDEST_HEAD: usize = 1 << 16;

fn key_value_heads(reader: &Reader<'_>, heads: usize) -> Result<usize> {
    let found = reader.count("num_key_value_heads", 1)?.unwrap_or(heads);
    if heads.is_multiple_of(found) {
        return Ok(found);
    }
    let expected = format!("a divisor of `num_attention_heads` = {heads}");
    Err(reader.wrong("num_key_value_heads", expected, found))
}

fn head_dim(reader: &Reader<'_>, hidden: usize, heads: usize) -> Result<usize> {
    let stated = reader.count("head_dim", 1)?;
    if stated.is_none() && !hidden.is_multiple_of(heads) {
        let expected = format!("a multiple of `num_attention_heads` = {heads}");
        return Err(reader.wrong("hidden_size", expected, hidden));
    }
    let width = stated.unwrap_or(hidden / heads);
    if width.is_multiple_of(2) && width <= WIDEST_HEAD {
        return Ok(width);
    }
    // The rotation takes pairs.
    let expected = format!("an even number of features a head, at most {WIDEST_HEAD}");
    Err(reader.wrong("head_dim", expected, width))
}

/// A token; some files write -1 for "none".
fn token(reader: &Reader<'_>, key: &'static str) -> Result<Option<u32>> {
    if reader.get(key).is_some_and(|value| value.as_i64() == Some(-1)) {
        return Ok(None);
    }
    Ok(reader.count(key, 0)?.map(|id| id as u32))
}

/// A token, or a list of tokens.
fn tokens(reader: &Reader<'_>, key: &'static str) -> Result<Vec<u32>> {
    let Some(list) = reader.get(key).and_then(serde_json::Value::as_array) else {
        return Ok(token(reader, key)?.into_iter().collect());
    };
    let id = |value: &serde_json::Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
    list.iter()
        .map(|value| id(value).ok_or_else(|| reader.wrong(key, "a list of tokens", value)))
        .collect()
}

#[cfg(test)]
mod tests;
