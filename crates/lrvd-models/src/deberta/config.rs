//! The settings of a DeBERTa-v2/v3 `config.json`.
//!
//! Typed, checked once, with transformers' defaults. A value that would change the result and is not supported is
//! an error that names it; an unknown key is kept in [`DebertaConfig::unrecognised`] for the loader to report.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use super::relative_position::RelativePositions;
use crate::config_reader::Reader;
use crate::error::{Error, Result};

/// Keys that are not read and change nothing here.
const HARMLESS: &[&str] = &[
    "bos_token_id",
    "eos_token_id",
    "gradient_checkpointing",
    // Chooses between two masked-language-modelling heads.
    "legacy",
    "tf_legacy_loss",
    // Ties the masked-language-modelling head, which is not used here.
    "tie_word_embeddings",
    "use_bfloat16",
];

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
/// Names are those of `config.json`; sizes are numbers of features by default.
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
    /// Longest input with absolute positions; relative ones have none.
    pub max_position_embeddings: usize,
    /// Absolute position embeddings are added to the words.
    pub position_biased_input: bool,
    /// Rows of the token-type embedding; 0 for none.
    pub type_vocab_size: usize,
    /// Padding token, whose embedding gets no gradient.
    pub pad_token_id: Option<usize>,
    /// Scores have position terms.
    pub relative_attention: bool,
    /// Farthest distance; `max_position_embeddings` where the file has -1.
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
    /// Dropout probability before the classifier; `hidden_dropout_prob` by default.
    pub cls_dropout: f64,
    /// Standard deviation of new weights.
    pub initializer_range: f64,
    /// Names of the labels, by class; two where the file names none.
    pub id2label: Vec<String>,
    /// What the head is for, if the file states it.
    pub problem_type: Option<ProblemType>,
    /// Keys of the file that were neither read nor known to be harmless, sorted.
    unrecognised: Vec<String>,
}

impl DebertaConfig {
    /// Reads a `config.json`.
    pub fn read(file: &Path) -> Result<Self> {
        Self::of(&Reader::open(file)?)
    }

    /// Reads the text of a `config.json`; `file` is only named in errors.
    pub fn parse(text: &[u8], file: &Path) -> Result<Self> {
        Self::of(&Reader::new(text, file)?)
    }

    fn of(reader: &Reader<'_>) -> Result<Self> {
        reader.only("model_type", "deberta-v2", None)?;
        for key in ["hidden_act", "pooler_hidden_act"] {
            reader.only(key, "gelu", Some("gelu"))?;
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
            unrecognised: reader.rest(HARMLESS, &[])?,
        };
        config.check(reader)?;
        Ok(config)
    }

    /// Conditions between several keys.
    fn check(&self, reader: &Reader<'_>) -> Result<()> {
        if let Some(pad) = self.pad_token_id.filter(|&pad| pad >= self.vocab_size) {
            let expected = format!("an id below `vocab_size` = {}", self.vocab_size);
            return Err(reader.wrong("pad_token_id", expected, pad));
        }
        if self.problem_type == Some(ProblemType::Regression) && self.num_labels() != 1 {
            let found = format!("regression with {} labels", self.num_labels());
            return Err(reader.unsupported("problem_type", found, "regression with 1 label"));
        }
        if self.relative_attention {
            RelativePositions::new(self.position_buckets, self.max_relative_positions).map_err(
                |error| match error {
                    Error::Argument { name, expected, found } => {
                        reader.wrong(name, expected, found)
                    }
                    other => other,
                },
            )?;
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

    /// What the head is trained for: as the file states, else regression for a single output.
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

fn head_size(reader: &Reader<'_>, hidden: usize, heads: usize) -> Result<usize> {
    if !hidden.is_multiple_of(heads) {
        let expected = format!("a multiple of `num_attention_heads` = {heads}");
        return Err(reader.wrong("hidden_size", expected, hidden));
    }
    let size = reader.count("attention_head_size", 1)?.unwrap_or(hidden / heads);
    if size != hidden / heads {
        let supported = "`hidden_size` divided by `num_attention_heads`";
        return Err(reader.unsupported("attention_head_size", size, supported));
    }
    Ok(size)
}

/// A number above 0; anything below stands for "none".
fn positive(reader: &Reader<'_>, key: &'static str) -> Result<Option<usize>> {
    if reader.integer(key)?.is_some_and(|value| value < 1) {
        return Ok(None);
    }
    reader.count(key, 1)
}

/// 0 by default; a written null means that no row is the padding.
fn pad_token_id(reader: &Reader<'_>) -> Result<Option<usize>> {
    let id = reader.count("pad_token_id", 0)?;
    Ok(id.or(if reader.map.contains_key("pad_token_id") { None } else { Some(0) }))
}

fn norm_rel_ebd(reader: &Reader<'_>) -> Result<bool> {
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

fn pos_att_type(reader: &Reader<'_>) -> Result<PositionAttention> {
    let key = "pos_att_type";
    let mut terms = PositionAttention::default();
    let Some(value) = reader.get(key) else { return Ok(terms) };
    let list = match value {
        Value::String(text) => {
            text.to_lowercase().split('|').map(|name| name.trim().into()).collect()
        }
        Value::Array(list) => list.clone(),
        _ => Vec::new(),
    };
    let names: Option<Vec<&str>> = list.iter().map(Value::as_str).collect();
    let expected = "a list of strings, or a string with `|` between them";
    let names = names.filter(|_| value.is_string() || value.is_array());
    for name in names.ok_or_else(|| reader.wrong(key, expected, value))? {
        match name {
            "c2p" => terms.c2p = true,
            "p2c" => terms.p2c = true,
            "" => {}
            other => return Err(reader.unsupported(key, other, "`c2p`, `p2c`")),
        }
    }
    Ok(terms)
}

fn convolution(reader: &Reader<'_>) -> Result<Option<Convolution>> {
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
fn labels(reader: &Reader<'_>) -> Result<Vec<String>> {
    let stated = reader.count("num_labels", 1)?;
    if let Some(stated) = stated.filter(|&stated| stated > MOST_LABELS) {
        return Err(reader.wrong("num_labels", format!("1 to {MOST_LABELS}"), stated));
    }
    let Some(value) = reader.get("id2label") else {
        return Ok((0..stated.unwrap_or(2)).map(|class| format!("LABEL_{class}")).collect());
    };
    let wrong = || reader.wrong("id2label", "a map from class numbers to names", value);
    let mut by_class = BTreeMap::new();
    for (class, name) in value.as_object().ok_or_else(wrong)? {
        let class: usize = class.parse().map_err(|_| wrong())?;
        let name = name.as_str().map_or_else(|| name.to_string(), str::to_owned);
        by_class.insert(class, name);
    }
    let n_labels = by_class.len();
    let contiguous = by_class.keys().copied().eq(0..n_labels);
    if n_labels == 0 || !contiguous {
        let expected = "the classes 0, 1, … without a gap";
        return Err(reader.wrong("id2label", expected, value));
    }
    if let Some(stated) = stated.filter(|&stated| stated != n_labels) {
        let expected = format!("{n_labels}, as `id2label` has it");
        return Err(reader.wrong("num_labels", expected, stated));
    }
    Ok(by_class.into_values().collect())
}

fn problem_type(reader: &Reader<'_>) -> Result<Option<ProblemType>> {
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
