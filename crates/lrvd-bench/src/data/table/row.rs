//! Rows of a table: values by name, each with its place in the file.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use anyhow::anyhow;
use serde::Serialize;
use serde_json::Value;

use crate::error::{Error, Result};
use crate::io::{kind, plain};
use crate::text::quoted;

/// The error of one row: those behind it can be read. Message and causes are the error's.
#[derive(Debug)]
pub struct BadRow {
    at: At,
    error: Error,
}

impl BadRow {
    /// `error` as that of the row at `place`, which its message names.
    pub fn error(place: &Place, error: Error) -> Error {
        Error::new(Self { at: place.at, error })
    }

    /// The place of the row, if `error` is that of one row.
    pub fn at(error: &Error) -> Option<At> {
        error.chain().find_map(|cause| cause.downcast_ref()).map(|bad: &Self| bad.at)
    }
}

impl fmt::Display for BadRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for BadRow {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.source()
    }
}

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

    /// Names of the numbers of a column, from 0, if the file states them.
    fn names_of(&self, _column: &str) -> Option<&[String]> {
        None
    }
}

impl Source for std::vec::IntoIter<Row> {
    fn next_row(&mut self) -> Result<Option<Row>> {
        Ok(self.next())
    }
}

#[derive(Debug, Clone)]
pub struct Row {
    pub(crate) place: Place,
    pub(super) names: Arc<[String]>,
    /// `true` if the names are those of this row alone, not of a header or schema.
    pub(super) keyed: bool,
    pub(crate) cells: Vec<Value>,
}

impl Row {
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
            return Err(BadRow::error(
                &place,
                anyhow!(
                    "{place}: {found} {separator}-separated fields where {expected} are expected ({})",
                    quoted(&**names)
                ),
            ));
        }
        Ok(Self { place, names: Arc::clone(names), keyed: false, cells })
    }

    /// Names of the columns, or its own keys.
    pub(crate) fn keys(&self) -> &[String] {
        &self.names
    }

    /// The value under the first of `names` that the row has.
    pub fn find(&self, names: &[&str]) -> Result<Cell<'_>> {
        for name in names {
            if let Some(value) = self.get(name)? {
                return Ok(Cell { place: &self.place, column: (*name).to_owned(), value });
            }
        }
        let place = &self.place;
        let names = any_of(names);
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
        self.find(names)?.text()
    }

    pub(crate) fn get(&self, name: &str) -> Result<Option<&Value>> {
        let mut places = (0..self.names.len()).filter(|&i| self.names[i] == name);
        let first = places.next();
        match places.count() {
            0 => Ok(first.map(|i| &self.cells[i]).or_else(|| self.within(name))),
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

    /// The value at a path of keys with dots between them, of a row that has keys.
    fn within(&self, path: &str) -> Option<&Value> {
        let (first, rest) = path.split_once('.').filter(|_| self.keyed)?;
        let place = self.names.iter().position(|name| name == first)?;
        rest.split('.').try_fold(&self.cells[place], |value, key| value.get(key))
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
}

/// A value within a row, under its full name.
#[derive(Debug, Clone)]
pub struct Cell<'a> {
    pub(crate) place: &'a Place,
    pub(crate) column: String,
    pub value: &'a Value,
}

impl<'a> Cell<'a> {
    /// A text that is not blank, verbatim.
    pub(crate) fn text(&self) -> Result<&'a str> {
        match self.value {
            Value::String(text) if !text.trim().is_empty() => Ok(text),
            Value::String(_) => Err(self.blank("text")),
            _ => Err(self.wrong_type("a string")),
        }
    }

    /// A label or choice, without the white space around it.
    pub(crate) fn word(&self, what: &'static str) -> Result<String> {
        let found = plain(self.value);
        match found.ok_or_else(|| self.wrong_type("a string, a number or a boolean"))?.trim() {
            "" => Err(self.blank(what)),
            word => Ok(word.to_owned()),
        }
    }

    /// The items of a list, which an error calls `expected`.
    pub(crate) fn list(&self, expected: &'static str) -> Result<Vec<Self>> {
        let items = self.value.as_array().ok_or_else(|| self.wrong_type(expected))?;
        let item = |(i, value)| Self { column: format!("{}[{i}]", self.column), value, ..*self };
        Ok(items.iter().enumerate().map(item).collect())
    }

    pub(crate) fn field(&self, key: &str) -> Result<Self> {
        let object = self.value.as_object().ok_or_else(|| self.wrong_type("an object"))?;
        let column = format!("{}.{key}", self.column);
        match object.get(key) {
            Some(value) => Ok(Self { column, value, ..*self }),
            None => {
                let place = self.place;
                let keys = quoted(object.keys());
                Err(anyhow!("{place}: no key `{column}`; the keys are {keys}"))
            }
        }
    }

    /// The error of a value that has another type than `expected`.
    pub(crate) fn wrong_type(&self, expected: &'static str) -> Error {
        let Self { place, column, value } = self;
        anyhow!("{place}, column `{column}`: {} where {expected} is expected", kind(value))
    }

    pub(crate) fn blank(&self, what: &'static str) -> Error {
        anyhow!("{}, column `{}`: empty {what}", self.place, self.column)
    }
}

/// A position within a data file, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum At {
    /// A line of a text file; the header is line 1.
    Line(usize),
    /// A row of a columnar file.
    Row(usize),
}

impl At {
    /// The number of the line or the row.
    pub const fn number(self) -> usize {
        match self {
            Self::Line(number) | Self::Row(number) => number,
        }
    }

    pub(crate) const fn line(self) -> Option<usize> {
        match self {
            Self::Line(number) => Some(number),
            Self::Row(_) => None,
        }
    }

    pub(crate) const fn row(self) -> Option<usize> {
        match self {
            Self::Row(number) => Some(number),
            Self::Line(_) => None,
        }
    }
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
