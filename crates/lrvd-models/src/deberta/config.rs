//! The settings in the `config.json` of a DeBERTa-v2/v3, BERT, RoBERTa or XLM-RoBERTa.
//!
//! Typed, checked once, with transformers' defaults. A value that would change the result and is not supported is
//! an error that names it; an unknown key is kept in [`DebertaConfig::unrecognised`] for the loader to report.

use std::collections::BTreeMap;
use std::path::Path;

use lrvd_burn::files::{WeightStore, is_file};
use lrvd_core::error::quoted;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::activation::Activation;
use super::family::Family;
use super::relative_position::RelativePositions;
use crate::error::{Error, Result};
use crate::json::{JsonObject, plain, unknown};

/// Sizes of which a number below 1 stands for "none".
const OPTIONAL: &str = "max_relative_positions position_buckets conv_kernel_size";
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
    /// What follows it: GELU, or tanh, which is transformers' default.
    pub activation: Activation,
}

/// What the classification head is trained for.
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

/// What the head reads of the last hidden state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pooling {
    /// The first token, through the pooler.
    #[default]
    First,
    /// The mean over all tokens but padding, without a pooler.
    Mean,
}

impl Pooling {
    /// Where a folder of sentence-transformers says what is read.
    pub const FILE: &str = "1_Pooling/config.json";

    /// The mean, if the [file](Self::FILE) in `folder` says so; else the first token.
    pub fn of_folder(folder: &Path) -> Result<Self> {
        let file = folder.join(Self::FILE);
        if !is_file(&file)? {
            return Ok(Self::First);
        }
        let json = JsonObject::open(&file)?;
        let flag = json.get("pooling_mode_mean_tokens").and_then(Value::as_bool);
        let is_mean = flag.unwrap_or_else(|| json.get("pooling_mode").is_some_and(|v| v == "mean"));
        Ok(if is_mean { Self::Mean } else { Self::First })
    }

    /// Whether it is the usual one, for `skip_serializing_if`.
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
    pub vocab_size: usize,
    /// Width of the hidden states; a multiple of the number of heads.
    pub hidden_size: usize,
    /// Number of layers; at least 1.
    pub num_hidden_layers: usize,
    /// Number of heads; at least 1.
    pub num_attention_heads: usize,
    /// Width between the two feed-forward projections.
    pub intermediate_size: usize,
    /// Width of the word embedding; where it differs from `hidden_size` there is an `embed_proj` without bias.
    pub embedding_size: usize,
    /// Between those two.
    pub hidden_act: Activation,
    /// Added to the variance in every layer norm.
    pub layer_norm_eps: f64,
    /// Rows of the position embedding; see [`Self::positions`].
    pub max_position_embeddings: usize,
    /// Absolute position embeddings are added to the words.
    pub position_biased_input: bool,
    /// Rows of the token-type embedding; 0 for none.
    pub type_vocab_size: usize,
    /// Padding token, whose embedding gets no gradient, and from which RoBERTa counts positions.
    pub pad_token_id: Option<usize>,
    /// Scores have position terms.
    pub relative_attention: bool,
    /// Farthest distance; `max_position_embeddings` where the file has -1.
    pub max_relative_positions: usize,
    /// Number of position buckets, or none: one row for every distance.
    pub position_buckets: Option<usize>,
    /// The relative embeddings pass a layer norm (which exists in the file also where they do not).
    #[serde(skip)]
    pub norm_rel_ebd: bool,
    /// Position keys and queries come from the content projections.
    pub share_att_key: bool,
    /// Scores have the term content to position, `q_i · pk[row(i - j)]`.
    #[serde(skip)]
    pub c2p: bool,
    /// Scores have the term position to content, `k_j · pq[row(i - j)]`.
    #[serde(skip)]
    pub p2c: bool,
    /// Convolution after the first layer, if any.
    #[serde(skip)]
    pub convolution: Option<ConvolutionConfig>,
    /// Dropout probability of embeddings, projections and feed-forward.
    pub hidden_dropout_prob: f64,
    /// Dropout probability of the attention weights.
    pub attention_probs_dropout_prob: f64,
    /// Dropout probability before the pooler.
    pub pooler_dropout: f64,
    /// Dropout probability before the classifier; `hidden_dropout_prob` by default.
    pub cls_dropout: f64,
    /// What the head reads. No file says: it is a setting of a fine-tuning run.
    #[serde(skip)]
    pub pooling: Pooling,
    /// Standard deviation of new weights.
    pub initializer_range: f64,
    /// Names of the labels, by class; two where the file names none.
    #[serde(skip)]
    pub id2label: Vec<String>,
    /// What the head is for, if the file states it.
    pub problem_type: Option<ProblemType>,
    /// Keys of the file that were neither read nor known to be harmless, sorted.
    #[serde(flatten, deserialize_with = "unknown")]
    pub unrecognised: Vec<String>,
}

impl DebertaConfig {
    /// Reads a `config.json`, and the pooling of the folder that it is in.
    pub fn read(file: &Path) -> Result<Self> {
        let pooling = Pooling::of_folder(file.parent().unwrap_or(file))?;
        Ok(Self { pooling, ..Self::of(JsonObject::open(file)?)? })
    }

    /// Reads the text of a `config.json`; `file` is only named in errors.
    pub fn parse(text: &[u8], file: &Path) -> Result<Self> {
        Self::of(JsonObject::parse(text, file)?)
    }

    /// The weights in a folder or file, under the names of a model with a head.
    pub fn open_weights(&self, path: &Path) -> Result<WeightStore> {
        self.family.renamed(WeightStore::open(path)?)
    }

    fn of(mut json: JsonObject<'_>) -> Result<Self> {
        let file = json.file;
        let known = Family::ALL.map(Family::model_type);
        json.require("model_type", &quoted(known))?;
        json.check_names("model_type", &known)?;
        let stated = json.get("model_type").and_then(Value::as_str);
        let family = Family::ALL.into_iter().find(|family| Some(family.model_type()) == stated);
        let family = family.unwrap_or_default();
        // A written null means that no row is the padding.
        let usual = usize::from(family.shifts_positions());
        let pad = json.map.get("pad_token_id").is_none_or(|id| !id.is_null()).then_some(usual);
        json.fill(json!({
            "attention_probs_dropout_prob": 0.1, "hidden_dropout_prob": 0.1, "hidden_act": "gelu",
            "initializer_range": 0.02, "max_position_embeddings": 512, "pad_token_id": pad,
        }));
        json.check_model(family.model_type())?;
        let head =
            if family == Family::Deberta { deberta(&json) } else { bert(&mut json, family)? };
        json.fill(head);
        json.check(OPTIONAL, "an integer", Value::is_i64)?;
        json.map.retain(|key, value| {
            !OPTIONAL.split(' ').any(|optional| optional == key)
                || value.as_i64().is_none_or(|value| value > 0)
        });
        json.check_counts(OPTIONAL, 1)?;
        json.fill(json!({
            "embedding_size": json.get("hidden_size"),
            "max_relative_positions": json.get("max_position_embeddings"),
        }));
        json.take_only(&[
            ("pooler_hidden_act", json!("gelu")),
            ("conv_groups", json!(1)),
            ("attention_head_size", json.head_width()?.into()),
            ("pooler_hidden_size", json.get("hidden_size").cloned().into()),
        ])?;
        json.check_names("hidden_act", &Activation::HIDDEN)?;
        let norms = names(&mut json, "norm_rel_ebd", &["layer_norm", "none"])?;
        let terms = names(&mut json, "pos_att_type", &["c2p", "p2c"])?;
        let [c2p, p2c] = ["c2p", "p2c"].map(|term| terms.iter().any(|name| name == term));
        let convolution = convolution(&mut json)?;
        let id2label = labels(&mut json)?;
        let problems = ["regression", "single_label_classification", "multi_label_classification"];
        json.check_names("problem_type", &problems)?;
        let config = Self {
            family,
            norm_rel_ebd: norms.iter().any(|name| name == "layer_norm"),
            c2p,
            p2c,
            convolution,
            id2label,
            ..json.read()?
        };
        config.check(file)?;
        Ok(config)
    }

    /// Conditions between several keys.
    fn check(&self, file: &Path) -> Result<()> {
        let wrong = |key, expected, found| Err(Error::format(file, key, expected, found));
        if let Some(pad) = self.pad_token_id.filter(|&pad| pad >= self.vocab_size) {
            let expected = format!("an id below `vocab_size` = {}", self.vocab_size);
            return wrong("pad_token_id", expected, format!("`{pad}`"));
        }
        if self.family.shifts_positions() {
            let Some(pad) = self.pad_token_id else {
                let expected = "an id, from which positions are counted".to_owned();
                return wrong("pad_token_id", expected, "nothing".to_owned());
            };
            if self.max_position_embeddings <= pad + 1 {
                let expected = format!("more than {}, for rows above `pad_token_id`", pad + 1);
                let found = format!("`{}`", self.max_position_embeddings);
                return wrong("max_position_embeddings", expected, found);
            }
        }
        if !self.relative_attention {
            return Ok(());
        }
        match RelativePositions::new(self.position_buckets, self.max_relative_positions) {
            Ok(_) => Ok(()),
            Err(Error::Argument { name, expected, found }) => {
                wrong(name, expected, format!("`{found}`"))
            }
            Err(other) => Err(other),
        }
    }

    /// How distances map to rows of the relative-embedding table; `None` without relative attention.
    pub fn relative_positions(&self) -> Option<RelativePositions> {
        if !self.relative_attention {
            return None;
        }
        RelativePositions::new(self.position_buckets, self.max_relative_positions).ok()
    }

    /// The most tokens of an input, for a model with a row for every position; `None` where only distances count.
    pub fn positions(&self) -> Option<usize> {
        // Rows up to the padding's are not those of a token.
        let pad = self.pad_token_id.filter(|_| self.family.shifts_positions());
        let unused = pad.map_or(0, |pad| pad + 1);
        self.position_biased_input.then_some(self.max_position_embeddings.saturating_sub(unused))
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
}

/// What a DeBERTa leaves out of the file.
fn deberta(json: &JsonObject<'_>) -> Value {
    json!({
        "layer_norm_eps": 1e-7, "pooler_dropout": 0.0, "position_biased_input": true,
        "relative_attention": false, "share_att_key": false, "type_vocab_size": 0,
        "cls_dropout": json.get("hidden_dropout_prob"),
    })
}

/// What a BERT or RoBERTa leaves out of the file, and the settings of a DeBERTa that it has not. The head's own dropout,
/// which is `classifier_dropout`, is before both layers of RoBERTa's head, and before the classifier of BERT.
fn bert(json: &mut JsonObject<'_>, family: Family) -> Result<Value> {
    json.take_only(&[("position_embedding_type", json!("absolute"))])?;
    let other = DEBERTA_ONLY.split_whitespace().find(|key| json.get(key).is_some());
    if let Some(key) = other {
        return Err(json.unsupported(key, format!("none in a `{}`", family.model_type())));
    }
    let dropout = json.map.remove("classifier_dropout");
    let dropout = dropout.or_else(|| json.get("hidden_dropout_prob").cloned());
    Ok(json!({
        "layer_norm_eps": 1e-12, "position_biased_input": true, "relative_attention": false,
        "share_att_key": false, "type_vocab_size": 2, "cls_dropout": dropout,
        "pooler_dropout": if family == Family::Bert { json!(0.0) } else { json!(dropout) },
    }))
}

/// Takes a list of names, or a text with `|` between them; empty names are left out.
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

/// Takes the keys of the convolution; without a kernel the activation means nothing.
fn convolution(json: &mut JsonObject<'_>) -> Result<Option<ConvolutionConfig>> {
    if json.count("conv_kernel_size").is_some_and(|width| width.is_multiple_of(2)) {
        return Err(json.unsupported("conv_kernel_size", "odd widths"));
    }
    json.check_names("conv_act", &["gelu", "tanh"])?;
    let activation = match json.map.remove("conv_act") {
        Some(name) if name == "gelu" => Activation::Gelu,
        _ => Activation::Tanh,
    };
    let kernel_size = json.count("conv_kernel_size");
    json.map.remove("conv_kernel_size");
    Ok(kernel_size.map(|kernel_size| ConvolutionConfig { kernel_size, activation }))
}

/// Takes the names of the labels, in the order of their classes; transformers' default is two.
fn labels(json: &mut JsonObject<'_>) -> Result<Vec<String>> {
    let stated = json.count("num_labels");
    if stated.is_some_and(|stated| stated > MOST_LABELS) {
        return Err(json.wrong("num_labels", format!("1 to {MOST_LABELS}")));
    }
    let names: Vec<String> = match json.get("id2label") {
        None => (0..stated.unwrap_or(2)).map(|class| format!("LABEL_{class}")).collect(),
        Some(value) => {
            let names = BTreeMap::<usize, Value>::deserialize(value)
                .map_err(|_| json.wrong("id2label", "a map from class numbers to names"))?;
            if names.is_empty() || !names.keys().copied().eq(0..names.len()) {
                return Err(json.wrong("id2label", "the classes 0, 1, … without a gap"));
            }
            names.values().map(plain).collect()
        }
    };
    if stated.is_some_and(|stated| stated != names.len()) {
        return Err(json.wrong("num_labels", format!("{}, as `id2label` has it", names.len())));
    }
    json.map.retain(|key, _| !["num_labels", "id2label"].contains(&&**key));
    Ok(names)
}
