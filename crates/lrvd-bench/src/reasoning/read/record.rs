//! One row as an object, and typed access to its fields.

use serde_json::{Map, Value};

use crate::data::{DataError, Place};

/// A row and where it is.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) place: Place,
    pub(super) fields: Map<String, Value>,
}

impl Record {
    /// The first of `wanted` that the row has, with its name.
    pub(super) fn find(
        &self,
        wanted: &[&'static str],
    ) -> Result<(&'static str, &Value), DataError> {
        let found = wanted.iter().find_map(|key| Some((*key, self.fields.get(*key)?)));
        found.ok_or_else(|| self.missing(wanted, &self.fields))
    }

    /// The text under the first of `wanted` that the row has.
    pub(super) fn text(&self, wanted: &[&'static str]) -> Result<&str, DataError> {
        let (key, value) = self.find(wanted)?;
        self.as_text(value, key)
    }

    /// A text field of an object within the row; `path` is its full name.
    pub(super) fn text_within<'a>(
        &self,
        object: &'a Map<String, Value>,
        path: &'static str,
    ) -> Result<&'a str, DataError> {
        self.as_text(self.within(object, path)?, path)
    }

    /// A list field of an object within the row; `path` is its full name.
    pub(super) fn list_within<'a>(
        &self,
        object: &'a Map<String, Value>,
        path: &'static str,
    ) -> Result<&'a [Value], DataError> {
        match self.within(object, path)? {
            Value::Array(items) => Ok(items),
            other => Err(self.wrong_type(path, "a list", other)),
        }
    }

    /// Any field of an object within the row: the one named by the last part of `path`.
    pub(super) fn within<'a>(
        &self,
        object: &'a Map<String, Value>,
        path: &'static str,
    ) -> Result<&'a Value, DataError> {
        let key = path.rsplit('.').next().unwrap_or(path);
        object.get(key).ok_or_else(|| self.missing(&[path], object))
    }

    /// A text that is not blank, verbatim.
    pub(super) fn as_text<'a>(&self, value: &'a Value, column: &str) -> Result<&'a str, DataError> {
        let Value::String(text) = value else {
            return Err(self.wrong_type(column, "a string", value));
        };
        if text.trim().is_empty() {
            let (place, column) = (self.place.clone(), column.to_owned());
            return Err(DataError::EmptyText { place, column });
        }
        Ok(text)
    }

    /// An object.
    pub(super) fn as_object<'a>(
        &self,
        value: &'a Value,
        column: &str,
    ) -> Result<&'a Map<String, Value>, DataError> {
        match value {
            Value::Object(object) => Ok(object),
            other => Err(self.wrong_type(column, "an object", other)),
        }
    }

    /// The error of a value that has another type than `wanted`.
    pub(super) fn wrong_type(
        &self,
        column: &str,
        wanted: &'static str,
        value: &Value,
    ) -> DataError {
        let found = match value {
            Value::Null => "null",
            Value::Bool(_) => "a boolean",
            Value::Number(_) => "a number",
            Value::String(_) => "a string",
            Value::Array(_) => "a list",
            Value::Object(_) => "an object",
        };
        let (place, column, found) = (self.place.clone(), column.to_owned(), found.to_owned());
        DataError::Type { place, column, wanted, found }
    }

    fn missing(&self, wanted: &[&'static str], object: &Map<String, Value>) -> DataError {
        let found = object.keys().cloned().collect();
        DataError::MissingKey { place: self.place.clone(), wanted: wanted.to_vec(), found }
    }
}
