//! A reader of the keys of a `config.json`.
//!
//! It reads a JSON object and remembers which keys were asked for, so that the rest can be judged in the end.
//! A dot in a key goes into an object. A null counts as absent, as it does for transformers' `getattr` defaults.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::path::Path;

use serde_json::{Map, Value};

use crate::config_error::ConfigError;

/// Keys that a model's configuration may hold without being read.
pub(crate) struct SpareKeys {
    /// Those that transformers writes and that change nothing in the forward pass or the loss.
    pub(crate) harmless: &'static [&'static str],
    /// Those that change the model unless they are null, false or empty.
    pub(crate) only_idle: &'static [&'static str],
}

/// A JSON object that is read key by key.
pub(crate) struct Reader<'a> {
    file: &'a Path,
    map: Map<String, Value>,
    used: RefCell<BTreeSet<&'static str>>,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(text: &[u8], file: &'a Path) -> Result<Self, ConfigError> {
        let map = serde_json::from_slice(text)
            .map_err(|source| ConfigError::Json { file: file.into(), source })?;
        Ok(Self { file, map, used: RefCell::default() })
    }

    /// The contents of a file for [`Self::new`].
    pub(crate) fn bytes(file: &Path) -> Result<Vec<u8>, ConfigError> {
        std::fs::read(file).map_err(|source| ConfigError::Read { file: file.into(), source })
    }

    /// Refuses a configuration of another model type; `wanted` is the type and its name in the error.
    pub(crate) fn model_type(
        &self,
        (wanted, quoted): (&str, &'static str),
    ) -> Result<(), ConfigError> {
        match self.text("model_type")? {
            None => Err(self.missing("model_type")),
            Some(found) if found == wanted => Ok(()),
            Some(other) => Err(self.unsupported("model_type", other, quoted)),
        }
    }

    /// The value of a key, unless it is absent or null.
    pub(crate) fn get(&self, key: &'static str) -> Option<&Value> {
        self.used.borrow_mut().insert(key);
        let mut parts = key.split('.');
        let first = self.map.get(parts.next()?)?;
        parts.try_fold(first, |value, part| value.get(part)).filter(|value| !value.is_null())
    }

    /// The key is there and null.
    pub(crate) fn is_null(&self, key: &'static str) -> bool {
        self.used.borrow_mut().insert(key);
        self.map.get(key).is_some_and(Value::is_null)
    }

    pub(crate) fn missing(&self, key: &'static str) -> ConfigError {
        ConfigError::Missing { file: self.file.into(), key }
    }

    pub(crate) fn wrong_type(
        &self,
        key: &'static str,
        wanted: &'static str,
        found: &Value,
    ) -> ConfigError {
        ConfigError::Type { file: self.file.into(), key, wanted, found: found.to_string() }
    }

    pub(crate) fn out_of_range(
        &self,
        key: &'static str,
        found: impl ToString,
        wanted: impl Into<String>,
    ) -> ConfigError {
        let (found, wanted) = (found.to_string(), wanted.into());
        ConfigError::Range { file: self.file.into(), key, found, wanted }
    }

    pub(crate) fn unsupported(
        &self,
        key: &'static str,
        value: impl ToString,
        supported: &'static str,
    ) -> ConfigError {
        ConfigError::Unsupported {
            file: self.file.into(),
            key,
            value: value.to_string(),
            supported,
        }
    }

    /// A whole number, if given.
    pub(crate) fn integer(&self, key: &'static str) -> Result<Option<i64>, ConfigError> {
        self.get(key)
            .map(|value| value.as_i64().ok_or_else(|| self.wrong_type(key, "an integer", value)))
            .transpose()
    }

    /// A number of things, at least `least`, if given.
    pub(crate) fn count(
        &self,
        key: &'static str,
        least: usize,
    ) -> Result<Option<usize>, ConfigError> {
        // Sizes of tensors: 2^31 elements in one dimension are far beyond any model.
        let range = least as i64..=i64::from(i32::MAX);
        match self.integer(key)? {
            Some(found) if !range.contains(&found) => {
                Err(self.out_of_range(key, found, format!("{least} to {}", i32::MAX)))
            }
            found => Ok(found.map(|found| found as usize)),
        }
    }

    /// A number of things that every configuration states.
    pub(crate) fn required(&self, key: &'static str) -> Result<usize, ConfigError> {
        self.count(key, 1)?.ok_or_else(|| self.missing(key))
    }

    pub(crate) fn float(
        &self,
        key: &'static str,
        range: RangeInclusive<f64>,
    ) -> Result<Option<f64>, ConfigError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let found = value.as_f64().ok_or_else(|| self.wrong_type(key, "a number", value))?;
        if range.contains(&found) {
            return Ok(Some(found));
        }
        let (least, most) = (*range.start(), *range.end());
        let wanted = match (least == f64::MIN_POSITIVE, most == f64::MAX) {
            (false, false) => format!("{least} to {most}"),
            (true, false) => format!("above 0 and at most {most}"),
            (false, true) => format!("at least {least}"),
            (true, true) => "above 0".to_owned(),
        };
        Err(self.out_of_range(key, value, wanted))
    }

    pub(crate) fn boolean(&self, key: &'static str) -> Result<Option<bool>, ConfigError> {
        self.get(key)
            .map(|value| {
                value.as_bool().ok_or_else(|| self.wrong_type(key, "true or false", value))
            })
            .transpose()
    }

    pub(crate) fn text(&self, key: &'static str) -> Result<Option<&str>, ConfigError> {
        self.get(key)
            .map(|value| value.as_str().ok_or_else(|| self.wrong_type(key, "a string", value)))
            .transpose()
    }

    /// Checks the keys that were not read: an error for those that would matter; returns the unknown ones.
    pub(crate) fn rest(&self, spare: &SpareKeys) -> Result<Vec<String>, ConfigError> {
        for &key in spare.only_idle {
            if let Some(value) = self.get(key).filter(|value| !is_idle(value)) {
                return Err(self.unsupported(key, value, "null, false or empty"));
            }
        }
        let used = self.used.borrow();
        let mut unknown = Vec::new();
        for (key, value) in &self.map {
            let known = used.contains(key.as_str())
                || spare.harmless.contains(&&**key)
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

/// The value switches its feature off.
fn is_idle(value: &Value) -> bool {
    match value {
        Value::Bool(on) => !on,
        Value::Object(map) => map.is_empty(),
        Value::Array(list) => list.is_empty(),
        _ => false,
    }
}
