//! Objects in JSON files. Serde reads and checks the values; keys that nothing reads are reported.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::Path;

use lrvd_burn::files::{SETTINGS_LIMIT, from_json, is_unset, read_limited};
use lrvd_core::error::quoted;
use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, Error as _};
use serde_json::{Map, Value};

use crate::error::{Error, Result};

/// Keys that transformers writes and that change nothing in the forward pass or the loss of a model whose configuration
/// has no field for them. `legacy` chooses between two masked-language-modelling heads and `tie_word_embeddings` ties one;
/// `pretraining_tp` splits products for tensor parallelism; `directionality` and `pooler_*` are of BERT's first code;
/// `sinusoidal_pos_embds` says how the stored table of a DistilBERT was made.
const HARMLESS: &str = "
    architectures attn_implementation auto_map begin_suppress_tokens bos_token_id chunk_size_feed_forward cls_token_id
    decoder_start_token_id directionality dtype eos_token_id finetuning_task gradient_checkpointing id2label
    label2id legacy mask_token_id name_or_path output_attentions output_hidden_states output_past
    pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers pooler_size_per_head pooler_type prefix
    pretraining_tp problem_type qa_dropout return_dict sep_token_id sinusoidal_pos_embds task_specific_params
    tf_legacy_loss tie_weights_ tie_word_embeddings tokenizer_class torch_dtype torchscript transformers_version use_bfloat16
    use_cache";
/// Keys that change any model unless they are null, false or empty.
const DEFAULT_ONLY: &str = "
    add_cross_attention cross_attention_hidden_size is_decoder is_encoder_decoder pruned_heads
    quantization_config sliding_window tie_encoder_decoder";
/// Largest size: 2³¹ elements in one dimension are far beyond any model.
const LARGEST: usize = i32::MAX as usize;

/// An object in a file.
pub(crate) struct JsonObject<'a> {
    pub(crate) file: &'a Path,
    /// Start of the names of keys in errors: empty, or the key of the object and a dot.
    prefix: String,
    pub(crate) map: Map<String, Value>,
}

impl<'a> JsonObject<'a> {
    pub(crate) fn parse(text: &[u8], file: &'a Path) -> Result<Self> {
        let map = serde_json::from_slice(text).map_err(Error::json(file))?;
        Ok(Self { file, prefix: String::new(), map })
    }

    pub(crate) fn open(file: &'a Path) -> Result<Self> {
        let text = read_limited(file, SETTINGS_LIMIT).map_err(Error::read(file))?;
        Self::parse(&text, file)
    }

    /// The value of a key; a null counts as absent, as it does for transformers' `getattr` defaults.
    pub(crate) fn get(&self, key: &str) -> Option<&Value> {
        self.map.get(key).filter(|value| !value.is_null())
    }

    /// Removes nulls and ids of -1, which some files write for "none", and sets the absent keys among `defaults`.
    pub(crate) fn fill(&mut self, defaults: Value) {
        self.map
            .retain(|key, value| !(value.is_null() || key.ends_with("_token_id") && *value == -1));
        let Value::Object(defaults) = defaults else { return };
        for (key, value) in defaults {
            self.map.entry(key).or_insert(value);
        }
    }

    /// Name of a key in errors.
    pub(crate) fn key(&self, key: &str) -> String {
        format!("{}{key}", self.prefix)
    }

    /// Error of a value of `key` that is not as `expected`.
    pub(crate) fn wrong(&self, key: &str, expected: impl Into<String>) -> Error {
        let found = self.get(key).map_or_else(|| "nothing".to_owned(), shown);
        Error::format(self.file, self.key(key), expected, found)
    }

    /// Error of a value of `key` that is not a supported one.
    pub(crate) fn unsupported(&self, key: &str, supported: impl Into<String>) -> Error {
        let found = self.get(key).map_or_else(String::new, plain);
        Error::unsupported(self.file, self.key(key), found, supported)
    }

    /// The one of `names` that is the value of `key`; `None` without a value.
    pub(crate) fn name<'n>(&self, key: &str, names: &[&'n str]) -> Result<Option<&'n str>> {
        let Some(found) = self.get(key) else { return Ok(None) };
        let name = names.iter().find(|name| *found == ***name);
        name.map(|&name| Some(name)).ok_or_else(|| self.unsupported(key, quoted(names)))
    }

    /// Removes keys that may only have one value, or be absent.
    pub(crate) fn take_only(&mut self, values: &[(&str, Value)]) -> Result<()> {
        for (key, supported) in values {
            let same = |found: &Value| {
                found == supported || found.is_number() && found.as_f64() == supported.as_f64()
            };
            if self.get(key).is_some_and(|found| !same(found)) {
                let supported = match supported {
                    Value::String(text) => format!("`{text}`"),
                    other => other.to_string(),
                };
                return Err(self.unsupported(key, supported));
            }
            self.map.remove(*key);
        }
        Ok(())
    }

    /// Removes `model_type`, which must be one of `known`.
    pub(crate) fn take_model_type<'n>(&mut self, known: &[&'n str]) -> Result<&'n str> {
        let key = "model_type";
        let found = self.name(key, known)?.ok_or_else(|| self.wrong(key, quoted(known)))?;
        self.map.remove(key);
        Ok(found)
    }

    /// Removes the object at `key`; `None` without one.
    pub(crate) fn take_object(&mut self, key: &str) -> Result<Option<Self>> {
        let mut map = match self.get(key).cloned() {
            None => return Ok(None),
            Some(Value::Object(map)) => map,
            Some(_) => return Err(self.wrong(key, "an object or null")),
        };
        self.map.remove(key);
        map.retain(|_, value| !value.is_null());
        Ok(Some(Self { file: self.file, prefix: format!("{key}."), map }))
    }

    /// Removes `key` and reads it as a `T`; `None` without a value.
    pub(crate) fn take<T: DeserializeOwned>(&mut self, key: &str) -> Result<Option<T>> {
        let entry = self.map.remove_entry(key).filter(|(_, value)| !value.is_null());
        let mut read: BTreeMap<String, T> = self.parse_map(entry.into_iter().collect())?;
        Ok(read.remove(key))
    }

    /// The object as a `T`; keys of [`DEFAULT_ONLY`] must be off.
    pub(crate) fn read<T: DeserializeOwned>(&mut self) -> Result<T> {
        for key in DEFAULT_ONLY.split_whitespace() {
            if self.get(key).is_some_and(|value| !is_unset(value)) {
                return Err(self.unsupported(key, "null, false or empty"));
            }
            self.map.remove(key);
        }
        self.parse_map(self.map.clone())
    }

    pub(crate) fn parse_map<T: DeserializeOwned>(&self, map: Map<String, Value>) -> Result<T> {
        let value = Value::Object(map);
        from_json(&value, &value).map_err(|error| {
            let found = error.found.map_or_else(|| "nothing".to_owned(), shown);
            Error::format(self.file, self.key(&error.key), error.expected, found)
        })
    }
}

/// Width of a head: `hidden_size` over `num_attention_heads`.
pub(crate) fn head_width(file: &Path, hidden: usize, heads: usize) -> Result<usize> {
    if hidden.is_multiple_of(heads) {
        return Ok(hidden / heads);
    }
    let expected = format!("a multiple of `num_attention_heads` = {heads}");
    Err(Error::format(file, "hidden_size", expected, shown(hidden)))
}

/// Reads a value in `range`, which `expected` describes.
pub(crate) fn ranged<'de, T: Deserialize<'de> + PartialOrd, D: Deserializer<'de>>(
    deserializer: D,
    range: RangeInclusive<T>,
    expected: &str,
) -> Result<T, D::Error> {
    let value = T::deserialize(deserializer).ok().filter(|value| range.contains(value));
    value.ok_or_else(|| D::Error::custom(format_args!("expected {expected}")))
}

pub(crate) fn size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
    ranged(deserializer, 1..=LARGEST, "an integer from 1 to 2147483647")
}

/// A size.
#[derive(Deserialize)]
pub(crate) struct Size(#[serde(deserialize_with = "size")] pub(crate) usize);

/// A probability.
#[derive(Deserialize)]
pub(crate) struct Probability(#[serde(deserialize_with = "probability")] pub(crate) f64);

pub(crate) fn probability<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    ranged(deserializer, 0.0..=1.0, "a number from 0 to 1")
}

/// A constant that is added to a variance.
pub(crate) fn epsilon<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    ranged(deserializer, f64::MIN_POSITIVE..=1.0, "a number above 0 and at most 1")
}

pub(crate) fn deviation<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    ranged(deserializer, 0.0..=f64::MAX, "a number of at least 0")
}

/// Keys without a field that may change something, sorted: for `#[serde(flatten)]`.
pub(crate) fn unknown<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let keys = BTreeMap::<String, Value>::deserialize(deserializer)?.into_keys();
    let harmless =
        |key: &str| key.starts_with('_') || HARMLESS.split_whitespace().any(|known| known == key);
    Ok(keys.filter(|key| !harmless(key)).collect())
}

/// A value in quotes, cut after 200 characters.
pub(crate) fn shown(found: impl Display) -> String {
    format!("`{}`", cut(&found.to_string(), 200))
}

/// The first `most` characters of a text.
pub(crate) fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// A text without quotes.
pub(crate) fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
