//! How is one key of a `config.json` read?
//!
//! A reader over the JSON object that remembers which keys were asked for, so that the rest can be judged in the end.
//! A dot in a key goes into an object. A null counts as absent, as it does for transformers' `getattr` defaults.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::path::Path;

use serde_json::{Map, Value};

use super::ConfigError;

/// Keys that transformers writes and that change nothing in the forward pass or the loss.
const HARMLESS: &[&str] = &[
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
];

/// Keys that change the model unless they are null, false or empty.
const ONLY_IDLE: &[&str] = &[
    "add_cross_attention",
    "cross_attention_hidden_size",
    "is_decoder",
    "is_encoder_decoder",
    "pruned_heads",
    "quantization_config",
    "sliding_window",
    "tie_encoder_decoder",
];

/// A JSON object that is read key by key.
pub(super) struct Reader<'a> {
    file: &'a Path,
    map: Map<String, Value>,
    used: RefCell<BTreeSet<&'static str>>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(text: &[u8], file: &'a Path) -> Result<Self, ConfigError> {
        let map = serde_json::from_slice(text)
            .map_err(|source| ConfigError::Json { file: file.into(), source })?;
        Ok(Self { file, map, used: RefCell::default() })
    }

    /// The value of a key, unless it is absent or null.
    pub(super) fn get(&self, key: &'static str) -> Option<&Value> {
        self.used.borrow_mut().insert(key);
        let mut parts = key.split('.');
        let first = self.map.get(parts.next()?)?;
        parts.try_fold(first, |value, part| value.get(part)).filter(|value| !value.is_null())
    }

    pub(super) fn missing(&self, key: &'static str) -> ConfigError {
        ConfigError::Missing { file: self.file.into(), key }
    }

    pub(super) fn wrong_type(
        &self,
        key: &'static str,
        wanted: &'static str,
        found: &Value,
    ) -> ConfigError {
        ConfigError::Type { file: self.file.into(), key, wanted, found: found.to_string() }
    }

    pub(super) fn out_of_range(
        &self,
        key: &'static str,
        found: impl ToString,
        wanted: impl Into<String>,
    ) -> ConfigError {
        let (found, wanted) = (found.to_string(), wanted.into());
        ConfigError::Range { file: self.file.into(), key, found, wanted }
    }

    pub(super) fn unsupported(
        &self,
        key: &'static str,
        value: impl ToString,
        supported: &'static str,
    ) -> ConfigError {
        let (file, value) = (self.file.into(), value.to_string());
        ConfigError::Unsupported { file, key, value, supported }
    }

    /// A number of things, at least `least`, if given.
    pub(super) fn count(
        &self,
        key: &'static str,
        least: usize,
    ) -> Result<Option<usize>, ConfigError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let found = value.as_i64().ok_or_else(|| self.wrong_type(key, "an integer", value))?;
        // Sizes of tensors: 2^31 elements in one dimension are far beyond any model.
        if (least as i64..=i64::from(i32::MAX)).contains(&found) {
            return Ok(Some(found as usize));
        }
        Err(self.out_of_range(key, found, format!("{least} to {}", i32::MAX)))
    }

    /// A number of things that every configuration states.
    pub(super) fn required(&self, key: &'static str) -> Result<usize, ConfigError> {
        self.count(key, 1)?.ok_or_else(|| self.missing(key))
    }

    pub(super) fn float(
        &self,
        key: &'static str,
        range: RangeInclusive<f64>,
    ) -> Result<Option<f64>, ConfigError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let found = value.as_f64().ok_or_else(|| self.wrong_type(key, "a number", value))?;
        if range.contains(&found) {
            return Ok(Some(found));
        }
        Err(self.out_of_range(key, found, format!("{} to {}", range.start(), range.end())))
    }

    pub(super) fn boolean(&self, key: &'static str) -> Result<Option<bool>, ConfigError> {
        self.get(key)
            .map(|value| {
                value.as_bool().ok_or_else(|| self.wrong_type(key, "true or false", value))
            })
            .transpose()
    }

    pub(super) fn text(&self, key: &'static str) -> Result<Option<&str>, ConfigError> {
        self.get(key)
            .map(|value| value.as_str().ok_or_else(|| self.wrong_type(key, "a string", value)))
            .transpose()
    }

    /// Judges the keys that nobody asked for: refuses those that would matter, returns those that nobody knows.
    pub(super) fn rest(&self) -> Result<Vec<String>, ConfigError> {
        for &key in ONLY_IDLE {
            if let Some(value) = self.get(key).filter(|value| !is_idle(value)) {
                return Err(self.unsupported(key, value, "null, false or empty"));
            }
        }
        let used = self.used.borrow();
        let mut unknown = Vec::new();
        for (key, value) in &self.map {
            let known =
                used.contains(key.as_str()) || HARMLESS.contains(&&**key) || key.starts_with('_');
            if !known {
                unknown.push(key.clone());
            }
            // Objects are read part by part.
            let prefix = format!("{key}.");
            if !used.iter().any(|used| used.starts_with(&prefix)) {
                continue;
            }
            let parts = value.as_object().into_iter().flat_map(Map::keys);
            let parts = parts.map(|part| format!("{prefix}{part}"));
            unknown.extend(parts.filter(|part| !used.contains(part.as_str())));
        }
        Ok(unknown)
    }
}

/// The value switches its feature off.
fn is_idle(value: &Value) -> bool {
    match value {
        Value::Bool(on) => !on,
        Value::Object(map) => map.is_empty(),
        Value::Array(list) => list.is_empty(),
        _ => false,
    }
}
