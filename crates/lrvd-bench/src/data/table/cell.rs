//! One value of a table.

use std::collections::BTreeMap;

use serde_json::Value;

/// Doubles from here on do not tell neighbouring integers apart.
const EXACT: f64 = 9_007_199_254_740_992.0;

#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    Null,
    Bool(bool),
    /// A whole number of at most 64 bits, signed or not.
    Integer(i128),
    Float(f64),
    Text(String),
    List(Vec<Cell>),
    Object(BTreeMap<String, Cell>),
    /// A value of a type that no data set uses, such as a date or bytes.
    Other,
}

impl Cell {
    pub(crate) const fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "a boolean",
            Self::Float(number) if number.abs() >= EXACT => {
                "a number with more digits than a double holds (write it as a string)"
            }
            Self::Integer(_) | Self::Float(_) => "a number",
            Self::Text(_) => "a string",
            Self::List(_) => "a list",
            Self::Object(_) => "an object",
            Self::Other => "a value of another type",
        }
    }

    /// Text, number or truth value as a text file has it; a float that is whole is written as an integer.
    ///
    /// `None` from 2^53 on, where different integers are the same double.
    pub(crate) fn plain(&self) -> Option<String> {
        Some(match self {
            Self::Text(text) => text.clone(),
            Self::Bool(flag) => flag.to_string(),
            Self::Integer(number) => number.to_string(),
            Self::Float(number) if number.abs() >= EXACT => return None,
            // What was stored with 32 bits has the digits of 32 bits.
            Self::Float(number) if f64::from(*number as f32) == *number => {
                (*number as f32).to_string()
            }
            Self::Float(number) => number.to_string(),
            Self::Null | Self::List(_) | Self::Object(_) | Self::Other => return None,
        })
    }
}

impl From<Value> for Cell {
    fn from(value: Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(flag) => Self::Bool(flag),
            Value::Number(number) => match (number.as_i128(), number.as_f64()) {
                (Some(whole), _) => Self::Integer(whole),
                (None, Some(number)) => Self::Float(number),
                (None, None) => Self::Other,
            },
            Value::String(text) => Self::Text(text),
            Value::Array(items) => Self::List(items.into_iter().map(Self::from).collect()),
            Value::Object(fields) => {
                Self::Object(fields.into_iter().map(|(key, value)| (key, value.into())).collect())
            }
        }
    }
}
