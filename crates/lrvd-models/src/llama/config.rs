//! Settings of a `config.json` of Llama, Mistral or Qwen.
//!
//! Typed, checked once, with transformers' defaults; both spellings of the rotary settings are read (`rope_theta` and
//! `rope_scaling` at the top level, or `rope_parameters` of transformers 5). A value that would change the result and
//! is not supported is an error that names it; an unknown key is kept in [`LlamaConfig::unrecognised`].

use std::f64::consts::TAU;
use std::path::Path;

use lrvd_burn::files::{WeightStore, is_file};
use lrvd_core::error::quoted;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use super::family::{LlamaFamily, Window};
use crate::deberta::Pooling;
use crate::error::{Error, Result};
use crate::json::{
    JsonObject, Size, deviation, epsilon, head_width, probability, ranged, shown, size, unknown,
};
use crate::rope::frequencies;

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
    /// [`Pooling::Last`] of a folder of sentence-transformers that says so, else [`Pooling::First`]: no pooling.
    #[serde(skip)]
    pub pooling: Pooling,
    /// Rows of the word embedding; at least 1.
    #[serde(deserialize_with = "size")]
    pub vocab_size: usize,
    /// Width of the hidden states.
    #[serde(deserialize_with = "size")]
    pub hidden_size: usize,
    /// Width between the feed-forward projections.
    #[serde(deserialize_with = "size")]
    pub intermediate_size: usize,
    /// Number of layers; at least 1.
    #[serde(deserialize_with = "size")]
    pub num_hidden_layers: usize,
    /// Number of query heads.
    #[serde(deserialize_with = "size")]
    pub num_attention_heads: usize,
    /// Number of key and value heads; divides the number of query heads. As many: multi-head attention; one:
    /// multi-query; between: grouped-query.
    #[serde(default, deserialize_with = "size")]
    pub num_key_value_heads: usize,
    /// Width of a head, even; heads times this need not be `hidden_size`.
    #[serde(default, deserialize_with = "size")]
    pub head_dim: usize,
    /// Longest input of the training, in tokens. Not enforced: longer ones are used as they are.
    #[serde(deserialize_with = "size")]
    pub max_position_embeddings: usize,
    /// Biases of the query, key and value projections; of the output projection see [`Self::output_bias`].
    pub attention_bias: bool,
    /// Layers whose queries see the nearest tokens only, if any.
    #[serde(skip)]
    pub sliding_window: Option<SlidingWindow>,
    /// Added to the mean square in every norm.
    #[serde(deserialize_with = "epsilon")]
    pub rms_norm_eps: f64,
    /// Base of the rotary wavelengths.
    #[serde(skip)]
    pub rope_theta: f64,
    /// Stretching of the rotary wavelengths, if any.
    #[serde(skip)]
    pub rope_scaling: Option<Llama3Scaling>,
    /// The head is the word embedding, transposed.
    pub tie_word_embeddings: bool,
    /// Dropout probability of the attention weights in training.
    #[serde(deserialize_with = "probability")]
    pub attention_dropout: f64,
    /// Standard deviation of new weights.
    #[serde(deserialize_with = "deviation")]
    pub initializer_range: f64,
    /// Token that starts a text.
    pub bos_token_id: Option<u32>,
    /// Tokens that end a text; newer models have several.
    #[serde(skip)]
    pub eos_token_ids: Vec<u32>,
    /// Padding token, where there is one.
    pub pad_token_id: Option<u32>,
    /// Keys of the file that were neither read nor known to be harmless, sorted.
    #[serde(flatten, deserialize_with = "unknown")]
    pub unrecognised: Vec<String>,
}

/// Stretching of the long rotary wavelengths, type `llama3`.
///
/// # Formula
///
/// ```text
/// wavelength = 2π/f,  s = (L/wavelength − low)/(high − low), limited to [0, 1]
/// f ← (1 − s)·f/factor + s·f                  L the original length in tokens
/// ```
///
/// so that short wavelengths stay, long ones are stretched by `factor`, and those between pass over smoothly.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
pub struct Llama3Scaling {
    /// Growth of the longest wavelengths; at least 1.
    #[serde(deserialize_with = "growth")]
    pub factor: f64,
    /// Wavelengths of more than the training length divided by this grow by `factor`.
    #[serde(deserialize_with = "divisor")]
    pub low_freq_factor: f64,
    /// Wavelengths of less than the training length divided by this stay; above `low_freq_factor`.
    #[serde(deserialize_with = "divisor")]
    pub high_freq_factor: f64,
    /// Length of the training before stretching, in tokens.
    #[serde(deserialize_with = "size")]
    pub original_max_position_embeddings: usize,
}

/// Keys of a [`Llama3Scaling`].
const FACTORS: [&str; 4] =
    ["factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"];

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
    /// `true` for a layer with the window, where the file lists the layers; else empty.
    layers: Vec<bool>,
}

impl SlidingWindow {
    /// `true` if the layer has the window.
    pub fn is_of(&self, layer: usize) -> bool {
        self.layers.get(layer).copied().unwrap_or(layer >= self.first)
    }
}

impl Llama3Scaling {
    /// The stretched one of a frequency in radians a token.
    fn stretched(self, frequency: f64) -> f64 {
        let (low, high) = (self.low_freq_factor, self.high_freq_factor);
        let wavelength = TAU / frequency;
        let turns = self.original_max_position_embeddings as f64 / wavelength;
        let keep = ((turns - low) / (high - low)).clamp(0.0, 1.0);
        (1.0 - keep) * frequency / self.factor + keep * frequency
    }
}

impl LlamaConfig {
    /// The rotary frequencies in radians a token, by pair of a head's features.
    pub(super) fn frequencies(&self) -> Vec<f64> {
        let plain = frequencies(self.rope_theta, self.head_dim).into_iter();
        let stretched = |f| self.rope_scaling.map_or(f, |scaling| scaling.stretched(f));
        plain.map(stretched).collect()
    }

    /// `true` if the output projection has a bias: where the others have one, except in Qwen2.
    pub fn output_bias(&self) -> bool {
        self.attention_bias && self.family.spec().bias.is_none()
    }

    /// `true` if queries and keys are normalised before the rotation, head by head.
    pub fn head_norms(&self) -> bool {
        self.family.spec().head_norms
    }

    /// Reads a `config.json`, the pooling of the folder that it is in, and of a `generation_config.json` beside it the tokens
    /// that end a text, of which it often has more.
    pub fn read(file: &Path) -> Result<Self> {
        let mut config = Self::from_object(JsonObject::open(file)?)?;
        if Pooling::of_folder(file.parent().unwrap_or(file))? == Pooling::Last {
            config.pooling = Pooling::Last;
        }
        let beside = file.with_file_name("generation_config.json");
        if is_file(&beside)? {
            let mut json = JsonObject::open(&beside)?;
            json.fill(Value::Null);
            for id in end_tokens(&mut json)? {
                if !config.eos_token_ids.contains(&id) {
                    config.eos_token_ids.push(id);
                }
            }
        }
        Ok(config)
    }

    /// The weights in a folder or file, under the names of a model with a head: those of a bare decoder, such as a model for
    /// embeddings, have no prefix.
    pub fn open_weights(path: &Path) -> Result<WeightStore> {
        let store = WeightStore::open(path)?;
        if store.names().any(|name| name.starts_with("model.")) {
            return Ok(store);
        }
        let renamed = store.map(|name, _| {
            let part = name.split('.').next().unwrap_or_default();
            let is_inner = ["embed_tokens", "layers", "norm"].contains(&part);
            Some((if is_inner { format!("model.{name}") } else { name.to_owned() }, None))
        });
        Ok(renamed?)
    }

    /// Reads the text of a `config.json`; `file` is only named in errors.
    pub fn parse(text: &[u8], file: &Path) -> Result<Self> {
        Self::from_object(JsonObject::parse(text, file)?)
    }

    fn from_object(mut json: JsonObject<'_>) -> Result<Self> {
        let model_type = json.take_model_type(&LlamaFamily::model_types())?;
        let family = LlamaFamily::from_model_type(model_type).unwrap_or_default();
        let spec = family.spec();
        // A null is "as many as queries", or no window; without the key the family's default applies.
        let is_absent = |key: &str| !json.map.contains_key(key);
        let key_heads = spec.key_heads.filter(|_| is_absent("num_key_value_heads"));
        let default_window = is_absent("sliding_window").then_some(WINDOW);
        json.fill(json!({
            "attention_dropout": 0.0, "initializer_range": 0.02, "rms_norm_eps": 1e-6,
            "max_position_embeddings": spec.positions, "tie_word_embeddings": false,
        }));
        json.take_only(&[
            ("hidden_act", json!("silu")),
            ("mlp_bias", json!(false)),
            ("use_mrope", json!(false)),
        ])?;
        if let Some(bias) = spec.bias {
            json.take_only(&[("attention_bias", bias.into())])?;
        }
        json.fill(json!({"attention_bias": spec.bias.unwrap_or(false)}));
        let sliding_window = sliding_window(&mut json, spec.window, default_window)?;
        let (rope_theta, rope_scaling) = rotary(&mut json)?;
        let eos_token_ids = end_tokens(&mut json)?;
        let mut config = Self {
            family,
            sliding_window,
            rope_theta,
            rope_scaling,
            eos_token_ids,
            ..json.read()?
        };
        let heads = config.num_attention_heads;
        if config.num_key_value_heads == 0 {
            config.num_key_value_heads = key_heads.unwrap_or(heads);
        }
        if !heads.is_multiple_of(config.num_key_value_heads) {
            let expected = format!("a divisor of `num_attention_heads` = {heads}");
            let found = shown(config.num_key_value_heads);
            return Err(Error::format(json.file, "num_key_value_heads", expected, found));
        }
        if config.head_dim == 0 {
            let width = || head_width(json.file, config.hidden_size, heads);
            config.head_dim = spec.head_dim.map_or_else(width, Ok)?;
        }
        // The rotation takes pairs.
        if !config.head_dim.is_multiple_of(2) || config.head_dim > WIDEST_HEAD {
            let expected = format!("an even number of features a head, at most {WIDEST_HEAD}");
            return Err(Error::format(json.file, "head_dim", expected, shown(config.head_dim)));
        }
        Ok(config)
    }
}

/// Removes the tokens that end a text: one, or a list.
fn end_tokens(json: &mut JsonObject<'_>) -> Result<Vec<u32>> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "expected a token or a list of tokens")]
    enum Tokens {
        One(u32),
        Many(Vec<u32>),
    }
    Ok(match json.take("eos_token_id")? {
        None => Vec::new(),
        Some(Tokens::One(id)) => vec![id],
        Some(Tokens::Many(ids)) => ids,
    })
}

/// Attention of a layer.
#[derive(Clone, Copy, PartialEq, Deserialize)]
enum LayerType {
    #[serde(rename = "full_attention")]
    Full,
    #[serde(rename = "sliding_attention")]
    Sliding,
}

/// Removes the keys of the window; `default` is the window where the file has no key for it.
fn sliding_window(
    json: &mut JsonObject<'_>,
    kind: Window,
    default: Option<usize>,
) -> Result<Option<SlidingWindow>> {
    let mut tokens = None;
    let mut first = 0;
    // Of a Llama the key may be there and off, which is checked with those of every model.
    if kind != Window::Never {
        tokens = json.take("sliding_window")?.map(|Size(tokens)| tokens).or(default);
    }
    if kind == Window::Listed {
        first = json.take("max_window_layers")?.unwrap_or(FIRST_WINDOW);
        let is_used = json.take("use_sliding_window")?.unwrap_or(false);
        tokens = tokens.filter(|_| is_used);
    }
    let types: Vec<LayerType> = json.take("layer_types")?.unwrap_or_default();
    let count = json.get("num_hidden_layers").and_then(Value::as_u64);
    if let Some(count) = count.filter(|&count| !types.is_empty() && count != types.len() as u64) {
        let expected = format!("a list of {count} names, one for each layer");
        return Err(Error::format(json.file, "layer_types", expected, types.len()));
    }
    let layers: Vec<bool> = types.iter().map(|&kind| kind == LayerType::Sliding).collect();
    // transformers computes the other kind of layer, or no model at all.
    let differs = |&slides: &bool| slides != tokens.is_some() && (slides || kind != Window::Listed);
    if let Some(layer) = layers.iter().position(differs) {
        let (full, sliding) = ("`full_attention`", "`sliding_attention`");
        let (expected, found) = if layers[layer] { (full, sliding) } else { (sliding, full) };
        let window = tokens.map_or("no window".to_owned(), |n| format!("a window of {n}"));
        let expected = format!("{expected} with {window}");
        return Err(Error::format(json.file, format!("layer_types[{layer}]"), expected, found));
    }
    Ok(tokens.map(|tokens| SlidingWindow { tokens, first, layers }))
}

/// Base of the rotary wavelengths. Larger ones leave nothing to rotate.
#[derive(PartialEq, Clone, Copy, Deserialize)]
struct Theta(#[serde(deserialize_with = "theta")] f64);

fn theta<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    ranged(deserializer, 1.0..=1e15, "a number from 1 to 1e15")
}

fn growth<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    ranged(deserializer, 1.0..=1e9, "a number from 1 to 1000000000")
}

fn divisor<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    ranged(deserializer, f64::MIN_POSITIVE..=1e9, "a number above 0 and at most 1000000000")
}

/// Removes base and stretching of the wavelengths in whichever spelling the file has; two spellings must agree.
fn rotary(json: &mut JsonObject<'_>) -> Result<(f64, Option<Llama3Scaling>)> {
    // All features of a head are rotated.
    let whole = [("partial_rotary_factor", json!(1))];
    json.take_only(&whole)?;
    let mut theta: Option<Theta> = json.take("rope_theta")?;
    let mut found = None;
    for key in ["rope_scaling", "rope_parameters"] {
        let Some(mut object) = json.take_object(key)? else { continue };
        let whole_object = shown(Value::Object(object.map.clone()));
        object.take_only(&whole)?;
        let own = object.take("rope_theta")?;
        if let (Some(Theta(theta)), Some(Theta(own))) = (theta, own)
            && theta != own
        {
            let expected = format!("{theta}, as elsewhere");
            return Err(Error::format(json.file, object.key("rope_theta"), expected, shown(own)));
        }
        theta = theta.or(own);
        let scaling = scaling(&mut object)?;
        if found.is_some_and(|found| found != scaling) {
            return Err(Error::format(json.file, key, "the same as `rope_scaling`", whole_object));
        }
        found = Some(scaling);
        let unread = object.map.into_iter().map(|(entry, value)| (format!("{key}.{entry}"), value));
        json.map.extend(unread);
    }
    Ok((theta.map_or(10_000.0, |Theta(theta)| theta), found.flatten()))
}

/// Removes kind and factors of a stretching.
fn scaling(object: &mut JsonObject<'_>) -> Result<Option<Llama3Scaling>> {
    let kinds = ["default", "llama3"];
    // Older files call the type `type`.
    let older = object.name("type", &kinds);
    let kind = match object.name("rope_type", &kinds)? {
        None => older?,
        kind => kind,
    };
    let kind = kind.ok_or_else(|| object.wrong("rope_type", quoted(kinds)))?;
    object.map.retain(|key, _| key != "type" && key != "rope_type");
    if kind == "default" {
        return Ok(None);
    }
    let scaling: Llama3Scaling = object.parse_map(object.map.clone())?;
    object.map.retain(|key, _| !FACTORS.contains(&&**key));
    let Llama3Scaling { low_freq_factor: low, high_freq_factor: high, .. } = scaling;
    if high <= low {
        let expected = format!("more than `low_freq_factor` = {low}");
        return Err(Error::format(
            object.file,
            object.key("high_freq_factor"),
            expected,
            shown(high),
        ));
    }
    Ok(Some(scaling))
}
