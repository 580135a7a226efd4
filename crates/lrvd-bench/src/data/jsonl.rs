//! One JSON object a line: which keys hold texts and label?
//!
//! Keys are those of the task table; `premise` and `hypothesis` serve for RTE as well. A label is a class id, a
//! class name or, for regression, a number.

use std::path::Path;

use serde_json::{Map, Value};

use super::columns::{Columns, IDS};
use super::label::{self, Field};
use super::tsv::Lines;
use super::{At, DataError, Example, Label, Place};
use crate::task::GlueTask;

/// Reads a JSONL file; see [`parse_jsonl`].
///
/// # Errors
///
/// As [`parse_jsonl`], and [`DataError::Read`].
pub fn read_jsonl(file: &Path, task: GlueTask) -> Result<Vec<Example>, DataError> {
    let bytes =
        std::fs::read(file).map_err(|source| DataError::Read { file: file.into(), source })?;
    parse_jsonl(&bytes, file, task)
}

/// Reads the contents of a JSONL file; `file` is named in errors. Other keys are allowed and not read.
///
/// # Errors
///
/// The first bad line, by file, line and key: [`DataError::Json`], [`DataError::MissingKey`],
/// [`DataError::Type`], and the errors of labels, texts and encoding; [`DataError::Empty`] without any line.
pub fn parse_jsonl(bytes: &[u8], file: &Path, task: GlueTask) -> Result<Vec<Example>, DataError> {
    let keys = Columns::of(task);
    let mut examples = Vec::new();
    for line in Lines::new(bytes, file) {
        let (number, line) = line?;
        let place = || Place { file: file.into(), at: At::Line(number) };
        let row: Map<String, Value> = serde_json::from_str(line)
            .map_err(|source| DataError::Json { place: place(), source: source.into() })?;
        let text = |wanted| {
            let (key, value) = find(&row, wanted, place)?;
            let Value::String(value) = value else {
                return Err(wrong_type(key, "a string", value, place()));
            };
            label::text(value, key, place)
        };
        examples.push(Example {
            id: id(&row).unwrap_or_else(|| examples.len().to_string()),
            text_a: text(keys.text_a)?,
            text_b: keys.text_b.map(text).transpose()?,
            label: read_label(&row, keys.label, task, place)?,
        });
    }
    if examples.is_empty() {
        return Err(DataError::Empty { file: file.into() });
    }
    Ok(examples)
}

fn find<'a>(
    row: &'a Map<String, Value>,
    wanted: &'static [&'static str],
    place: impl Fn() -> Place,
) -> Result<(&'static str, &'a Value), DataError> {
    let found = wanted.iter().find_map(|key| Some((*key, row.get(*key)?)));
    found.ok_or_else(|| DataError::MissingKey {
        place: place(),
        wanted: wanted.to_vec(),
        found: row.keys().cloned().collect(),
    })
}

fn read_label(
    row: &Map<String, Value>,
    wanted: &'static [&'static str],
    task: GlueTask,
    place: impl Fn() -> Place,
) -> Result<Label, DataError> {
    let (key, value) = find(row, wanted, &place)?;
    let target = Field { spec: task.spec(), column: key };
    match value {
        Value::String(text) => target.of_text(text, place),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(id), _) => target.of_integer(id, place),
            (None, Some(score)) => target.of_score(score, place),
            (None, None) => Err(wrong_type(key, "a label", value, place())),
        },
        _ => Err(wrong_type(key, "a label", value, place())),
    }
}

/// The first id among the known names; numbers as digits.
fn id(row: &Map<String, Value>) -> Option<String> {
    let part = |key: &&str| match row.get(*key)? {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    };
    IDS.iter().find_map(|set| Some(set.iter().map(part).collect::<Option<Vec<_>>>()?.join("-")))
}

fn wrong_type(column: &str, wanted: &'static str, value: &Value, place: Place) -> DataError {
    let found = match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    };
    DataError::Type { place, column: column.into(), wanted, found: found.into() }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn read(task: GlueTask, text: &str) -> Result<Vec<Example>, DataError> {
        parse_jsonl(text.as_bytes(), Path::new("train.jsonl"), task)
    }

    #[test]
    fn ids_names_and_scores_are_labels() {
        let rows = read(
            GlueTask::Rte,
            "{\"premise\":\"It rained.\",\"hypothesis\":\"It was wet.\",\"label\":\"entailment\",\"idx\":4}\r\n\
             {\"sentence1\":\"A\",\"sentence2\":\"B\",\"label\":1,\"source\":null}",
        )
        .unwrap();
        assert_eq!((rows[0].id.as_str(), rows[0].label), ("4", Label::Class(0)));
        assert_eq!((rows[1].id.as_str(), rows[1].label), ("1", Label::Class(1)));
        assert_eq!(rows[0].text_b.as_deref(), Some("It was wet."));
        let rows = read(
            GlueTask::Stsb,
            "{\"sentence1\":\"A\",\"sentence2\":\"B\",\"label\":3.5}\n\
             {\"sentence1\":\"A\",\"sentence2\":\"B\",\"score\":4}\n",
        );
        let scores: Vec<_> = rows.unwrap().iter().map(|row| row.label).collect();
        assert_eq!(scores, [Label::Score(3.5), Label::Score(4.0)]);
    }

    #[test]
    fn errors_name_file_line_and_key() {
        let good = "{\"sentence\":\"A\",\"label\":0}\n";
        for (bad, wanted) in [
            ("{\"sentence\":\"A\"}", "line 2: no key `label`; the keys are `sentence`"),
            (
                "{\"sentence\":3,\"label\":0}",
                "line 2, column `sentence`: a number where a string is",
            ),
            ("{\"sentence\":\"A\",\"label\":true}", "column `label`: a boolean where a label is"),
            (
                "{\"sentence\":\"A\",\"label\":2}",
                "unknown label `2`, wanted one of `unacceptable` (0)",
            ),
            ("{\"sentence\":\"A\",\"label\":0.5}", "unknown label `0.5`"),
            ("{\"sentence\":\"A\",\"label\":-1}", "hidden test label"),
            ("{\"sentence\":\" \",\"label\":0}", "line 2, column `sentence`: empty text"),
            ("[1]", "line 2: not a JSON object"),
            ("", "line 2: not a JSON object"),
        ] {
            let error = read(GlueTask::Cola, &format!("{good}{bad}\n")).unwrap_err().to_string();
            assert!(error.contains(wanted) && error.starts_with("`train.jsonl`"), "{error}");
        }
        assert!(matches!(read(GlueTask::Cola, ""), Err(DataError::Empty { .. })));
    }
}
