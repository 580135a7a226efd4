//! The settings of a DeBERTa-v2/v3 `config.json`.
//!
//! Typed, checked once, with transformers' defaults. A value that would change the result and is not supported is
//! refused by name; an unknown key is kept in [`DebertaConfig::unrecognised`] for the loader to report.

use std::collections::BTreeMap;
use std::path::Path;

use super::relative_position::RelativePositions;
pub use crate::config_error::ConfigError;
use crate::config_reader::{Reader, SpareKeys};

/// What a configuration may hold without being read.
const SPARE: SpareKeys = SpareKeys {
    harmless: &[
        "architectures",
        "begin_suppress_tokens",
        "bos_token_id",
        "chunk_size_feed_forward",
        "cls_token_id",
        "decoder_start_token_id",
        "dtype",
        "eos_token_id",
        "finetuning_task",
        "gradient_checkpointing",
        "label2id",
        // Chooses between two masked-language-modelling heads.
        "legacy",
        "mask_token_id",
        "name_or_path",
        "output_attentions",
        "output_hidden_states",
        "prefix",
        "return_dict",
        "sep_token_id",
        "task_specific_params",
        "tf_legacy_loss",
        // Ties the masked-language-modelling head, which is not used here.
        "tie_word_embeddings",
        "tokenizer_class",
        "torch_dtype",
        "torchscript",
        "transformers_version",
        "use_bfloat16",
        "use_cache",
    ],
    only_idle: &[
        "add_cross_attention",
        "is_decoder",
        "is_encoder_decoder",
        "pruned_heads",
        "quantization_config",
    ],
};

/// Which position terms the attention scores have beside content to content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PositionAttention {
    /// Content to position, `q_i · pk[row(i - j)]`.
    pub c2p: bool,
    /// Position to content, `k_j · pq[row(i - j)]`.
    pub p2c: bool,
}

/// Activation after the convolution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConvolutionActivation {
    /// Exact (erf) GELU.
    Gelu,
    /// Hyperbolic tangent, transformers' default.
    Tanh,
}

/// The convolution beside the first layer of some v2 checkpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Convolution {
    /// Width, odd, so that the length stays the same.
    pub kernel_size: usize,
    /// What follows it.
    pub activation: ConvolutionActivation,
}

/// What the classification head is trained for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProblemType {
    /// One number per example, mean squared error.
    Regression,
    /// One class per example, cross-entropy.
    Classification,
}

/// A DeBERTa-v2/v3 model with a sequence-classification head.
///
/// Names are those of `config.json`; sizes are numbers of features unless said otherwise.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "the switches of `config.json`, one to one")]
pub struct DebertaConfig {
    /// Rows of the word embedding; at least 1.
    pub vocab_size: usize,
    /// Width of the hidden states; a multiple of the number of heads.
    pub hidden_size: usize,
    /// Number of layers; at least 1.
    pub num_hidden_layers: usize,
    /// Number of heads; at least 1.
    pub num_attention_heads: usize,
    /// Width of a head; heads times this is `hidden_size`.
    pub attention_head_size: usize,
    /// Width between the two feed-forward projections.
    pub intermediate_size: usize,
    /// Width of the word embedding; where it differs from `hidden_size` there is an `embed_proj` without bias.
    pub embedding_size: usize,
    /// Added to the variance in every layer norm.
    pub layer_norm_eps: f64,
    /// Longest input with absolute positions; relative ones continue beyond it.
    pub max_position_embeddings: usize,
    /// Absolute position embeddings are added to the words.
    pub position_biased_input: bool,
    /// Rows of the token-type embedding; 0 for none.
    pub type_vocab_size: usize,
    /// Padding token, whose embedding gets no gradient.
    pub pad_token_id: Option<usize>,
    /// Scores have position terms.
    pub relative_attention: bool,
    /// Farthest distance; `max_position_embeddings` where the file says -1.
    pub max_relative_positions: usize,
    /// Number of position buckets, or none: one row for every distance.
    pub position_buckets: Option<usize>,
    /// The relative embeddings pass a layer norm (which exists in the file also where they do not).
    pub norm_rel_ebd: bool,
    /// Position keys and queries come from the content projections.
    pub share_att_key: bool,
    /// Which position terms there are.
    pub pos_att_type: PositionAttention,
    /// Convolution after the first layer, if any.
    pub convolution: Option<Convolution>,
    /// Dropout probability of embeddings, projections and feed-forward.
    pub hidden_dropout_prob: f64,
    /// Dropout probability of the attention weights.
    pub attention_probs_dropout_prob: f64,
    /// Dropout probability before the pooler.
    pub pooler_dropout: f64,
    /// Dropout probability before the classifier; `hidden_dropout_prob` where the file does not say.
    pub cls_dropout: f64,
    /// Standard deviation of new weights.
    pub initializer_range: f64,
    /// Names of the labels, by class; two where the file names none.
    pub id2label: Vec<String>,
    /// What the head is for, where the file says it.
    pub problem_type: Option<ProblemType>,
    /// Keys of the file that were neither read nor known to be harmless, sorted.
    unrecognised: Vec<String>,
}

impl DebertaConfig {
    /// Reads a `config.json`.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if it cannot be read, lacks a size, holds a value of the wrong type or range, or asks for
    /// something that is not supported.
    pub fn read(file: &Path) -> Result<Self, ConfigError> {
        Self::parse(&Reader::bytes(file)?, file)
    }

    /// Reads the text of a `config.json`; `file` is only named in errors.
    ///
    /// # Errors
    ///
    /// As [`DebertaConfig::read`].
    pub fn parse(text: &[u8], file: &Path) -> Result<Self, ConfigError> {
        let reader = &Reader::new(text, file)?;
        reader.model_type(("deberta-v2", "`deberta-v2`"))?;
        for key in ["hidden_act", "pooler_hidden_act"] {
            let name = reader.text(key)?.unwrap_or("gelu");
            if name != "gelu" {
                return Err(reader.unsupported(key, name, "`gelu`"));
            }
        }
        let hidden_size = reader.required("hidden_size")?;
        let num_attention_heads = reader.required("num_attention_heads")?;
        let attention_head_size = head_size(reader, hidden_size, num_attention_heads)?;
        let pooler_hidden_size = reader.count("pooler_hidden_size", 1)?.unwrap_or(hidden_size);
        if pooler_hidden_size != hidden_size {
            let supported = "the value of `hidden_size`";
            return Err(reader.unsupported("pooler_hidden_size", pooler_hidden_size, supported));
        }
        let max_position_embeddings = reader.count("max_position_embeddings", 1)?.unwrap_or(512);
        let hidden_dropout_prob = reader.float("hidden_dropout_prob", 0.0..=1.0)?.unwrap_or(0.1);
        let config = Self {
            vocab_size: reader.required("vocab_size")?,
            hidden_size,
            num_hidden_layers: reader.required("num_hidden_layers")?,
            num_attention_heads,
            attention_head_size,
            intermediate_size: reader.required("intermediate_size")?,
            embedding_size: reader.count("embedding_size", 1)?.unwrap_or(hidden_size),
            layer_norm_eps: reader
                .float("layer_norm_eps", f64::MIN_POSITIVE..=1.0)?
                .unwrap_or(1e-7),
            max_position_embeddings,
            position_biased_input: reader.boolean("position_biased_input")?.unwrap_or(true),
            type_vocab_size: reader.count("type_vocab_size", 0)?.unwrap_or(0),
            pad_token_id: pad_token_id(reader)?,
            relative_attention: reader.boolean("relative_attention")?.unwrap_or(false),
            // Any value below 1 stands for "as many as there are positions".
            max_relative_positions: positive(reader, "max_relative_positions")?
                .unwrap_or(max_position_embeddings),
            position_buckets: positive(reader, "position_buckets")?,
            norm_rel_ebd: norm_rel_ebd(reader)?,
            share_att_key: reader.boolean("share_att_key")?.unwrap_or(false),
            pos_att_type: pos_att_type(reader)?,
            convolution: convolution(reader)?,
            hidden_dropout_prob,
            attention_probs_dropout_prob: reader
                .float("attention_probs_dropout_prob", 0.0..=1.0)?
                .unwrap_or(0.1),
            pooler_dropout: reader.float("pooler_dropout", 0.0..=1.0)?.unwrap_or(0.0),
            cls_dropout: reader.float("cls_dropout", 0.0..=1.0)?.unwrap_or(hidden_dropout_prob),
            initializer_range: reader.float("initializer_range", 0.0..=f64::MAX)?.unwrap_or(0.02),
            id2label: labels(reader)?,
            problem_type: problem_type(reader)?,
            unrecognised: reader.rest(&SPARE)?,
        };
        config.check(reader, file)?;
        Ok(config)
    }

    /// Conditions between several keys.
    fn check(&self, reader: &Reader<'_>, file: &Path) -> Result<(), ConfigError> {
        if let Some(pad) = self.pad_token_id.filter(|&pad| pad >= self.vocab_size) {
            let wanted = format!("an id below `vocab_size` = {}", self.vocab_size);
            return Err(reader.out_of_range("pad_token_id", pad, wanted));
        }
        if self.problem_type == Some(ProblemType::Regression) && self.num_labels() != 1 {
            let found = format!("regression with {} labels", self.num_labels());
            return Err(reader.unsupported("problem_type", found, "regression with 1 label"));
        }
        if self.relative_attention {
            RelativePositions::new(self.position_buckets, self.max_relative_positions)
                .map_err(|source| ConfigError::Positions { file: file.into(), source })?;
        }
        Ok(())
    }

    /// How distances map to rows of the relative-embedding table; `None` without relative attention.
    pub fn relative_positions(&self) -> Option<RelativePositions> {
        if !self.relative_attention {
            return None;
        }
        RelativePositions::new(self.position_buckets, self.max_relative_positions).ok()
    }

    /// Number of outputs of the classifier.
    pub fn num_labels(&self) -> usize {
        self.id2label.len()
    }

    /// What the head is trained for: what the file says, else regression for a single output.
    pub fn problem(&self) -> ProblemType {
        self.problem_type.unwrap_or(match self.num_labels() {
            1 => ProblemType::Regression,
            _ => ProblemType::Classification,
        })
    }

    /// The same model with a new head for these labels; a single label is a regression.
    #[must_use]
    pub fn with_labels(mut self, labels: Vec<String>) -> Self {
        self.id2label = labels;
        self.problem_type = None;
        self
    }

    /// Keys of the file that were neither read nor known to be harmless, sorted.
    pub fn unrecognised(&self) -> &[String] {
        &self.unrecognised
    }
}

fn head_size(reader: &Reader<'_>, hidden: usize, heads: usize) -> Result<usize, ConfigError> {
    if !hidden.is_multiple_of(heads) {
        let wanted = format!("a multiple of `num_attention_heads` = {heads}");
        return Err(reader.out_of_range("hidden_size", hidden, wanted));
    }
    let size = reader.count("attention_head_size", 1)?.unwrap_or(hidden / heads);
    if size != hidden / heads {
        let supported = "`hidden_size` divided by `num_attention_heads`";
        return Err(reader.unsupported("attention_head_size", size, supported));
    }
    Ok(size)
}

/// A number above 0; anything below stands for "none".
fn positive(reader: &Reader<'_>, key: &'static str) -> Result<Option<usize>, ConfigError> {
    if reader.integer(key)?.is_some_and(|value| value < 1) {
        return Ok(None);
    }
    reader.count(key, 1)
}

/// 0 where the file does not say; a written null means that no row is the padding.
fn pad_token_id(reader: &Reader<'_>) -> Result<Option<usize>, ConfigError> {
    if reader.is_null("pad_token_id") {
        return Ok(None);
    }
    Ok(Some(reader.count("pad_token_id", 0)?.unwrap_or(0)))
}

fn norm_rel_ebd(reader: &Reader<'_>) -> Result<bool, ConfigError> {
    let mut norm = false;
    for part in reader.text("norm_rel_ebd")?.unwrap_or("none").to_lowercase().split('|') {
        match part.trim() {
            "layer_norm" => norm = true,
            "none" | "" => {}
            other => {
                return Err(reader.unsupported("norm_rel_ebd", other, "`layer_norm`, `none`"));
            }
        }
    }
    Ok(norm)
}

fn pos_att_type(reader: &Reader<'_>) -> Result<PositionAttention, ConfigError> {
    let key = "pos_att_type";
    let mut terms = PositionAttention::default();
    let Some(value) = reader.get(key) else { return Ok(terms) };
    let wrong = || reader.wrong_type(key, "a list of strings, or one with `|` between", value);
    let names: Vec<String> = if let Some(text) = value.as_str() {
        text.to_lowercase().split('|').map(|name| name.trim().to_owned()).collect()
    } else {
        let list = value.as_array().ok_or_else(wrong)?;
        let names = list.iter().map(|name| name.as_str().map(str::to_owned));
        names.collect::<Option<_>>().ok_or_else(wrong)?
    };
    for name in names {
        match name.as_str() {
            "c2p" => terms.c2p = true,
            "p2c" => terms.p2c = true,
            "" => {}
            other => return Err(reader.unsupported(key, other, "`c2p`, `p2c`")),
        }
    }
    Ok(terms)
}

fn convolution(reader: &Reader<'_>) -> Result<Option<Convolution>, ConfigError> {
    let kernel_size = positive(reader, "conv_kernel_size")?;
    let groups = reader.count("conv_groups", 1)?.unwrap_or(1);
    let activation = reader.text("conv_act")?.unwrap_or("tanh");
    // Without a kernel the other two keys mean nothing.
    let Some(kernel_size) = kernel_size else { return Ok(None) };
    if kernel_size.is_multiple_of(2) {
        return Err(reader.unsupported("conv_kernel_size", kernel_size, "odd widths"));
    }
    if groups != 1 {
        return Err(reader.unsupported("conv_groups", groups, "1"));
    }
    let activation = match activation {
        "gelu" => ConvolutionActivation::Gelu,
        "tanh" => ConvolutionActivation::Tanh,
        other => return Err(reader.unsupported("conv_act", other, "`gelu`, `tanh`")),
    };
    Ok(Some(Convolution { kernel_size, activation }))
}

/// More labels than any classifier has: a damaged number must not become a list of names.
const MOST_LABELS: usize = 1 << 16;

/// Names of the labels in the order of their classes; transformers' default is two.
fn labels(reader: &Reader<'_>) -> Result<Vec<String>, ConfigError> {
    let stated = reader.count("num_labels", 1)?;
    if let Some(stated) = stated.filter(|&stated| stated > MOST_LABELS) {
        return Err(reader.out_of_range("num_labels", stated, format!("1 to {MOST_LABELS}")));
    }
    let Some(value) = reader.get("id2label") else {
        return Ok((0..stated.unwrap_or(2)).map(|class| format!("LABEL_{class}")).collect());
    };
    let wrong = || reader.wrong_type("id2label", "a map from class numbers to names", value);
    let mut by_class = BTreeMap::new();
    for (class, name) in value.as_object().ok_or_else(wrong)? {
        let class: usize = class.parse().map_err(|_| wrong())?;
        let name = name.as_str().map_or_else(|| name.to_string(), str::to_owned);
        by_class.insert(class, name);
    }
    let n_labels = by_class.len();
    let contiguous = by_class.keys().copied().eq(0..n_labels);
    if n_labels == 0 || !contiguous {
        let wanted = "the classes 0, 1, … without a gap";
        return Err(reader.out_of_range("id2label", value, wanted));
    }
    if let Some(stated) = stated.filter(|&stated| stated != n_labels) {
        let wanted = format!("{n_labels}, as `id2label` has it");
        return Err(reader.out_of_range("num_labels", stated, wanted));
    }
    Ok(by_class.into_values().collect())
}

fn problem_type(reader: &Reader<'_>) -> Result<Option<ProblemType>, ConfigError> {
    match reader.text("problem_type")? {
        None => Ok(None),
        Some("regression") => Ok(Some(ProblemType::Regression)),
        Some("single_label_classification") => Ok(Some(ProblemType::Classification)),
        Some(other) => {
            let supported = "`regression`, `single_label_classification`";
            Err(reader.unsupported("problem_type", other, supported))
        }
    }
}

#[cfg(test)]
mod tests;
