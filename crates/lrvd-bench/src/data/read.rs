//! Examples of a task from one file in any of its formats.
//!
//! Columns are found by the names in the task's row; other columns are allowed and not read. The acceptability corpus
//! alone has files without a header. A label is a class id, a class name or, for regression, a number. Questions are in
//! the layout of the authors' release, or in the columns of the public hub. Texts are kept verbatim, outer spaces
//! included.

use std::path::Path;

use anyhow::{anyhow, bail};
use serde_json::Value;

use super::table::{Format, Layout, Row, Table};
use super::wording::{DIGITS, LETTERS};
use super::{Example, Input, Label, SourceFile};
use crate::error::{Error, Result};
use crate::task::{Shape, Target, Task};
use crate::text::quoted;

/// Columns that make an example's id, joined by a hyphen; the first set that a file has is used.
const IDS: &[&[&str]] = &[&["qID"], &["idx"], &["index"], &["id"], &["#1 ID", "#2 ID"]];
/// Labels of a yes/no question, in class order.
const TRUTH: [&str; 2] = ["False", "True"];

/// Adds the examples of one file to those of its split.
pub fn read_examples(
    file: &Path,
    format: Format,
    task: Task,
    examples: &mut Vec<Example>,
) -> Result<SourceFile> {
    let row = task.row();
    let (columns, unnamed) = match &row.shape {
        Shape::Texts { text, pair, label, unnamed, .. } => {
            ([&text[..], pair, label].concat(), unnamed.as_deref())
        }
        _ => (Vec::new(), None),
    };
    let mut table = Table::open(file, &Layout { unnamed, ..Layout::of(format) })?;
    if !columns.is_empty() {
        table.select(&[&columns[..], &IDS.concat()].concat())?;
    }
    let target = &row.target;
    for row in &mut table {
        let row = row?;
        let id = row.id(IDS)?.unwrap_or_else(|| examples.len().to_string());
        let (input, label) = match &task.row().shape {
            Shape::Texts { text, pair, label, .. } => {
                let own = |names: &[&str]| row.text(names).map(str::to_owned);
                let pair = if pair.is_empty() { None } else { Some(own(pair)?) };
                (Input { pair, ..Input::text(own(text)?) }, self::target(&row, label, target)?)
            }
            Shape::Blank => blank(&row)?,
            Shape::Choices { fewest, most, .. } => choices(&row, *fewest, *most)?,
            Shape::Passage => passage(&row)?,
        };
        examples.push(Example { id, place: row.place().clone(), input, label });
    }
    table.source()
}

/// A class name, a class id or a score, also in digits.
fn target(row: &Row, names: &[&str], target: &Target) -> Result<Label> {
    let (column, cell) = row.find(names)?;
    let place = row.place();
    let found = match cell {
        Value::String(text) => text.trim().to_owned(),
        Value::Number(number) => number.to_string(),
        other => return Err(row.wrong_type(column, "a label", other)),
    };
    let classes = match target {
        Target::Classes(classes) => classes,
        Target::Choice(_) => &[][..],
        Target::Score { low, high } => {
            let score = found.parse().ok().filter(|score| (low..=high).contains(&score));
            return score.map(Label::Score).ok_or_else(|| {
                anyhow!(
                    "{place}, column `{column}`: `{found}` is not a score within {low}..={high}"
                )
            });
        }
    };
    let id = classes.iter().position(|name| *name == found).or_else(|| found.parse().ok());
    if let Some(id) = id.filter(|id| *id < classes.len()) {
        return Ok(Label::Class(id));
    }
    let each = classes.iter().enumerate().map(|(id, name)| format!("`{name}` ({id})"));
    let (expected, hidden) = (each.collect::<Vec<_>>().join(", "), "marks a hidden test label");
    Err(match found.as_str() {
        "-1" => {
            anyhow!("{place}, column `{column}`: label -1 {hidden}, expected one of {expected}")
        }
        _ => anyhow!(
            "{place}, column `{column}`: unknown label `{found}`, expected one of {expected}"
        ),
    })
}

/// `sentence`, `option1`, `option2`, and `answer`, which is `1` or `2`.
fn blank(row: &Row) -> Result<(Input, Label)> {
    let question = row.text(&["sentence"])?;
    if !question.contains('_') {
        bail!("{}, column `sentence`: no blank `_` in the sentence", row.place());
    }
    let options = [row.text(&["option1"])?, row.text(&["option2"])?];
    let label = answer(row, "answer", row.text(&["answer"])?, &DIGITS[..2])?;
    let (choices, numbered) = (options.map(str::to_owned).to_vec(), true);
    Ok((Input { choices, numbered, ..Input::text(question) }, label))
}

/// The question with its choices in one of three forms, and `answerKey`.
///
/// ```text
/// question: {stem, choices: [{text, label}, …]}            the authors' files
/// question or question_stem, choices: [{text, label}, …]
/// question or question_stem, choices: {text: […], label: […]}     the hub
/// ```
fn choices(row: &Row, fewest: usize, most: usize) -> Result<(Input, Label)> {
    let (key, value) = row.find(&["question", "question_stem"])?;
    let (column, question, found) = if let Value::Object(question) = value {
        let column = "question.choices";
        let list = row.list_within(question, column)?;
        (column, row.text_within(question, "question.stem")?, objects(row, column, list)?)
    } else {
        let (column, lists) = row.find(&["choices"])?;
        let found = match lists {
            Value::Array(list) => objects(row, column, list)?,
            other => columns(row, column, other)?,
        };
        (column, row.as_text(value, key)?, found)
    };
    let (place, n) = (row.place(), found.len());
    if !(fewest..=most).contains(&n) {
        let allowed = if fewest == most { most.to_string() } else { format!("{fewest} to {most}") };
        bail!("{place}, column `{column}`: {n} choices where {allowed} are allowed");
    }
    let (labels, texts): (Vec<&str>, Vec<&str>) = found.into_iter().unzip();
    if let Some(i) = (1..n).find(|&i| labels[..i].contains(&labels[i])) {
        bail!("{place}, column `{column}`: two choices are labelled `{}`", labels[i]);
    }
    let numbered = DIGITS.starts_with(&labels);
    if !numbered && !LETTERS.starts_with(&labels) {
        bail!(
            "{place}, column `{column}`: choices labelled {}, expected `A`, `B`, … or `1`, `2`, … in order",
            quoted(&labels)
        );
    }
    let label = answer(row, "answerKey", row.text(&["answerKey"])?, &labels)?;
    let choices = texts.into_iter().map(str::to_owned).collect();
    Ok((Input { choices, numbered, ..Input::text(question) }, label))
}

/// Labels and texts of `[{text, label}, …]`.
fn objects<'a>(row: &Row, column: &str, list: &'a [Value]) -> Result<Vec<(&'a str, &'a str)>> {
    let read = |value: &'a Value| {
        let object = row.as_object(value, column)?;
        let label = row.text_within(object, "choices.label")?;
        Ok((label, row.text_within(object, "choices.text")?))
    };
    list.iter().map(read).collect()
}

/// Labels and texts of `{text: […], label: […]}`.
fn columns<'a>(row: &Row, column: &str, value: &'a Value) -> Result<Vec<(&'a str, &'a str)>> {
    let object = row.as_object(value, column)?;
    let texts = row.list_within(object, "choices.text")?;
    let labels = row.list_within(object, "choices.label")?;
    if texts.len() != labels.len() {
        let (place, texts, labels) = (row.place(), texts.len(), labels.len());
        bail!("{place}, column `{column}`: {texts} texts of choices, but {labels} labels");
    }
    let pairs = labels.iter().zip(texts);
    let read = |(label, text)| {
        Ok((row.as_text(label, "choices.label")?, row.as_text(text, "choices.text")?))
    };
    pairs.map(read).collect()
}

/// `question`, `passage`, and `answer` (the hub's other distribution: `label`), which is true or false, 1 or 0.
fn passage(row: &Row) -> Result<(Input, Label)> {
    let (question, passage) = (row.text(&["question"])?, row.text(&["passage"])?.to_owned());
    let (column, value) = row.find(&["answer", "label"])?;
    let answer = match (value, value.as_i64()) {
        (Value::Bool(answer), _) => usize::from(*answer),
        (_, Some(answer @ (0 | 1))) => answer as usize,
        (_, Some(other)) => return Err(no_answer(row, column, &other.to_string(), &TRUTH)),
        _ => return Err(row.wrong_type(column, "true or false", value)),
    };
    Ok((Input { pair: Some(passage), ..Input::text(question) }, Label::Class(answer)))
}

fn answer(row: &Row, column: &str, found: &str, labels: &[&str]) -> Result<Label> {
    let place = labels.iter().position(|label| *label == found);
    place.map(Label::Class).ok_or_else(|| no_answer(row, column, found, labels))
}

fn no_answer(row: &Row, column: &str, found: &str, labels: &[&str]) -> Error {
    let (place, labels) = (row.place(), quoted(labels));
    anyhow!("{place}, column `{column}`: answer `{found}`, expected one of {labels}")
}

#[cfg(test)]
mod tests;
