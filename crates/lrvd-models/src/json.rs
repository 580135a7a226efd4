//! Objects in JSON files: the values of their keys are checked by tables, serde reads them, and what nothing reads is
//! reported.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::Path;

use lrvd_burn::files::{SETTINGS_LIMIT, read_limited};
use lrvd_core::error::quoted;
use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer};
use serde_json::{Map, Value};

use crate::error::{Error, Result};

/// Keys that transformers writes and that change nothing in the forward pass or the loss of a model whose configuration
/// has no field for them. `legacy` chooses between two masked-language-modelling heads and `tie_word_embeddings` ties one;
/// `pretraining_tp` splits products for tensor parallelism; `directionality` and `pooler_*` are of BERT's first code.
const HARMLESS: &str = "
    architectures attn_implementation auto_map begin_suppress_tokens bos_token_id chunk_size_feed_forward cls_token_id
    decoder_start_token_id directionality dtype eos_token_id finetuning_task gradient_checkpointing id2label
    label2id legacy mask_token_id name_or_path output_attentions output_hidden_states output_past
    pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers pooler_size_per_head pooler_type prefix
    pretraining_tp problem_type return_dict sep_token_id task_specific_params tf_legacy_loss
    tie_word_embeddings tokenizer_class torch_dtype torchscript transformers_version use_bfloat16
    use_cache";
/// Keys that change any model unless they are null, false or empty.
const DEFAULT_ONLY: &str = "
    add_cross_attention cross_attention_hidden_size is_decoder is_encoder_decoder pruned_heads
    quantization_config sliding_window tie_encoder_decoder";
/// Sizes that every model's configuration states.
const REQUIRED: &str =
    "hidden_size num_attention_heads num_hidden_layers intermediate_size vocab_size";
/// Further sizes above 0.
const COUNTS: &str =
    "embedding_size head_dim max_position_embeddings num_key_value_heads num_labels";
const PROBABILITIES: &str = "attention_dropout attention_probs_dropout_prob classifier_dropout \
                             cls_dropout hidden_dropout_prob pooler_dropout";
const FLAGS: &str = "position_biased_input relative_attention share_att_key tie_word_embeddings";

/// Largest size: 2³¹ elements in one dimension are far beyond any model.
const LARGEST: i64 = i32::MAX as i64;

/// The object in a file. Lists of keys are words with spaces between them.
pub(crate) struct JsonObject<'a> {
    pub(crate) file: &'a Path,
    pub(crate) map: Map<String, Value>,
}

impl<'a> JsonObject<'a> {
    pub(crate) fn parse(text: &[u8], file: &'a Path) -> Result<Self> {
        let map = serde_json::from_slice(text).map_err(Error::json(file))?;
        Ok(Self { file, map })
    }

    pub(crate) fn open(file: &'a Path) -> Result<Self> {
        let text = read_limited(file, SETTINGS_LIMIT).map_err(Error::read(file))?;
        Self::parse(&text, file)
    }

    /// Replaces the object at `key` by its entries under `key.entry`.
    pub(crate) fn flatten(&mut self, key: &str) -> Result<()> {
        self.check(key, "an object or null", Value::is_object)?;
        if let Some(Value::Object(object)) = self.map.remove(key) {
            let entries = object.into_iter().filter(|(_, value)| !value.is_null());
            self.map.extend(entries.map(|(entry, value)| (format!("{key}.{entry}"), value)));
        }
        Ok(())
    }

    /// The value of a key; a null counts as absent, as it does for transformers' `getattr` defaults.
    pub(crate) fn get(&self, key: &str) -> Option<&Value> {
        self.map.get(key).filter(|value| !value.is_null())
    }

    /// Removes nulls, and sets the absent keys among `defaults`.
    pub(crate) fn fill(&mut self, defaults: Value) {
        self.map.retain(|_, value| !value.is_null());
        let Value::Object(defaults) = defaults else { return };
        for (key, value) in defaults {
            self.map.entry(key).or_insert(value);
        }
    }

    /// The error that the value of `key` is not as `expected`.
    pub(crate) fn wrong(&self, key: &str, expected: impl Into<String>) -> Error {
        let found = self.get(key).map_or_else(|| "nothing".to_owned(), shown);
        Error::format(self.file, key, expected, found)
    }

    /// The error that the value of `key` is none of the supported ones.
    pub(crate) fn unsupported(&self, key: &str, supported: impl Into<String>) -> Error {
        let found = self.get(key).map_or_else(String::new, plain);
        Error::unsupported(self.file, key, found, supported)
    }

    /// Checks the values of those `keys` that are there.
    pub(crate) fn check(
        &self,
        keys: &str,
        expected: &str,
        allowed: impl Fn(&Value) -> bool,
    ) -> Result<()> {
        match keys.split_whitespace().find(|key| self.get(key).is_some_and(|value| !allowed(value)))
        {
            Some(key) => Err(self.wrong(key, expected)),
            None => Ok(()),
        }
    }

    /// Checks numbers of things, at least `least`.
    pub(crate) fn check_counts(&self, keys: &str, least: i64) -> Result<()> {
        let expected = format!("an integer from {least} to {LARGEST}");
        let range = least..=LARGEST;
        self.check(keys, &expected, |value| value.as_i64().is_some_and(|n| range.contains(&n)))
    }

    /// Checks numbers; `expected` describes `range`.
    pub(crate) fn check_numbers(
        &self,
        keys: &str,
        expected: &str,
        range: RangeInclusive<f64>,
    ) -> Result<()> {
        self.check(keys, expected, |value| value.as_f64().is_some_and(|n| range.contains(&n)))
    }

    /// Checks the values of a `config.json` that do not depend on others.
    pub(crate) fn check_model(&mut self, model_type: &str) -> Result<()> {
        self.require("model_type", &format!("`{model_type}`"))?;
        self.take_only(&[("model_type", model_type.into())])?;
        self.require(REQUIRED, "an integer of at least 1")?;
        self.check_counts(REQUIRED, 1)?;
        self.check_counts(COUNTS, 1)?;
        // Some files write -1 for "none".
        self.map.retain(|key, id| !key.ends_with("_token_id") || *id != -1);
        self.check_counts("type_vocab_size bos_token_id pad_token_id", 0)?;
        self.check_numbers(PROBABILITIES, "a number from 0 to 1", 0.0..=1.0)?;
        self.check_numbers("initializer_range", "a number of at least 0", 0.0..=f64::MAX)?;
        let above = f64::MIN_POSITIVE..=1.0;
        self.check_numbers("layer_norm_eps rms_norm_eps", "a number above 0 and at most 1", above)?;
        self.check(FLAGS, "true or false", Value::is_boolean)
    }

    /// Checks a text that is one of a few names.
    pub(crate) fn check_names(&self, key: &str, names: &[&str]) -> Result<()> {
        self.check(key, "a string", Value::is_string)?;
        match self.get(key).and_then(Value::as_str) {
            Some(found) if !names.contains(&found) => Err(self.unsupported(key, quoted(names))),
            _ => Ok(()),
        }
    }

    /// `hidden_size` over `num_attention_heads`, which were checked.
    pub(crate) fn head_width(&self) -> Result<usize> {
        let hidden = self.count("hidden_size").unwrap_or(0);
        let heads = self.count("num_attention_heads").unwrap_or(1);
        if hidden.is_multiple_of(heads) {
            return Ok(hidden / heads);
        }
        let expected = format!("a multiple of `num_attention_heads` = {heads}");
        Err(self.wrong("hidden_size", expected))
    }

    /// Checks that every one of `keys` is there.
    pub(crate) fn require(&self, keys: &str, expected: &str) -> Result<()> {
        match keys.split_whitespace().find(|key| self.get(key).is_none()) {
            Some(key) => Err(self.wrong(key, expected)),
            None => Ok(()),
        }
    }

    /// Takes keys out that may only have one value, or be absent.
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

    /// The number at a key that was checked.
    pub(crate) fn number(&self, key: &str) -> Option<f64> {
        self.get(key)?.as_f64()
    }

    /// The integer at a key that was checked.
    pub(crate) fn count(&self, key: &str) -> Option<usize> {
        self.get(key)?.as_u64().map(|n| n as usize)
    }

    /// The object as a `T`.
    pub(crate) fn read<T: DeserializeOwned>(mut self) -> Result<T> {
        for key in DEFAULT_ONLY.split_whitespace() {
            if self.get(key).is_some_and(|value| !is_off(value)) {
                return Err(self.unsupported(key, "null, false or empty"));
            }
            self.map.remove(key);
        }
        serde_json::from_value(Value::Object(self.map)).map_err(Error::json(self.file))
    }
}

/// The keys of no field that may change something, sorted: for `#[serde(flatten)]`.
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

/// Whether the value switches its feature off.
fn is_off(value: &Value) -> bool {
    match value {
        Value::Bool(on) => !on,
        Value::Object(map) => map.is_empty(),
        Value::Array(list) => list.is_empty(),
        _ => false,
    }
}
