//! The settings of a Llama `config.json`.
//!
//! Typed, checked once, with transformers' defaults; both spellings of the rotary settings are read (`rope_theta` and
//! `rope_scaling` at the top level, or `rope_parameters` of transformers 5). A value that would change the result and
//! is not supported is refused by name; an unknown key is kept in [`LlamaConfig::unrecognised`].

mod rotary;

use std::path::Path;

pub use self::rotary::Llama3Scaling;
pub use crate::config_error::ConfigError;
use crate::config_reader::{Reader, SpareKeys};

/// What a configuration may hold without being read.
const SPARE: SpareKeys = SpareKeys {
    harmless: &[
        "architectures",
        "auto_map",
        "begin_suppress_tokens",
        "chunk_size_feed_forward",
        "cls_token_id",
        "decoder_start_token_id",
        "dtype",
        "finetuning_task",
        "id2label",
        "label2id",
        "mask_token_id",
        "name_or_path",
        "output_attentions",
        "output_hidden_states",
        "prefix",
        // Splits products for tensor parallelism; the sums are the same.
        "pretraining_tp",
        "problem_type",
        "return_dict",
        "sep_token_id",
        "task_specific_params",
        "tokenizer_class",
        "torch_dtype",
        "torchscript",
        "transformers_version",
        "use_cache",
    ],
    only_idle: &[
        "add_cross_attention",
        "cross_attention_hidden_size",
        "is_decoder",
        "is_encoder_decoder",
        "pruned_heads",
        "quantization_config",
        "sliding_window",
        "tie_encoder_decoder",
    ],
};

/// A Llama model with a language-modelling head.
///
/// Names are those of `config.json`; sizes are numbers of features unless said otherwise.
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
    /// Longest input of the training, in tokens. Not enforced: positions continue beyond it.
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
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if it cannot be read, lacks a size, holds a value of the wrong type or range, or asks for
    /// something that is not supported.
    pub fn read(file: &Path) -> Result<Self, ConfigError> {
        let mut config = Self::parse(&Reader::bytes(file)?, file)?;
        let beside = file.with_file_name("generation_config.json");
        if beside.is_file() {
            let more = tokens(&Reader::new(&Reader::bytes(&beside)?, &beside)?, "eos_token_id")?;
            for id in more {
                if !config.eos_token_ids.contains(&id) {
                    config.eos_token_ids.push(id);
                }
            }
        }
        Ok(config)
    }

    /// Reads the text of a `config.json`; `file` is only named in errors.
    ///
    /// # Errors
    ///
    /// As [`LlamaConfig::read`].
    pub fn parse(text: &[u8], file: &Path) -> Result<Self, ConfigError> {
        let reader = &Reader::new(text, file)?;
        reader.model_type(("llama", "`llama`"))?;
        let activation = reader.text("hidden_act")?.unwrap_or("silu");
        if activation != "silu" {
            return Err(reader.unsupported("hidden_act", activation, "`silu`"));
        }
        for key in ["attention_bias", "mlp_bias"] {
            if reader.boolean(key)? == Some(true) {
                return Err(reader.unsupported(key, true, "false"));
            }
        }
        let hidden_size = reader.required("hidden_size")?;
        let num_attention_heads = reader.required("num_attention_heads")?;
        let (rope_theta, rope_scaling) = rotary::read(reader)?;
        let config = Self {
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
            unrecognised: Vec::new(),
        };
        Ok(Self { unrecognised: reader.rest(&SPARE)?, ..config })
    }

    /// Keys of the file that were neither read nor known to be harmless, sorted.
    pub fn unrecognised(&self) -> &[String] {
        &self.unrecognised
    }
}

/// Wider heads are those of a damaged file, whose rotary tables must not be made.
const WIDEST_HEAD: usize = 1 << 16;

fn key_value_heads(reader: &Reader<'_>, heads: usize) -> Result<usize, ConfigError> {
    let found = reader.count("num_key_value_heads", 1)?.unwrap_or(heads);
    if heads.is_multiple_of(found) {
        return Ok(found);
    }
    let wanted = format!("a divisor of `num_attention_heads` = {heads}");
    Err(reader.out_of_range("num_key_value_heads", found, wanted))
}

fn head_dim(reader: &Reader<'_>, hidden: usize, heads: usize) -> Result<usize, ConfigError> {
    let stated = reader.count("head_dim", 1)?;
    if stated.is_none() && !hidden.is_multiple_of(heads) {
        let wanted = format!("a multiple of `num_attention_heads` = {heads}");
        return Err(reader.out_of_range("hidden_size", hidden, wanted));
    }
    let width = stated.unwrap_or(hidden / heads);
    if width.is_multiple_of(2) && width <= WIDEST_HEAD {
        return Ok(width);
    }
    // The rotation turns pairs.
    let wanted = format!("an even number of features a head, at most {WIDEST_HEAD}");
    Err(reader.out_of_range("head_dim", width, wanted))
}

/// A token; some files write -1 for "none".
fn token(reader: &Reader<'_>, key: &'static str) -> Result<Option<u32>, ConfigError> {
    if reader.get(key).is_some_and(|value| value.as_i64() == Some(-1)) {
        return Ok(None);
    }
    Ok(reader.count(key, 0)?.map(|id| id as u32))
}

/// A token, or a list of tokens.
fn tokens(reader: &Reader<'_>, key: &'static str) -> Result<Vec<u32>, ConfigError> {
    let Some(list) = reader.get(key).and_then(serde_json::Value::as_array) else {
        return Ok(token(reader, key)?.into_iter().collect());
    };
    let id = |value: &serde_json::Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
    list.iter()
        .map(|value| id(value).ok_or_else(|| reader.wrong_type(key, "a list of tokens", value)))
        .collect()
}

#[cfg(test)]
mod tests;
