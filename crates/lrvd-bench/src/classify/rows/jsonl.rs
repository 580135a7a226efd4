//! One JSON object a line. Other keys are allowed and not read.

use std::path::Path;

use serde_json::{Map, Value};

use super::{Row, TextColumns, line};
use crate::classify::error::ClassifyError;
use crate::data::Place;
use crate::text::quoted;

pub(super) fn read(file: &Path, columns: &TextColumns) -> Result<Vec<Row>, ClassifyError> {
    let decode = |source: Box<dyn std::error::Error + Send + Sync>| ClassifyError::Decode {
        file: file.to_owned(),
        source,
    };
    let bytes = std::fs::read(file).map_err(|error| decode(error.into()))?;
    let text = String::from_utf8(bytes).map_err(|error| decode(error.into()))?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines.map(|(i, text)| parse_object(text, line(file, i as u64 + 1), columns)).collect()
}

/// One row from the text of one object; `place` is named in errors.
fn parse_object(text: &str, place: Place, columns: &TextColumns) -> Result<Row, ClassifyError> {
    let object: Map<String, Value> = serde_json::from_str(text)
        .map_err(|source| ClassifyError::Row { place: place.clone(), source: source.into() })?;
    let find = |key: &String| {
        object.get(key).ok_or_else(|| ClassifyError::MissingKey {
            place: place.clone(),
            wanted: key.clone(),
            found: quoted(object.keys()),
        })
    };
    let string = |key: &String| match find(key)? {
        Value::String(text) => Ok(text.clone()),
        other => Err(wrong(&place, key, "a string", other)),
    };
    let label = |key: &String| match find(key)? {
        Value::String(text) => Ok(text.clone()),
        Value::Number(number) => Ok(number.to_string()),
        Value::Bool(flag) => Ok(flag.to_string()),
        other => Err(wrong(&place, key, "a string, a number or a boolean", other)),
    };
    let (pair, label) = (
        columns.pair.as_ref().map(string).transpose()?,
        columns.label.as_ref().map(label).transpose()?,
    );
    Row::new(place.clone(), columns, string(&columns.text)?, pair, label)
}

fn wrong(place: &Place, column: &str, wanted: &'static str, value: &Value) -> ClassifyError {
    let found = match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    };
    let (place, column, found) = (place.clone(), column.to_owned(), found.to_owned());
    ClassifyError::Type { place, column, wanted, found }
}
