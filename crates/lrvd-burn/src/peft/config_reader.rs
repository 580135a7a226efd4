//! Values out of a JSON document, with errors that name the file, the key, the wanted form and the
//! value.

use std::path::Path;

use super::config::TargetModules;
use super::error::PeftError;
use crate::files::json::Json;

/// A document with its file, for error messages.
pub(super) struct Reader<'a> {
    pub(super) file: &'a Path,
    pub(super) document: &'a Json,
}

impl<'a> Reader<'a> {
    /// Value of a key; absent and null are the same.
    pub(super) fn get(&self, key: &str) -> Option<&'a Json> {
        self.document.get(key).filter(|value| **value != Json::Null)
    }

    pub(super) fn error(&self, key: &str, wanted: &'static str, found: Option<&Json>) -> PeftError {
        PeftError::Value {
            file: self.file.to_path_buf(),
            key: key.to_owned(),
            wanted,
            found: found.map_or_else(|| "nothing".to_owned(), Json::to_string),
        }
    }

    pub(super) fn take<T>(
        &self,
        key: &str,
        wanted: &'static str,
        convert: impl Fn(&'a Json) -> Option<T>,
    ) -> Result<Option<T>, PeftError> {
        self.get(key)
            .map(|value| convert(value).ok_or_else(|| self.error(key, wanted, Some(value))))
            .transpose()
    }

    pub(super) fn text(&self, key: &str) -> Result<Option<String>, PeftError> {
        self.take(key, "a text", |value| value.as_str().map(str::to_owned))
    }

    pub(super) fn flag(&self, key: &str, default: bool) -> Result<bool, PeftError> {
        Ok(self.take(key, "true or false", Json::as_bool)?.unwrap_or(default))
    }

    pub(super) fn count(&self, key: &str, default: usize) -> Result<usize, PeftError> {
        Ok(self.take(key, "a whole number, 0 or more", as_usize)?.unwrap_or(default))
    }

    pub(super) fn rank(&self, key: &str, default: usize) -> Result<usize, PeftError> {
        Ok(self.take(key, "a whole number, 1 or more", as_rank)?.unwrap_or(default))
    }

    pub(super) fn number(&self, key: &str, default: f64) -> Result<f64, PeftError> {
        Ok(self.take(key, "a number", Json::as_f64)?.unwrap_or(default))
    }

    pub(super) fn probability(&self, key: &str) -> Result<f64, PeftError> {
        let inside = |value: &Json| value.as_f64().filter(|p| (0.0..=1.0).contains(p));
        Ok(self.take(key, "a number from 0 to 1", inside)?.unwrap_or(0.0))
    }

    /// A list of texts, or one text.
    pub(super) fn texts(&self, key: &str) -> Result<Vec<String>, PeftError> {
        let convert = |value: &Json| match value {
            Json::String(text) => Some(vec![text.clone()]),
            _ => as_texts(value),
        };
        Ok(self.take(key, "a list of texts", convert)?.unwrap_or_default())
    }

    pub(super) fn targets(&self, key: &str) -> Result<Option<TargetModules>, PeftError> {
        self.take(key, "a list of names or a regular expression", |value| match value {
            Json::String(text) => Some(TargetModules::Regex(text.clone())),
            _ => as_texts(value).map(TargetModules::Names),
        })
    }

    pub(super) fn layers(&self) -> Result<Option<Vec<usize>>, PeftError> {
        self.take("layers_to_transform", "a list of whole numbers", |value| match value {
            Json::Number(_) => as_usize(value).map(|layer| vec![layer]),
            _ => value.as_array()?.iter().map(as_usize).collect(),
        })
        .map(|layers| layers.filter(|layers| !layers.is_empty()))
    }

    pub(super) fn pattern<T>(
        &self,
        key: &str,
        wanted: &'static str,
        convert: impl Fn(&Json) -> Option<T>,
    ) -> Result<Vec<(String, T)>, PeftError> {
        let pairs = self.take(key, "an object", Json::as_object)?.unwrap_or_default();
        pairs
            .iter()
            .map(|(name, value)| {
                let item = convert(value)
                    .ok_or_else(|| self.error(&format!("{key}.{name}"), wanted, Some(value)))?;
                Ok((name.clone(), item))
            })
            .collect()
    }
}

pub(super) fn as_usize(value: &Json) -> Option<usize> {
    value.as_u64().and_then(|value| usize::try_from(value).ok())
}

pub(super) fn as_rank(value: &Json) -> Option<usize> {
    as_usize(value).filter(|&rank| rank > 0)
}

fn as_texts(value: &Json) -> Option<Vec<String>> {
    value.as_array()?.iter().map(|item| item.as_str().map(str::to_owned)).collect()
}
