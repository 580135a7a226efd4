//! Values taken out of a JSON document, with errors that name the file, the key, the expected form
//! and the value.

use std::path::Path;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::Error;
use crate::files::ordered_map::OrderedMap;

/// A value of the document. An object keeps the order of its keys; one with a key that is there
/// twice reads as plain value, which no key accepts.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum Entry {
    Object(OrderedMap<Value>),
    Plain(Value),
}

impl Entry {
    fn into_value(self) -> Value {
        match self {
            Self::Object(OrderedMap(pairs)) => Value::Object(pairs.into_iter().collect()),
            Self::Plain(value) => value,
        }
    }
}

/// One value, or a list of them.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum OneOrMany<T> {
    One(T),
    Many(Vec<T>),
}

impl<T> OneOrMany<T> {
    pub(super) fn into_vec(self) -> Vec<T> {
        match self {
            Self::One(value) => vec![value],
            Self::Many(values) => values,
        }
    }
}

/// A document with its file, for error messages, and the keys that were not taken yet.
pub(super) struct Reader<'a> {
    file: &'a Path,
    keys: Vec<(String, Entry)>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(file: &'a Path, text: &[u8]) -> Result<Self, Error> {
        let OrderedMap(keys) =
            serde_json::from_slice(text).map_err(|source| Error::json(file, source))?;
        Ok(Self { file, keys })
    }

    pub(super) fn error(&self, key: &str, expected: &'static str, found: &impl Serialize) -> Error {
        let found = match serde_json::to_string(found) {
            Ok(text) if text == "null" => "nothing".to_owned(),
            Ok(text) => text,
            Err(error) => error.to_string(),
        };
        Error::value(self.file, key, expected, format_args!("`{found}`"))
    }

    /// Takes a key; absent and null are the same.
    fn entry(&mut self, key: &str) -> Option<Entry> {
        let index = self.keys.iter().position(|(name, _)| name == key)?;
        let entry = self.keys.remove(index).1;
        (!matches!(entry, Entry::Plain(Value::Null))).then_some(entry)
    }

    /// Takes a key as it is.
    pub(super) fn value(&mut self, key: &str) -> Value {
        self.entry(key).map_or(Value::Null, Entry::into_value)
    }

    /// Takes the value of a key; none if it is absent or null.
    pub(super) fn take<T: DeserializeOwned>(
        &mut self,
        key: &str,
        expected: &'static str,
    ) -> Result<Option<T>, Error> {
        match self.value(key) {
            Value::Null => Ok(None),
            value => self.convert(key, expected, value).map(Some),
        }
    }

    /// Takes the pairs of an object, none of an absent one.
    pub(super) fn pattern<T: DeserializeOwned>(
        &mut self,
        key: &str,
        expected: &'static str,
    ) -> Result<Vec<(String, T)>, Error> {
        let pairs = match self.entry(key) {
            None => Vec::new(),
            Some(Entry::Object(OrderedMap(pairs))) => pairs,
            Some(Entry::Plain(value)) => {
                return Err(self.error(key, "an object with every key once", &value));
            }
        };
        let convert = |(name, value): (String, _)| {
            let value = self.convert(&format!("{key}.{name}"), expected, value)?;
            Ok((name, value))
        };
        pairs.into_iter().map(convert).collect()
    }

    fn convert<T: DeserializeOwned>(
        &self,
        key: &str,
        expected: &'static str,
        value: Value,
    ) -> Result<T, Error> {
        T::deserialize(&value).map_err(|_| self.error(key, expected, &value))
    }

    /// The keys that were not taken.
    pub(super) fn rest(self) -> impl Iterator<Item = (String, Value)> {
        self.keys.into_iter().map(|(key, entry)| (key, entry.into_value()))
    }
}
