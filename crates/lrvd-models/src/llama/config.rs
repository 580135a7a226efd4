//! The settings of a `config.json` of Llama, Mistral or Qwen.
//!
//! Typed, checked once, with transformers' defaults; both spellings of the rotary settings are read (`rope_theta` and
//! `rope_scaling` at the top level, or `rope_parameters` of transformers 5). A value that would change the result and
//! is not supported is an error that names it; an unknown key is kept in [`LlamaConfig::unrecognised`].

use std::path::Path;

use lrvd_burn::files::is_file;
use lrvd_core::error::quoted;
use serde::Deserialize;
use serde_json::{Value, json};

use super::family::{LlamaFamily, Window};
use crate::error::{Error, Result};
use crate::json::{JsonObject, plain, shown, unknown};

/// Wider heads are those of a damaged file, whose rotary tables must not be made.
const WIDEST_HEAD: usize = 1 << 16;

/// Window in tokens where a file has no key for it.
const WINDOW: usize = 4096;
/// First layer with a window where a file has no key for it.
const FIRST_WINDOW: usize = 28;

/// A model of one of the [families](LlamaFamily) with a language-modelling head.
///
/// Names are those of `config.json`; sizes are numbers of features by default.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct LlamaConfig {
    /// The family, `model_type` in the file.
    #[serde(skip)]
    pub family: LlamaFamily,
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
    /// Biases of the query, key and value projections; of the output projection see [`Self::output_bias`].
    pub attention_bias: bool,
    /// Layers whose queries see the nearest tokens only, if any.
    #[serde(skip)]
    pub sliding_window: Option<SlidingWindow>,
    /// Added to the mean square in every norm.
    pub rms_norm_eps: f64,
    /// Base of the rotary wavelengths.
    pub rope_theta: f64,
    /// Stretching of the rotary wavelengths, if any.
    #[serde(skip)]
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
    #[serde(rename = "eos_token_id")]
    pub eos_token_ids: Vec<u32>,
    /// Padding token, where there is one.
    pub pad_token_id: Option<u32>,
    /// Keys of the file that were neither read nor known to be harmless, sorted.
    #[serde(flatten, deserialize_with = "unknown")]
    pub unrecognised: Vec<String>,
}

/// Stretching of the long rotary wavelengths, type `llama3`; `rope.rs` has the formula.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Llama3Scaling {
    /// By how much the longest wavelengths grow; at least 1.
    pub factor: f64,
    /// Wavelengths of more than the training length divided by this grow by `factor`.
    pub low_freq_factor: f64,
    /// Wavelengths of less than the training length divided by this stay; above `low_freq_factor`.
    pub high_freq_factor: f64,
    /// Length of the training before stretching, in tokens.
    pub original_max_position_embeddings: usize,
}

/// Attention to the nearest tokens.
///
/// # Formula
///
/// ```text
/// i − tokens < j ≤ i         positions j that position i sees; positions count real tokens
/// ```
///
/// # References
///
/// Jiang et al. 2023, arXiv:2310.06825.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlidingWindow {
    /// Number of positions that a query sees, its own included; at least 1.
    pub tokens: usize,
    /// Of the layers beyond `layers`, those from this one on have the window.
    first: usize,
    /// Whether a layer has the window, where the file lists the layers; else empty.
    layers: Vec<bool>,
}

impl SlidingWindow {
    /// Whether a layer has the window.
    pub fn is_of(&self, layer: usize) -> bool {
        self.layers.get(layer).copied().unwrap_or(layer >= self.first)
    }
}

impl LlamaConfig {
    /// Whether the output projection has a bias: where the others have one, except in Qwen2.
    pub fn output_bias(&self) -> bool {
        self.attention_bias && self.family.row().bias.is_none()
    }

    /// Whether queries and keys are normalised before the rotation, head by head.
    pub fn head_norms(&self) -> bool {
        self.family.row().head_norms
    }

    /// Reads a `config.json`, and of a `generation_config.json` beside it the tokens that end a text, of which it often
    /// has more.
    pub fn read(file: &Path) -> Result<Self> {
        let mut config = Self::of(JsonObject::open(file)?)?;
        let beside = file.with_file_name("generation_config.json");
        if is_file(&beside)? {
            for id in end_tokens(&JsonObject::open(&beside)?)? {
                if !config.eos_token_ids.contains(&id) {
                    config.eos_token_ids.push(id);
                }
            }
        }
        Ok(config)
    }

    /// Reads the text of a `config.json`; `file` is only named in errors.
    pub fn parse(text: &[u8], file: &Path) -> Result<Self> {
        Self::of(JsonObject::parse(text, file)?)
    }

    fn of(mut json: JsonObject<'_>) -> Result<Self> {
        let types = LlamaFamily::model_types();
        json.require("model_type", &quoted(types))?;
        json.check_names("model_type", &types)?;
        let named = json.get("model_type").and_then(Value::as_str).and_then(LlamaFamily::of);
        let family = named.unwrap_or_default();
        let row = family.row();
        // A null is "as many as queries", or no window; without the key the family's default applies.
        let is_absent = |key: &str| !json.map.contains_key(key);
        let key_heads = row.key_heads.filter(|_| is_absent("num_key_value_heads"));
        let window = is_absent("sliding_window").then_some(WINDOW);
        json.fill(json!({
            "attention_dropout": 0.0, "initializer_range": 0.02, "rms_norm_eps": 1e-6,
            "max_position_embeddings": row.positions, "tie_word_embeddings": false,
        }));
        json.check_model(row.model_type)?;
        json.take_only(&[
            ("hidden_act", json!("silu")),
            ("mlp_bias", json!(false)),
            ("use_mrope", json!(false)),
        ])?;
        if let Some(bias) = row.bias {
            json.take_only(&[("attention_bias", bias.into())])?;
        }
        json.check("attention_bias", "true or false", Value::is_boolean)?;
        json.fill(json!({"attention_bias": row.bias.unwrap_or(false)}));
        let sliding_window = sliding_window(&mut json, row.window, window)?;
        let ends = end_tokens(&json)?;
        json.map.insert("eos_token_id".to_owned(), ends.into());
        let heads = json.count("num_attention_heads").unwrap_or(1);
        json.fill(json!({"num_key_value_heads": key_heads.unwrap_or(heads)}));
        if json.count("num_key_value_heads").is_some_and(|groups| !heads.is_multiple_of(groups)) {
            let expected = format!("a divisor of `num_attention_heads` = {heads}");
            return Err(json.wrong("num_key_value_heads", expected));
        }
        if json.get("head_dim").is_none() {
            let width = row.head_dim.map_or_else(|| json.head_width(), Ok)?;
            json.fill(json!({"head_dim": width}));
        }
        // The rotation takes pairs.
        let pairs = |width| usize::is_multiple_of(width, 2) && width <= WIDEST_HEAD;
        if !json.count("head_dim").is_some_and(pairs) {
            let expected = format!("an even number of features a head, at most {WIDEST_HEAD}");
            return Err(json.wrong("head_dim", expected));
        }
        let rope_scaling = rotary(&mut json)?;
        Ok(Self { family, sliding_window, rope_scaling, ..json.read()? })
    }
}

/// Takes the window and the layers that have it; `absent` is the window where the file had no key for it.
fn sliding_window(
    json: &mut JsonObject<'_>,
    kind: Window,
    absent: Option<usize>,
) -> Result<Option<SlidingWindow>> {
    let mut tokens = None;
    // Of a Llama the key may be there and off, which is checked with those of every model.
    if kind != Window::Never {
        json.check_counts("sliding_window", 1)?;
        tokens = json.count("sliding_window").or(absent);
        json.map.remove("sliding_window");
    }
    let mut first = 0;
    if kind == Window::Listed {
        json.check("use_sliding_window", "true or false", Value::is_boolean)?;
        json.check_counts("max_window_layers", 0)?;
        first = json.count("max_window_layers").unwrap_or(FIRST_WINDOW);
        tokens = tokens.filter(|_| json.get("use_sliding_window") == Some(&true.into()));
        json.map.retain(|key, _| key != "use_sliding_window" && key != "max_window_layers");
    }
    let layers = window_layers(json)?;
    for (i, &slides) in layers.iter().enumerate() {
        // transformers computes the other kind of layer, or no model at all.
        if slides != tokens.is_some() && (slides || kind != Window::Listed) {
            let [expected, found] = if slides { KINDS } else { [KINDS[1], KINDS[0]] };
            let window = tokens.map_or("no window".to_owned(), |n| format!("a window of {n}"));
            let expected = format!("`{expected}` with {window}");
            let key = format!("layer_types[{i}]");
            return Err(Error::format(json.file, key, expected, shown(found)));
        }
    }
    Ok(tokens.map(|tokens| SlidingWindow { tokens, first, layers }))
}

/// Names of a layer without a window and of one with it.
const KINDS: [&str; 2] = ["full_attention", "sliding_attention"];

/// Takes the list of layers: whether each has a window. Empty without a list.
fn window_layers(json: &mut JsonObject<'_>) -> Result<Vec<bool>> {
    let key = "layer_types";
    let Some(found) = json.get(key).cloned() else { return Ok(Vec::new()) };
    let layers = json.count("num_hidden_layers").unwrap_or(0);
    let expected = || format!("a list of {layers} names, {} for each layer", quoted(KINDS));
    let list = found.as_array().filter(|list| list.len() == layers);
    let list = list.ok_or_else(|| json.wrong(key, expected()))?;
    let slides = |(i, kind): (usize, &Value)| {
        let place = KINDS.iter().position(|name| kind == name);
        let unsupported =
            || Error::unsupported(json.file, format!("{key}[{i}]"), plain(kind), quoted(KINDS));
        place.map(|place| place == 1).ok_or_else(unsupported)
    };
    let slides = list.iter().enumerate().map(slides).collect::<Result<_>>()?;
    json.map.remove(key);
    Ok(slides)
}

/// The tokens that end a text: one, or a list.
fn end_tokens(json: &JsonObject<'_>) -> Result<Vec<u32>> {
    let key = "eos_token_id";
    match json.get(key) {
        None => Ok(Vec::new()),
        Some(Value::Array(list)) => {
            let id =
                |id: &Value| u32::deserialize(id).map_err(|_| json.wrong(key, "a list of tokens"));
            list.iter().map(id).collect()
        }
        Some(id) if *id == -1 => Ok(Vec::new()),
        Some(_) => {
            json.check_counts(key, 0)?;
            Ok(json.count(key).map(|id| id as u32).into_iter().collect())
        }
    }
}

/// Takes the stretching from whichever spelling the file has, and leaves `rope_theta`; two spellings must agree.
fn rotary(json: &mut JsonObject<'_>) -> Result<Option<Llama3Scaling>> {
    let objects = ["rope_scaling", "rope_parameters"];
    let whole = objects.map(|key| json.get(key).cloned());
    for key in objects {
        json.flatten(key)?;
    }
    // All features of a head are rotated.
    json.take_only(&[
        ("partial_rotary_factor", json!(1)),
        ("rope_scaling.partial_rotary_factor", json!(1)),
        ("rope_parameters.partial_rotary_factor", json!(1)),
    ])?;
    let thetas = ["rope_theta", "rope_scaling.rope_theta", "rope_parameters.rope_theta"];
    // Larger bases leave nothing to rotate.
    json.check_numbers(&thetas.join(" "), "a number from 1 to 1e15", 1.0..=1e15)?;
    let mut theta = None;
    for key in thetas {
        let Some(found) = json.number(key) else { continue };
        if theta.is_some_and(|theta| theta != found) {
            return Err(json.wrong(key, format!("{}, as elsewhere", theta.unwrap_or(found))));
        }
        theta = Some(found);
        json.map.remove(key);
    }
    json.fill(json!({"rope_theta": theta.unwrap_or(10_000.0)}));
    let mut found = None;
    for (key, whole) in objects.into_iter().zip(whole) {
        let Some(whole) = whole else { continue };
        let scaling = scaling(json, key)?;
        if found.is_some_and(|found| found != scaling) {
            let expected = "the same as `rope_scaling`";
            return Err(Error::format(json.file, key, expected, shown(whole)));
        }
        found = Some(scaling);
    }
    Ok(found.flatten())
}

/// Takes the kind and the factors of one object.
fn scaling(json: &mut JsonObject<'_>, object: &str) -> Result<Option<Llama3Scaling>> {
    let key = |entry: &str| format!("{object}.{entry}");
    let kind = key("rope_type");
    // Older files call the type `type`.
    if let Some(older) = json.map.remove(&key("type")) {
        json.map.entry(kind.clone()).or_insert(older);
    }
    json.require(&kind, "a string")?;
    json.check_names(&kind, &["default", "llama3"])?;
    if json.map.remove(&kind).is_some_and(|kind| kind == "default") {
        return Ok(None);
    }
    let factors = [key("factor"), key("low_freq_factor"), key("high_freq_factor")];
    let length = key("original_max_position_embeddings");
    json.require(&factors.join(" "), "a number")?;
    json.require(&length, "an integer of at least 1")?;
    json.check_numbers(&factors[0], "a number from 1 to 1000000000", 1.0..=1e9)?;
    let (above, expected) = (f64::MIN_POSITIVE..=1e9, "a number above 0 and at most 1000000000");
    json.check_numbers(&factors[1..].join(" "), expected, above)?;
    json.check_counts(&length, 1)?;
    let [factor, low, high] = factors.each_ref().map(|key| json.number(key).unwrap_or(1.0));
    if high <= low {
        let expected = format!("more than `low_freq_factor` = {low}");
        return Err(json.wrong(&factors[2], expected));
    }
    let scaling = Llama3Scaling {
        factor,
        low_freq_factor: low,
        high_freq_factor: high,
        original_max_position_embeddings: json.count(&length).unwrap_or(1),
    };
    json.map.retain(|key, _| !factors.contains(key) && *key != length);
    Ok(Some(scaling))
}
