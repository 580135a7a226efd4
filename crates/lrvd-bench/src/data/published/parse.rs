//! Examples of a task from one file in any of its formats.
//!
//! Columns are found by the names in the task's row; other columns are allowed and not read. The acceptability corpus
//! alone has files without a header. A label is a class id, a class name or, for regression, a number. Questions are in
//! the layout of the authors' release, or in the columns of the public hub. Texts are kept verbatim, outer spaces
//! included.

use std::path::Path;

use anyhow::{anyhow, bail, ensure};
use serde_json::Value;

use super::super::table::{Cell, Format, Row, Table};
use super::super::wording::DIGITS;
use super::super::{Example, Input, Label, SourceFile};
use crate::answers::LETTERS;
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
    let mut table = Table::open(file, format, unnamed, false)?;
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
        examples.push(Example { id, place: row.place.clone(), input, label });
    }
    table.source()
}

/// A class name, a class id or a score, also in digits.
fn target(row: &Row, names: &[&str], target: &Target) -> Result<Label> {
    let cell = row.find(names)?;
    let place = cell.place;
    let column = &cell.column;
    let found = match cell.value {
        Value::String(text) => text.trim().to_owned(),
        Value::Number(number) => number.to_string(),
        _ => return Err(cell.wrong_type("a label")),
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
    let expected = each.collect::<Vec<_>>().join(", ");
    let hidden = "marks a hidden test label";
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
    ensure!(
        question.contains('_'),
        "{}, column `sentence`: no blank `_` in the sentence",
        row.place
    );
    let options = [row.text(&["option1"])?, row.text(&["option2"])?];
    let label = answer(&row.find(&["answer"])?, &DIGITS[..2])?;
    let choices = options.map(str::to_owned).to_vec();
    let numbered = true;
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
    let question = row.find(&["question", "question_stem"])?;
    let (question, choices) = match question.value {
        Value::Object(_) => (question.field("stem")?, question.field("choices")?),
        _ => (question, row.find(&["choices"])?),
    };
    let question = question.text()?;
    let column = &choices.column;
    let place = choices.place;
    let found = match choices.value {
        Value::Object(_) => columns(&choices)?,
        _ => objects(&choices)?,
    };
    let n = found.len();
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
    let label = answer(&row.find(&["answerKey"])?, &labels)?;
    let choices = texts.into_iter().map(str::to_owned).collect();
    Ok((Input { choices, numbered, ..Input::text(question) }, label))
}

/// Labels and texts of `[{text, label}, …]`.
fn objects<'a>(choices: &Cell<'a>) -> Result<Vec<(&'a str, &'a str)>> {
    let read =
        |choice: &Cell<'a>| Ok((choice.field("label")?.text()?, choice.field("text")?.text()?));
    choices.list("a list")?.iter().map(read).collect()
}

/// Labels and texts of `{text: […], label: […]}`.
fn columns<'a>(choices: &Cell<'a>) -> Result<Vec<(&'a str, &'a str)>> {
    let list = |key| choices.field(key)?.list("a list");
    let texts = list("text")?;
    let labels = list("label")?;
    if texts.len() != labels.len() {
        let place = choices.place;
        let column = &choices.column;
        let texts = texts.len();
        let labels = labels.len();
        bail!("{place}, column `{column}`: {texts} texts of choices, but {labels} labels");
    }
    labels.iter().zip(&texts).map(|(label, text)| Ok((label.text()?, text.text()?))).collect()
}

/// `question`, `passage`, and `answer` (the hub's other distribution: `label`), which is true or false, 1 or 0.
fn passage(row: &Row) -> Result<(Input, Label)> {
    let question = row.text(&["question"])?;
    let passage = row.text(&["passage"])?.to_owned();
    let cell = row.find(&["answer", "label"])?;
    let answer = match (cell.value, cell.value.as_i64()) {
        (Value::Bool(answer), _) => usize::from(*answer),
        (_, Some(answer @ (0 | 1))) => answer as usize,
        (_, Some(other)) => return Err(no_answer(&cell, &other.to_string(), &TRUTH)),
        _ => return Err(cell.wrong_type("true or false")),
    };
    Ok((Input { pair: Some(passage), ..Input::text(question) }, Label::Class(answer)))
}

fn answer(cell: &Cell<'_>, labels: &[&str]) -> Result<Label> {
    let found = cell.text()?;
    let place = labels.iter().position(|label| *label == found);
    place.map(Label::Class).ok_or_else(|| no_answer(cell, found, labels))
}

fn no_answer(Cell { place, column, .. }: &Cell<'_>, found: &str, labels: &[&str]) -> Error {
    anyhow!("{place}, column `{column}`: answer `{found}`, expected one of {}", quoted(labels))
}

#[cfg(test)]
mod tests;
