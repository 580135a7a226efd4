//! Rows of a table: values by name, each with its place in the file.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use anyhow::{anyhow, bail};
use serde_json::{Map, Value};

use crate::error::{Error, Result};
use crate::text::quoted;

/// The rows of one format.
pub(super) trait Source {
    /// Names of the columns; `None` where each row has keys.
    fn names(&self) -> Option<&[String]> {
        None
    }

    /// Decodes these columns only, where the format allows that.
    fn select(&mut self, _columns: &[&str]) -> Result<()> {
        Ok(())
    }

    fn next_row(&mut self) -> Result<Option<Row>>;
}

impl Source for std::vec::IntoIter<Row> {
    fn next_row(&mut self) -> Result<Option<Row>> {
        Ok(self.next())
    }
}

#[derive(Debug, Clone)]
pub struct Row {
    place: Place,
    names: Arc<[String]>,
    /// Whether the names are those of this row alone, not of a header or schema.
    keyed: bool,
    cells: Vec<Value>,
}

impl Row {
    /// A row whose names are those of the whole table.
    pub(super) fn under(names: Arc<[String]>, place: Place, cells: Vec<Value>) -> Self {
        Self { place, names, keyed: false, cells }
    }

    pub(super) fn keyed(place: Place, fields: Vec<(String, Value)>) -> Self {
        let (names, cells): (Vec<_>, Vec<_>) = fields.into_iter().unzip();
        Self { place, names: names.into(), keyed: true, cells }
    }

    pub(super) fn separated<'a>(
        names: &Arc<[String]>,
        place: Place,
        separator: &'static str,
        fields: impl Iterator<Item = &'a str>,
    ) -> Result<Self> {
        let cells: Vec<Value> = fields.map(Value::from).collect();
        if cells.len() != names.len() {
            let (expected, found) = (names.len(), cells.len());
            bail!(
                "{place}: {found} {separator}-separated fields where {expected} are expected ({})",
                quoted(&**names)
            );
        }
        Ok(Self::under(Arc::clone(names), place, cells))
    }

    pub const fn place(&self) -> &Place {
        &self.place
    }

    pub(super) fn names(&self) -> &[String] {
        &self.names
    }

    /// The value under the first of `names` that the row has, with its name.
    pub fn find<'a>(&self, names: &[&'a str]) -> Result<(&'a str, &Value)> {
        for name in names {
            if let Some(cell) = self.get(name)? {
                return Ok((*name, cell));
            }
        }
        let (place, names) = (&self.place, any_of(names));
        Err(if self.keyed {
            let mut found = self.names.to_vec();
            found.sort_unstable();
            anyhow!("{place}: no key {names}; the keys are {}", quoted(found))
        } else {
            anyhow!(
                "`{}` has no column {names}; its columns are {}",
                place.file.display(),
                quoted(&*self.names)
            )
        })
    }

    /// The text under the first of `names` that the row has, verbatim.
    pub fn text(&self, names: &[&str]) -> Result<&str> {
        let (name, cell) = self.find(names)?;
        self.as_text(cell, name)
    }

    pub(crate) fn get(&self, name: &str) -> Result<Option<&Value>> {
        let mut places = (0..self.names.len()).filter(|&i| self.names[i] == name);
        let first = places.next();
        match places.count() {
            0 => Ok(first.map(|i| &self.cells[i])),
            more => {
                let mut place = self.place.clone();
                if !self.keyed {
                    place.at = At::Line(1);
                }
                Err(anyhow!(
                    "{place}: `{name}` occurs {} times, expected one such column",
                    more + 1
                ))
            }
        }
    }

    /// The first of the ids, each of one or more columns, that the row has as texts or whole numbers; parts are
    /// joined by a hyphen.
    pub(crate) fn id(&self, ids: &[&[&str]]) -> Result<Option<String>> {
        for set in ids {
            let mut parts = Vec::new();
            for name in *set {
                parts.extend(match self.get(name)? {
                    Some(cell) if cell.is_string() || cell.is_i64() || cell.is_u64() => plain(cell),
                    _ => None,
                });
            }
            if parts.len() == set.len() {
                return Ok(Some(parts.join("-")));
            }
        }
        Ok(None)
    }

    /// A text that is not blank, verbatim; `column` is its full name.
    pub(crate) fn as_text<'a>(&self, cell: &'a Value, column: &str) -> Result<&'a str> {
        let Value::String(text) = cell else {
            return Err(self.wrong_type(column, "a string", cell));
        };
        if text.trim().is_empty() {
            return Err(self.blank(column, "text"));
        }
        Ok(text)
    }

    pub(crate) fn as_object<'a>(
        &self,
        cell: &'a Value,
        column: &str,
    ) -> Result<&'a Map<String, Value>> {
        cell.as_object().ok_or_else(|| self.wrong_type(column, "an object", cell))
    }

    /// A field of an object within the row: the one named by the last part of `path`.
    fn within<'a>(&self, object: &'a Map<String, Value>, path: &str) -> Result<&'a Value> {
        let key = path.rsplit('.').next().unwrap_or(path);
        object.get(key).ok_or_else(|| {
            anyhow!("{}: no key `{path}`; the keys are {}", self.place, quoted(object.keys()))
        })
    }

    /// A text field of an object within the row; `path` is its full name.
    pub(crate) fn text_within<'a>(
        &self,
        object: &'a Map<String, Value>,
        path: &str,
    ) -> Result<&'a str> {
        self.as_text(self.within(object, path)?, path)
    }

    /// A list field of an object within the row; `path` is its full name.
    pub(crate) fn list_within<'a>(
        &self,
        object: &'a Map<String, Value>,
        path: &str,
    ) -> Result<&'a [Value]> {
        self.as_list(self.within(object, path)?, path, "a list")
    }

    pub(crate) fn as_list<'a>(
        &self,
        cell: &'a Value,
        column: &str,
        expected: &'static str,
    ) -> Result<&'a [Value]> {
        match cell {
            Value::Array(items) => Ok(items),
            other => Err(self.wrong_type(column, expected, other)),
        }
    }

    /// The error of a value that has another type than `expected`.
    pub(crate) fn wrong_type(&self, column: &str, expected: &'static str, cell: &Value) -> Error {
        let (place, found) = (&self.place, kind(cell));
        anyhow!("{place}, column `{column}`: {found} where {expected} is expected")
    }

    pub(crate) fn blank(&self, column: &str, what: &'static str) -> Error {
        anyhow!("{}, column `{column}`: empty {what}", self.place)
    }
}

/// Doubles from here on do not tell neighbouring integers apart.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// A number that is not a whole number of 64 bits.
fn double(value: &Value) -> Option<f64> {
    value.as_f64().filter(|_| value.is_f64())
}

pub(super) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) if double(value).is_some_and(|number| number.abs() >= EXACT) => {
            "a number with more digits than a double holds (write it as a string)"
        }
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// Text, number or truth value as a text file has it; a float that is whole is written as an integer.
///
/// `None` from 2^53 on, where different integers are the same double.
pub(crate) fn plain(value: &Value) -> Option<String> {
    match (value, double(value)) {
        (Value::String(text), _) => Some(text.clone()),
        (Value::Null | Value::Array(_) | Value::Object(_), _) => None,
        (_, Some(number)) if number.abs() >= EXACT => None,
        // What was stored with 32 bits has the digits of 32 bits.
        (_, Some(number)) if f64::from(number as f32) == number => {
            Some((number as f32).to_string())
        }
        (_, Some(number)) => Some(number.to_string()),
        (value, None) => Some(value.to_string()),
    }
}

/// A position within a data file, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    /// A line of a text file; the header is line 1.
    Line(usize),
    /// A row of a columnar file.
    Row(usize),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub file: Arc<Path>,
    pub at: At,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = self.file.display();
        match self.at {
            At::Line(number) => write!(f, "`{file}`, line {number}"),
            At::Row(number) => write!(f, "`{file}`, row {number}"),
        }
    }
}

pub(super) fn any_of(names: &[&str]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(" or ")
}
