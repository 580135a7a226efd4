//! The settings of a Llama `config.json`.
//!
//! Typed, checked once, with transformers' defaults; both spellings of the rotary settings are read (`rope_theta` and
//! `rope_scaling` at the top level, or `rope_parameters` of transformers 5). A value that would change the result and
//! is not supported is an error that names it; an unknown key is kept in [`LlamaConfig::unrecognised`].

use std::path::Path;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::error::{Error, Result};
use crate::json::{JsonObject, shown, unknown};

/// Wider heads are those of a damaged file, whose rotary tables must not be made.
const WIDEST_HEAD: usize = 1 << 16;

/// A Llama model with a language-modelling head.
///
/// Names are those of `config.json`; sizes are numbers of features by default.
#[derive(Debug, Clone, PartialEq, Deserialize)]
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

impl LlamaConfig {
    /// Reads a `config.json`, and of a `generation_config.json` beside it the tokens that end a text, of which it often
    /// has more.
    pub fn read(file: &Path) -> Result<Self> {
        let mut config = Self::of(JsonObject::open(file)?)?;
        let beside = file.with_file_name("generation_config.json");
        if beside.is_file() {
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
        json.fill(json!({
            "attention_dropout": 0.0, "initializer_range": 0.02, "max_position_embeddings": 2048,
            "rms_norm_eps": 1e-6, "tie_word_embeddings": false,
        }));
        json.check_model("llama")?;
        json.take_only(&[
            ("hidden_act", json!("silu")),
            ("attention_bias", json!(false)),
            ("mlp_bias", json!(false)),
        ])?;
        let ends = end_tokens(&json)?;
        json.map.insert("eos_token_id".to_owned(), ends.into());
        let heads = json.count("num_attention_heads").unwrap_or(1);
        json.fill(json!({"num_key_value_heads": heads}));
        if json.count("num_key_value_heads").is_some_and(|groups| !heads.is_multiple_of(groups)) {
            let expected = format!("a divisor of `num_attention_heads` = {heads}");
            return Err(json.wrong("num_key_value_heads", expected));
        }
        if json.get("head_dim").is_none() {
            let width = json.head_width()?;
            json.fill(json!({"head_dim": width}));
        }
        // The rotation takes pairs.
        let pairs = |width| usize::is_multiple_of(width, 2) && width <= WIDEST_HEAD;
        if !json.count("head_dim").is_some_and(pairs) {
            let expected = format!("an even number of features a head, at most {WIDEST_HEAD}");
            return Err(json.wrong("head_dim", expected));
        }
        let rope_scaling = rotary(&mut json)?;
        Ok(Self { rope_scaling, ..json.read()? })
    }
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
