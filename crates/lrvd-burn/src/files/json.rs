//! JSON as Rust values; errors name the key of the value that does not fit.

use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_path_to_error::Segment;

/// Value of a JSON document that does not fit its type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonMismatch {
    /// Path of the value, such as `rank_pattern.q`; `.` for the whole document.
    pub key: String,
    /// Expected form.
    pub expected: String,
    /// Value that was found; `None` if it is missing or null.
    pub found: Option<Value>,
}

/// Reads a `T` from `json`, which is the text or the parsed form of `document`.
pub fn from_json<'de, T: Deserialize<'de>>(
    json: impl Deserializer<'de, Error = serde_json::Error>,
    document: &Value,
) -> Result<T, JsonMismatch> {
    serde_path_to_error::deserialize(json).map_err(|error| {
        let mut key = error.path().to_string();
        let found = error.path().iter().try_fold(document, |value, segment| match segment {
            Segment::Seq { index } => value.get(index),
            Segment::Map { key } => value.get(key),
            Segment::Enum { .. } | Segment::Unknown => Some(value),
        });
        let mut found = found.filter(|value| !value.is_null());
        let reason = error.inner().to_string();
        let position =
            format!(" at line {} column {}", error.inner().line(), error.inner().column());
        let reason = reason.strip_suffix(&position).unwrap_or(&reason);
        // The path of a missing field is that of its parent.
        let missing =
            reason.strip_prefix("missing field `").and_then(|rest| rest.strip_suffix('`'));
        if let Some(field) = missing {
            key = if key == "." { field.to_owned() } else { format!("{key}.{field}") };
            found = None;
        }
        let expected = reason.rsplit_once("expected ").map_or(reason, |(_, expected)| expected);
        // Without serde's names of Rust's types.
        let expected = match expected {
            _ if missing.is_some() => "a value",
            "f64" => "a number",
            "usize" | "u32" => "a whole number, 0 or more",
            "a boolean" => "true or false",
            "a sequence" => "a list",
            "a map" => "an object",
            other => other,
        };
        JsonMismatch { key, expected: expected.to_owned(), found: found.cloned() }
    })
}

/// `true` if the value is null, false, or an empty text, list or object.
pub fn is_unset(value: &Value) -> bool {
    match value {
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(pairs) => pairs.is_empty(),
        other => matches!(other, Value::Null | Value::Bool(false)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;

    #[test]
    fn the_key_and_its_value_are_named() {
        type Parts = BTreeMap<String, Vec<BTreeMap<String, usize>>>;
        for (text, key, expected, found) in [
            (
                r#"{"parts": [{"a.b": 1}, {"c": -2}]}"#,
                "parts[1].c",
                "a whole number, 0 or more",
                -2,
            ),
            (r#"{"parts": 7}"#, "parts", "a list", 7),
        ] {
            let document: Value = serde_json::from_str(text).unwrap();
            let mut of_text = serde_json::Deserializer::from_str(text);
            let found = Some(json!(found));
            let error = JsonMismatch { key: key.into(), expected: expected.into(), found };
            assert_eq!(from_json::<Parts>(&document, &document).unwrap_err(), error);
            assert_eq!(from_json::<Parts>(&mut of_text, &document).unwrap_err(), error);
        }
    }
}
