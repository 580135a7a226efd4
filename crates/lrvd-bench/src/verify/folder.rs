//! The `expected.json` of a fixture folder, entry by entry.

use std::path::{Path, PathBuf};

use lrvd_burn::files::FileError;
use serde_json::{Map, Value};

use super::VerifyError;

/// File name of the expectations.
pub(super) const EXPECTED: &str = "expected.json";

/// A fixture folder.
pub(super) struct Folder {
    pub(super) dir: PathBuf,
    pub(super) file: PathBuf,
    json: Value,
}

impl Folder {
    pub(super) fn open(dir: &Path) -> Result<Self, VerifyError> {
        let file = dir.join(EXPECTED);
        let bytes = std::fs::read(&file).map_err(|source| FileError::Io {
            action: "read",
            path: file.clone(),
            source,
        })?;
        let json = serde_json::from_slice(&bytes)
            .map_err(|source| FileError::Json { file: file.clone(), source })?;
        Ok(Self { dir: dir.to_path_buf(), file, json })
    }

    /// The whole document.
    pub(super) fn root(&self) -> Entry<'_> {
        Entry { folder: self, path: String::new(), value: &self.json }
    }

    /// An entry of the first level.
    pub(super) fn get(&self, key: &str) -> Result<Entry<'_>, VerifyError> {
        self.root().get(key)
    }

    /// An entry of the first level that may be absent.
    pub(super) fn find(&self, key: &str) -> Option<Entry<'_>> {
        self.root().find(key)
    }
}

/// A JSON value with its path, for error messages.
#[derive(Clone)]
pub(super) struct Entry<'a> {
    folder: &'a Folder,
    path: String,
    pub(super) value: &'a Value,
}

impl<'a> Entry<'a> {
    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// The entry below this one; null counts as absent.
    pub(super) fn find(&self, key: &str) -> Option<Self> {
        let value = self.value.get(key).filter(|value| !value.is_null())?;
        let path = self.below(key);
        Some(Self { folder: self.folder, path, value })
    }

    pub(super) fn get(&self, key: &str) -> Result<Self, VerifyError> {
        self.find(key).ok_or_else(|| VerifyError::MissingEntry {
            file: self.folder.file.clone(),
            name: self.below(key),
        })
    }

    /// Whether the key is there and null.
    pub(super) fn is_null(&self, key: &str) -> bool {
        self.value.get(key).is_some_and(Value::is_null)
    }

    fn below(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// An error about this entry.
    pub(super) fn wrong(&self, wanted: impl Into<String>) -> VerifyError {
        VerifyError::Entry {
            file: self.folder.file.clone(),
            name: self.path.clone(),
            wanted: wanted.into(),
            found: self.value.to_string(),
        }
    }

    /// A number; `"inf"`, `"-inf"` and `"nan"` are numbers, too.
    pub(super) fn number(&self) -> Result<f64, VerifyError> {
        let named = match self.value.as_str() {
            Some("inf") => Some(f64::INFINITY),
            Some("-inf") => Some(f64::NEG_INFINITY),
            Some("nan") => Some(f64::NAN),
            _ => None,
        };
        self.value.as_f64().or(named).ok_or_else(|| self.wrong("a number"))
    }

    pub(super) fn finite(&self) -> Result<f64, VerifyError> {
        let number = self.number()?;
        if number.is_finite() { Ok(number) } else { Err(self.wrong("a finite number")) }
    }

    pub(super) fn count(&self) -> Result<usize, VerifyError> {
        // Python writes some counts as floats.
        let whole = self.value.as_f64().filter(|v| v.fract() == 0.0 && (0.0..9e15).contains(v));
        let count = self.value.as_u64().or(whole.map(|v| v as u64));
        count
            .and_then(|count| usize::try_from(count).ok())
            .ok_or_else(|| self.wrong("a whole number, 0 or more"))
    }

    /// A count that fits a step counter.
    pub(super) fn steps(&self) -> Result<u32, VerifyError> {
        u32::try_from(self.count()?).map_err(|_| self.wrong("a whole number below 2^32"))
    }

    pub(super) fn text(&self) -> Result<&'a str, VerifyError> {
        self.value.as_str().ok_or_else(|| self.wrong("a text"))
    }

    pub(super) fn flag(&self) -> Result<bool, VerifyError> {
        self.value.as_bool().ok_or_else(|| self.wrong("true or false"))
    }

    pub(super) fn object(&self) -> Result<&'a Map<String, Value>, VerifyError> {
        self.value.as_object().ok_or_else(|| self.wrong("an object"))
    }

    /// The entries of an object, in key order.
    pub(super) fn entries(&self) -> Result<Vec<(&'a str, Self)>, VerifyError> {
        let object = self.object()?;
        let entry = |(key, value): (&'a String, &'a Value)| {
            (key.as_str(), Self { folder: self.folder, path: self.below(key), value })
        };
        Ok(object.iter().map(entry).collect())
    }

    /// The items of a list.
    pub(super) fn list(&self) -> Result<Vec<Self>, VerifyError> {
        let list = self.value.as_array().ok_or_else(|| self.wrong("a list"))?;
        let item = |(index, value): (usize, &'a Value)| Self {
            folder: self.folder,
            path: format!("{}[{index}]", self.path),
            value,
        };
        Ok(list.iter().enumerate().map(item).collect())
    }

    /// What belongs to the key `name` of this entry in a table.
    pub(super) fn among<'t, T>(
        &self,
        name: &str,
        table: &'t [(impl AsRef<str>, T)],
    ) -> Result<&'t T, VerifyError> {
        let found = table.iter().find(|(known, _)| known.as_ref() == name);
        found.map(|(_, value)| value).ok_or_else(|| self.unknown())
    }

    /// An error about this entry's key, which nobody knows.
    pub(super) fn unknown(&self) -> VerifyError {
        VerifyError::unsupported(format!("key `{}`", self.path))
    }

    /// All numbers of a list, nested lists included, in order.
    pub(super) fn numbers(&self) -> Result<Vec<f64>, VerifyError> {
        if self.value.is_array() {
            let mut numbers = Vec::new();
            for item in self.list()? {
                numbers.extend(item.numbers()?);
            }
            return Ok(numbers);
        }
        Ok(vec![self.number()?])
    }

    /// Refuses keys that are not among `known`: an unread key could change the meaning.
    pub(super) fn only(&self, known: &[&str]) -> Result<(), VerifyError> {
        match self.object()?.keys().find(|key| !known.contains(&key.as_str())) {
            None => Ok(()),
            Some(key) => {
                let below = self.below(key);
                Err(VerifyError::unsupported(format!("key `{below}`")))
            }
        }
    }
}
