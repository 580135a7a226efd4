//! A reader of a JSON object, key by key.
//!
//! It remembers the keys that were read, so that the rest can be judged in the end. A dot in a key goes into an object.
//! A null counts as absent, as it does for transformers' `getattr` defaults.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::Path;

use serde_json::{Map, Value};

use crate::error::{Error, Result};

/// Keys that transformers writes for every model and that change nothing in the forward pass or the loss.
const HARMLESS: &[&str] = &[
    "architectures",
    "begin_suppress_tokens",
    "chunk_size_feed_forward",
    "cls_token_id",
    "decoder_start_token_id",
    "dtype",
    "finetuning_task",
    "label2id",
    "mask_token_id",
    "name_or_path",
    "output_attentions",
    "output_hidden_states",
    "prefix",
    "return_dict",
    "sep_token_id",
    "task_specific_params",
    "tokenizer_class",
    "torch_dtype",
    "torchscript",
    "transformers_version",
    "use_cache",
];

/// Keys that change any model unless they are null, false or empty.
const DEFAULT_ONLY: &[&str] = &[
    "add_cross_attention",
    "is_decoder",
    "is_encoder_decoder",
    "pruned_heads",
    "quantization_config",
];

/// The object in a file.
pub(crate) struct Reader<'a> {
    pub(crate) file: &'a Path,
    pub(crate) map: Map<String, Value>,
    used: RefCell<BTreeSet<&'static str>>,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(text: &[u8], file: &'a Path) -> Result<Self> {
        let map = serde_json::from_slice(text).map_err(Error::json(file))?;
        Ok(Self { file, map, used: RefCell::default() })
    }

    pub(crate) fn open(file: &'a Path) -> Result<Self> {
        Self::new(&std::fs::read(file).map_err(Error::read(file))?, file)
    }

    /// The value of a key, unless it is absent or null.
    pub(crate) fn get(&self, key: &'static str) -> Option<&Value> {
        self.used.borrow_mut().insert(key);
        let mut parts = key.split('.');
        let first = self.map.get(parts.next()?)?;
        parts.try_fold(first, |value, part| value.get(part)).filter(|value| !value.is_null())
    }

    pub(crate) fn wrong(
        &self,
        key: &str,
        expected: impl Into<String>,
        found: impl Display,
    ) -> Error {
        Error::format(self.file, key, expected, quoted(found))
    }

    pub(crate) fn missing(&self, key: &str, expected: &str) -> Error {
        Error::format(self.file, key, expected, "nothing")
    }

    pub(crate) fn unsupported(
        &self,
        key: &str,
        found: impl Display,
        supported: impl Into<String>,
    ) -> Error {
        Error::unsupported(self.file, key, found, supported)
    }

    /// The value of a key as `read` converts it; an error if `read` does not.
    pub(crate) fn value<'v, T>(
        &'v self,
        key: &'static str,
        expected: impl Into<String>,
        read: impl FnOnce(&'v Value) -> Option<T>,
    ) -> Result<Option<T>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        read(value).map(Some).ok_or_else(|| self.wrong(key, expected, value))
    }

    pub(crate) fn integer(&self, key: &'static str) -> Result<Option<i64>> {
        self.value(key, "an integer", Value::as_i64)
    }

    /// A number of things, at least `least`.
    pub(crate) fn count(&self, key: &'static str, least: usize) -> Result<Option<usize>> {
        // Sizes of tensors: 2^31 elements in one dimension are far beyond any model.
        let range = least as i64..=i64::from(i32::MAX);
        let read = |value: &Value| value.as_i64().filter(|found| range.contains(found));
        let found = self.value(key, format!("an integer from {least} to {}", i32::MAX), read)?;
        Ok(found.map(|found| found as usize))
    }

    /// A number of things that every configuration states.
    pub(crate) fn required(&self, key: &'static str) -> Result<usize> {
        self.count(key, 1)?.ok_or_else(|| self.missing(key, "an integer of at least 1"))
    }

    pub(crate) fn float(
        &self,
        key: &'static str,
        range: RangeInclusive<f64>,
    ) -> Result<Option<f64>> {
        let (least, most) = (*range.start(), *range.end());
        let expected = match (least == f64::MIN_POSITIVE, most == f64::MAX) {
            (false, false) => format!("a number from {least} to {most}"),
            (true, false) => format!("a number above 0 and at most {most}"),
            (false, true) => format!("a number of at least {least}"),
            (true, true) => "a number above 0".to_owned(),
        };
        self.value(key, expected, |value| value.as_f64().filter(|found| range.contains(found)))
    }

    pub(crate) fn boolean(&self, key: &'static str) -> Result<Option<bool>> {
        self.value(key, "true or false", Value::as_bool)
    }

    pub(crate) fn text(&self, key: &'static str) -> Result<Option<&str>> {
        self.value(key, "a string", Value::as_str)
    }

    /// Checks that a key has the one supported value; `default` is the value of an absent key.
    pub(crate) fn only(
        &self,
        key: &'static str,
        supported: &str,
        default: Option<&str>,
    ) -> Result<()> {
        match self.text(key)?.or(default) {
            None => Err(self.missing(key, &format!("`{supported}`"))),
            Some(found) if found == supported => Ok(()),
            Some(other) => Err(self.unsupported(key, other, format!("`{supported}`"))),
        }
    }

    /// The keys that were not read and are not known, sorted; an error for one that would change the model. `harmless` and
    /// `default_only` are those of one model type.
    pub(crate) fn rest(
        &self,
        harmless: &[&str],
        default_only: &[&'static str],
    ) -> Result<Vec<String>> {
        for &key in DEFAULT_ONLY.iter().chain(default_only) {
            if let Some(value) = self.get(key).filter(|value| !is_off(value)) {
                return Err(self.unsupported(key, value, "null, false or empty"));
            }
        }
        let used = self.used.borrow();
        let mut unknown = Vec::new();
        for (key, value) in &self.map {
            let known = used.contains(key.as_str())
                || [HARMLESS, harmless].concat().contains(&&**key)
                || key.starts_with('_');
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

/// A value in quotes, cut after 200 characters.
pub(crate) fn quoted(found: impl Display) -> String {
    format!("`{}`", cut(&found.to_string(), 200))
}

/// The first `most` characters of a text.
pub(crate) fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
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
