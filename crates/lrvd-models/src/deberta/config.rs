//! Settings in the `config.json` of an encoder.
//!
//! Typed, checked once, with transformers' defaults. A value that would change the result and is not supported is
//! an error that names it; an unknown key is kept in [`DebertaConfig::unrecognised`] for the loader to report.

mod modern;

use std::collections::BTreeMap;
use std::path::Path;

use lrvd_burn::files::{WeightStore, is_file};
use lrvd_core::error::quoted;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::activation::Activation;
use super::family::Family;
use super::relative_position::{BIAS_ROWS, RelativePositions};
use crate::error::{Error, Result};
use crate::json::{
    JsonObject, Probability, deviation, epsilon, head_width, plain, probability, shown, size,
    unknown,
};

pub use modern::LayerAttention;

/// Sizes of which a number below 1 means "none".
const OPTIONAL: [&str; 3] = ["max_relative_positions", "position_buckets", "conv_kernel_size"];
/// Settings of a DeBERTa that change its forward pass, and that no other family has.
const DEBERTA_ONLY: &str = "relative_attention position_biased_input share_att_key norm_rel_ebd pos_att_type \
    conv_kernel_size embedding_size cls_dropout pooler_dropout";
/// More labels than any classifier has: a damaged number must not become a list of names.
const MOST_LABELS: usize = 1 << 16;

/// The convolution parallel to the first layer of some v2 checkpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConvolutionConfig {
    /// Width, odd, so that the length stays the same.
    pub kernel_size: usize,
    /// Activation of its output: GELU, or tanh, which is transformers' default.
    pub activation: Activation,
}

/// Task of the classification head.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum ProblemType {
    /// One number per example, mean squared error.
    #[serde(rename = "regression")]
    Regression,
    /// One class per example, cross-entropy.
    #[serde(rename = "single_label_classification")]
    Classification,
    /// Each class by itself, binary cross-entropy; no head here answers so.
    #[serde(rename = "multi_label_classification")]
    MultiLabel,
}

/// Input of the head, from the last hidden state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pooling {
    /// The first token, through the pooler.
    #[default]
    First,
    /// The first token, without a pooler.
    FirstToken,
    /// The mean over all tokens but padding, without a pooler.
    Mean,
    /// The mean through the pooler, which the classifier of a ModernBERT may read.
    PooledMean,
    /// The last token of a language model that was made for embeddings, such as Qwen3-Embedding.
    Last,
}

impl Pooling {
    /// File of a folder of sentence-transformers that states the pooling.
    pub const FILE: &str = "1_Pooling/config.json";

    /// The mean or the last token, if the [file](Self::FILE) in `folder` says so; else the first token.
    pub fn of_folder(folder: &Path) -> Result<Self> {
        Ok(match Self::of_embedding(folder)? {
            Some(own @ (Self::Mean | Self::Last)) => own,
            _ => Self::First,
        })
    }

    /// Pooling of the folder's embeddings: the mean, the first or the last token, as its [file](Self::FILE) says; `None` without the file.
    pub fn of_embedding(folder: &Path) -> Result<Option<Self>> {
        let file = folder.join(Self::FILE);
        if !is_file(&file)? {
            return Ok(None);
        }
        let json = JsonObject::open(&file)?;
        let is = |flag: &str, mode: &str| {
            let flag = json.get(flag).and_then(Value::as_bool);
            flag.unwrap_or_else(|| json.get("pooling_mode").is_some_and(|found| found == mode))
        };
        Ok(Some(if is("pooling_mode_mean_tokens", "mean") {
            Self::Mean
        } else if is("pooling_mode_lasttoken", "lasttoken") {
            Self::Last
        } else {
            Self::FirstToken
        }))
    }

    /// `true` if the head has a pooler.
    pub fn has_pooler(self) -> bool {
        matches!(self, Self::First | Self::PooledMean)
    }

    /// The value of `classifier_pooling` in the configuration of a [family whose head reads either](Family::reads_mean).
    pub fn classifier_pooling(self) -> &'static str {
        match self {
            Self::PooledMean | Self::Mean => "mean",
            _ => "cls",
        }
    }

    /// `true` of a head on the state of an encoder itself, as no classifier of transformers has.
    pub fn is_bare(self) -> bool {
        matches!(self, Self::FirstToken | Self::Mean)
    }

    /// Its word in settings and files.
    pub fn name(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::FirstToken => "first-token",
            Self::Mean => "mean",
            Self::PooledMean => "pooled-mean",
            Self::Last => "last",
        }
    }

    /// Input of the head, in words.
    pub fn describe(self) -> &'static str {
        match self {
            Self::First => "the first token through a pooler",
            Self::FirstToken => "the first token without a pooler",
            Self::Mean => "the mean over all tokens",
            Self::PooledMean => "the mean over all tokens through a pooler",
            Self::Last => "the last token",
        }
    }

    /// `true` for the default, for `skip_serializing_if`.
    #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    pub fn is_first(&self) -> bool {
        *self == Self::First
    }
}

/// An encoder with a sequence-classification head.
///
/// Names are those of `config.json`; sizes are numbers of features by default.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "the switches of `config.json`, one to one")]
pub struct DebertaConfig {
    /// The kind of encoder.
    #[serde(skip)]
    pub family: Family,
    /// Rows of the word embedding; at least 1.
    #[serde(deserialize_with = "size")]
    pub vocab_size: usize,
    /// Width of the hidden states; a multiple of the number of heads.
    #[serde(deserialize_with = "size")]
    pub hidden_size: usize,
    /// Number of layers; at least 1.
    #[serde(deserialize_with = "size")]
    pub num_hidden_layers: usize,
    /// Number of heads; at least 1.
    #[serde(deserialize_with = "size")]
    pub num_attention_heads: usize,
    /// Width between the two feed-forward projections.
    #[serde(deserialize_with = "size")]
    pub intermediate_size: usize,
    /// Width of the word embedding; where it differs from `hidden_size` there is an `embed_proj` without bias.
    #[serde(default, deserialize_with = "size")]
    pub embedding_size: usize,
    /// Activation between those two.
    pub hidden_act: Activation,
    /// Added to the variance in every layer norm.
    #[serde(deserialize_with = "epsilon")]
    pub layer_norm_eps: f64,
    /// Rows of the position embedding; see [`Self::positions`].
    #[serde(deserialize_with = "size")]
    pub max_position_embeddings: usize,
    /// Absolute position embeddings are added to the words.
    pub position_biased_input: bool,
    /// Rows of the token-type embedding; 0 for none.
    pub type_vocab_size: usize,
    /// Padding token, whose embedding gets no gradient, and from which RoBERTa counts positions.
    pub pad_token_id: Option<usize>,
    /// Scores have position terms.
    #[serde(default)]
    pub relative_attention: bool,
    /// Farthest distance; `max_position_embeddings` where the file has -1.
    #[serde(default, deserialize_with = "size")]
    pub max_relative_positions: usize,
    /// Number of position buckets, or none: one row for every distance.
    pub position_buckets: Option<usize>,
    /// The relative embeddings pass a layer norm (which exists in the file also where they do not).
    #[serde(skip)]
    pub norm_rel_ebd: bool,
    /// Position keys and queries come from the content projections.
    #[serde(default)]
    pub share_att_key: bool,
    /// Scores have the term content to position, `q_i · pk[row(i - j)]`.
    #[serde(skip)]
    pub c2p: bool,
    /// Scores have the term position to content, `k_j · pq[row(i - j)]`.
    #[serde(skip)]
    pub p2c: bool,
    /// Attention of every layer of a ModernBERT; empty elsewhere.
    #[serde(skip)]
    pub layer_attention: Vec<LayerAttention>,
    /// Convolution after the first layer, if any.
    #[serde(skip)]
    pub convolution: Option<ConvolutionConfig>,
    /// Dropout probability of embeddings, projections and feed-forward.
    #[serde(deserialize_with = "probability")]
    pub hidden_dropout_prob: f64,
    /// Dropout probability of the attention weights.
    #[serde(deserialize_with = "probability")]
    pub attention_probs_dropout_prob: f64,
    /// Dropout probability before the pooler.
    #[serde(default, deserialize_with = "probability")]
    pub pooler_dropout: f64,
    /// Dropout probability before the classifier; `hidden_dropout_prob` by default, 0.2 in a DistilBERT.
    #[serde(skip)]
    pub cls_dropout: f64,
    /// Input of the head: a setting of a fine-tuning run.
    #[serde(skip)]
    pub pooling: Pooling,
    /// Input of the head of transformers' classifier: what the file of a ModernBERT states, and the first token elsewhere.
    #[serde(skip)]
    pub classifier_pooling: Pooling,
    /// Standard deviation of new weights.
    #[serde(deserialize_with = "deviation")]
    pub initializer_range: f64,
    /// Names of the labels, by class; two where the file names none.
    #[serde(skip)]
    pub id2label: Vec<String>,
    /// Task of the head, if the file states it.
    pub problem_type: Option<ProblemType>,
    /// Keys of the file that were neither read nor known to be harmless, sorted.
    #[serde(flatten, deserialize_with = "unknown")]
    pub unrecognised: Vec<String>,
}

impl DebertaConfig {
    /// Reads a `config.json`, and the pooling of the folder that it is in.
    pub fn read(file: &Path) -> Result<Self> {
        let config = Self::from_object(JsonObject::open(file)?)?;
        let folder = file.parent().unwrap_or(file);
        let pooling = match Pooling::of_embedding(folder)? {
            Some(_) => Pooling::of_folder(folder)?,
            None => config.classifier_pooling,
        };
        Ok(Self { pooling, ..config })
    }

    /// Reads the text of a `config.json`; `file` is only named in errors.
    pub fn parse(text: &[u8], file: &Path) -> Result<Self> {
        Self::from_object(JsonObject::parse(text, file)?)
    }

    /// The weights in a folder or file, under the names of a model with a head.
    pub fn open_weights(&self, path: &Path) -> Result<WeightStore> {
        self.family.renamed(WeightStore::open(path)?)
    }

    fn from_object(mut json: JsonObject<'_>) -> Result<Self> {
        let model_type = json.take_model_type(&Family::model_types())?;
        let family = Family::from_model_type(model_type).unwrap_or_default();
        let keys = family.spec().keys;
        for &(own, name) in keys {
            if let Some(value) = json.map.remove(own) {
                json.map.insert(name.to_owned(), value);
            }
        }
        Self::of_family(family, json).map_err(|mut error| {
            if let Error::Format { key, .. } | Error::Unsupported { key, .. } = &mut error
                && let Some((own, _)) = keys.iter().find(|(_, name)| name == key)
            {
                *key = (*own).to_owned();
            }
            error
        })
    }

    /// From an object with BERT's keys.
    fn of_family(family: Family, mut json: JsonObject<'_>) -> Result<Self> {
        let file = json.file;
        let (model_type, spec) = (family.model_type(), family.spec());
        // transformers reads none of these keys: the values are in its code.
        json.take_only(&match family {
            Family::DistilBert => {
                vec![("layer_norm_eps", json!(1e-12)), ("type_vocab_size", json!(0))]
            }
            Family::Mpnet => vec![
                ("pad_token_id", json!(1)),
                ("relative_attention_num_buckets", json!(BIAS_ROWS)),
                ("type_vocab_size", json!(0)),
            ],
            _ => Vec::new(),
        })?;
        let modern = (family == Family::ModernBert).then(|| modern::read(&mut json)).transpose()?;
        // A written null means that no row is the padding.
        let pad = (!json.map.contains_key("pad_token_id")).then_some(spec.pad_token_id);
        json.fill(json!({
            "attention_probs_dropout_prob": 0.1, "hidden_dropout_prob": 0.1, "hidden_act": "gelu",
            "initializer_range": 0.02, "max_position_embeddings": 512, "pad_token_id": pad,
            "layer_norm_eps": spec.layer_norm_eps, "type_vocab_size": spec.type_vocab_size,
        }));
        if family != Family::Deberta {
            json.take_only(&[("position_embedding_type", json!("absolute"))])?;
            if let Some(key) = DEBERTA_ONLY.split_whitespace().find(|key| json.get(key).is_some()) {
                return Err(json.unsupported(key, format!("none in a `{model_type}`")));
            }
        }
        let (key, default) = spec.head_dropout;
        let head_dropout = json.take(key)?.map(|Probability(rate)| rate).or(default);
        json.fill(json!({"position_biased_input": true}));
        json.map.retain(|key, value| {
            !OPTIONAL.contains(&&**key) || value.as_i64().is_none_or(|value| value > 0)
        });
        json.take_only(&[("pooler_hidden_act", json!("gelu")), ("conv_groups", json!(1))])?;
        json.name("hidden_act", &Activation::HIDDEN)?;
        let norms = names(&mut json, "norm_rel_ebd", &["layer_norm", "none"])?;
        let terms = names(&mut json, "pos_att_type", &["c2p", "p2c"])?;
        let [c2p, p2c] = ["c2p", "p2c"].map(|term| terms.iter().any(|name| name == term));
        let mut config = Self {
            family,
            norm_rel_ebd: norms.iter().any(|name| name == "layer_norm"),
            c2p,
            p2c,
            convolution: convolution(&mut json)?,
            id2label: labels(&mut json)?,
            ..json.read()?
        };
        config.cls_dropout = head_dropout.unwrap_or(config.hidden_dropout_prob);
        // The dropout of the head is before both layers of RoBERTa's head, and before the classifier of BERT.
        if spec.shifts_positions {
            config.pooler_dropout = config.cls_dropout;
        }
        if let Some(modern) = modern {
            config.layer_attention = modern.layers(&json, config.num_hidden_layers)?;
            config.classifier_pooling = modern.pooling;
            config.pooling = modern.pooling;
            config.position_biased_input = false;
            modern::check_pairs(&config, file)?;
        }
        if config.embedding_size == 0 {
            config.embedding_size = config.hidden_size;
        }
        if config.max_relative_positions == 0 {
            config.max_relative_positions = config.max_position_embeddings;
        }
        let width = head_width(file, config.hidden_size, config.num_attention_heads)?;
        json.take_only(&[
            ("attention_head_size", width.into()),
            ("pooler_hidden_size", config.hidden_size.into()),
        ])?;
        config.unrecognised.retain(|key| json.map.contains_key(key));
        config.check(file)?;
        Ok(config)
    }

    /// Checks conditions between several keys.
    fn check(&self, file: &Path) -> Result<()> {
        let wrong = |key, expected, found| Err(Error::format(file, key, expected, found));
        if let Some(pad) = self.pad_token_id.filter(|&pad| pad >= self.vocab_size) {
            let expected = format!("an id below `vocab_size` = {}", self.vocab_size);
            return wrong("pad_token_id", expected, shown(pad));
        }
        if self.family.spec().shifts_positions {
            let Some(pad) = self.pad_token_id else {
                let expected = "an id, from which positions are counted".to_owned();
                return wrong("pad_token_id", expected, "nothing".to_owned());
            };
            let rows = self.max_position_embeddings;
            if rows <= pad + 1 {
                let expected = format!("more than {}, for rows above `pad_token_id`", pad + 1);
                return wrong("max_position_embeddings", expected, shown(rows));
            }
        }
        if !self.relative_attention {
            return Ok(());
        }
        match RelativePositions::new(self.position_buckets, self.max_relative_positions) {
            Ok(_) => Ok(()),
            Err(Error::Argument { name, expected, found }) => wrong(name, expected, shown(found)),
            Err(other) => Err(other),
        }
    }

    /// Map from distances to rows of the relative-embedding table; `None` without relative attention.
    pub fn relative_positions(&self) -> Option<RelativePositions> {
        if !self.relative_attention {
            return None;
        }
        RelativePositions::new(self.position_buckets, self.max_relative_positions).ok()
    }

    /// The padding token, if rows of the position embedding are counted from it: token `i` has row `counted_from + 1 + i`.
    pub fn counted_from(&self) -> Option<usize> {
        self.pad_token_id.filter(|_| self.family.spec().shifts_positions)
    }

    /// The most tokens of an input, for a model with a row or an angle for every position; `None` where only distances count.
    pub fn positions(&self) -> Option<usize> {
        if !self.layer_attention.is_empty() {
            return Some(self.max_position_embeddings);
        }
        // Rows up to the padding's are not those of a token.
        let unused = self.counted_from().map_or(0, |pad| pad + 1);
        self.position_biased_input.then_some(self.max_position_embeddings.saturating_sub(unused))
    }

    /// Linear layers of an encoder layer: path in it, and widths of the input and of the output.
    pub fn linear_layers(&self) -> Vec<(&'static str, [usize; 2])> {
        let (d, wide) = (self.hidden_size, self.intermediate_size);
        let gated = if self.family == Family::ModernBert { 2 * wide } else { wide };
        let widths = [[d, d], [d, d], [d, d], [d, d], [d, gated], [wide, d]];
        let mut layers: Vec<(&'static str, [usize; 2])> = Vec::new();
        for (name, widths) in self.family.spec().layers.into_iter().zip(widths) {
            match layers.last_mut() {
                Some((last, [_, output])) if *last == name => *output += widths[1],
                _ => layers.push((name, widths)),
            }
        }
        layers
    }

    /// Number of outputs of the classifier.
    pub fn num_labels(&self) -> usize {
        self.id2label.len()
    }

    /// Task of the head: as the file states, else regression for a single output.
    pub fn problem(&self) -> ProblemType {
        self.problem_type.unwrap_or(match self.num_labels() {
            1 => ProblemType::Regression,
            _ => ProblemType::Classification,
        })
    }

    /// Configuration of this model with a new head for these labels; a single label is a regression.
    #[must_use]
    pub fn with_labels(mut self, labels: Vec<String>) -> Self {
        self.id2label = labels;
        self.problem_type = None;
        self
    }
}

/// Removes a list of names, or a text with `|` between them; empty names are left out.
fn names(json: &mut JsonObject<'_>, key: &str, known: &[&str]) -> Result<Vec<String>> {
    let names = match json.get(key) {
        None => Vec::new(),
        Some(Value::String(text)) => {
            text.to_lowercase().split('|').map(|name| name.trim().to_owned()).collect()
        }
        Some(list) => Vec::<String>::deserialize(list)
            .map_err(|_| json.wrong(key, "a list of strings, or a string with `|` between them"))?,
    };
    let names: Vec<String> = names.into_iter().filter(|name| !name.is_empty()).collect();
    if names.iter().any(|name| !known.contains(&&**name)) {
        return Err(json.unsupported(key, quoted(known)));
    }
    json.map.remove(key);
    Ok(names)
}

/// Removes the keys of the convolution; without a kernel the activation is unused.
fn convolution(json: &mut JsonObject<'_>) -> Result<Option<ConvolutionConfig>> {
    let activation = match json.name("conv_act", &["gelu", "tanh"])? {
        Some("gelu") => Activation::Gelu,
        _ => Activation::Tanh,
    };
    json.map.remove("conv_act");
    let width = json.take::<usize>("conv_kernel_size")?;
    if let Some(width) = width.filter(|width| width.is_multiple_of(2)) {
        return Err(Error::unsupported(json.file, "conv_kernel_size", width, "odd widths"));
    }
    Ok(width.map(|kernel_size| ConvolutionConfig { kernel_size, activation }))
}

/// Removes the names of the labels, in the order of their classes; transformers' default is two.
fn labels(json: &mut JsonObject<'_>) -> Result<Vec<String>> {
    let stated = json.take::<usize>("num_labels")?;
    let names = json.take::<BTreeMap<usize, Value>>("id2label")?;
    let wrong = |key, expected, found| Err(Error::format(json.file, key, expected, found));
    if let Some(stated) = stated.filter(|stated| !(1..=MOST_LABELS).contains(stated)) {
        return wrong("num_labels", format!("1 to {MOST_LABELS}"), shown(stated));
    }
    let Some(names) = names else {
        return Ok((0..stated.unwrap_or(2)).map(|class| format!("LABEL_{class}")).collect());
    };
    if names.is_empty() || !names.keys().copied().eq(0..names.len()) {
        let found = names.keys().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        return wrong("id2label", "the classes 0, 1, … without a gap".to_owned(), shown(found));
    }
    if let Some(stated) = stated.filter(|&stated| stated != names.len()) {
        let expected = format!("{}, as `id2label` has it", names.len());
        return wrong("num_labels", expected, shown(stated));
    }
    Ok(names.values().map(plain).collect())
}
