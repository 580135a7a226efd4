//! Columns of rows that are written, and their values.

use std::collections::BTreeMap;

use serde_json::Value;

#[derive(Debug, Default)]
pub(super) struct Columns {
    pub(super) all: Vec<Column>,
    places: BTreeMap<String, usize>,
}

#[derive(Debug)]
pub(super) struct Column {
    pub(super) name: String,
    pub(super) kind: Option<Kind>,
}

/// Kind of the values of a column: of several kinds they are texts, of integers and other numbers `Double`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Bool,
    Int,
    Double,
    Text,
}

impl Kind {
    fn of(value: &Value) -> Option<Self> {
        match value {
            Value::Null => None,
            Value::Bool(_) => Some(Self::Bool),
            Value::Number(number) if number.is_i64() => Some(Self::Int),
            Value::Number(_) => Some(Self::Double),
            Value::String(_) | Value::Array(_) | Value::Object(_) => Some(Self::Text),
        }
    }

    fn with(self, other: Self) -> Self {
        match (self, other) {
            (a, b) if a == b => a,
            (Self::Int | Self::Double, Self::Int | Self::Double) => Self::Double,
            _ => Self::Text,
        }
    }
}

impl Columns {
    /// Notes that there is such a column, and what its value is.
    pub(super) fn add(&mut self, name: &str, value: &Value) {
        let place = self.places.get(name).copied().unwrap_or_else(|| {
            self.all.push(Column { name: name.to_owned(), kind: None });
            self.places.insert(name.to_owned(), self.all.len() - 1);
            self.all.len() - 1
        });
        let column = &mut self.all[place];
        if let Some(found) = Kind::of(value) {
            column.kind = Some(column.kind.map_or(found, |kind| kind.with(found)));
        }
    }
}

/// A value as a cell of text: nothing of null, a text as it is, anything else as JSON.
pub fn cell_text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
