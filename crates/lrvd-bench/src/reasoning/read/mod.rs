//! Items of a set from one file.

#[cfg(test)]
mod tests;

use std::path::Path;

use anyhow::{anyhow, bail};

use super::{ChoiceItem, ReasoningSet};
use crate::data::table::{self, Cell, Format, Row, Table};
use crate::error::Result;
use crate::reasoning::Choice;
use crate::reasoning::set::{LETTERS, Layout};
use crate::text::quoted;

/// Reads a file of one set, whose first row is number `first` of its split.
///
/// Accepts the layout of the authors' release and the columns of the public hub. Other fields are allowed and not
/// read.
pub fn read_items(
    file: &Path,
    format: Format,
    set: ReasoningSet,
    first: usize,
) -> Result<Vec<ChoiceItem>> {
    let rows = Table::open(file, &table::Layout::of(format))?.enumerate();
    rows.map(|(row, record)| item(&record?, set, first + row)).collect()
}

/// Keys that hold an id of the row.
const IDS: [&[&str]; 3] = [&["qID"], &["id"], &["idx"]];
/// Digits that serve as labels of choices.
const DIGITS: [&str; 5] = ["1", "2", "3", "4", "5"];
/// Labels of a yes/no question, in class order.
const TRUTH: [&str; 2] = ["False", "True"];

/// The item of one row; `row` counts from 0 and serves as id where there is none.
fn item(record: &Row, set: ReasoningSet, row: usize) -> Result<ChoiceItem> {
    let id = record.id(&IDS)?.unwrap_or_else(|| row.to_string());
    match set.spec().layout {
        Layout::Blank => blank(record, id),
        Layout::Choices { fewest, most } => choices(record, id, fewest, most),
        Layout::Passage => passage(record, id),
    }
}

/// `sentence`, `option1`, `option2`, and `answer`, which is `1` or `2`.
fn blank(record: &Row, id: String) -> Result<ChoiceItem> {
    let question = record.text(&["sentence"])?;
    if !question.contains('_') {
        bail!("{}, column `sentence`: no blank `_` in the sentence", record.place());
    }
    let options = [record.text(&["option1"])?, record.text(&["option2"])?];
    let choices = DIGITS.iter().zip(options).map(|(label, text)| choice(label, text)).collect();
    let answer = record.text(&["answer"])?;
    finished(record, id, question, choices, ("answer", answer))
}

/// The question with its choices in one of three forms, and `answerKey`.
///
/// ```text
/// question: {stem, choices: [{text, label}, …]}            the authors' files
/// question or question_stem, choices: [{text, label}, …]
/// question or question_stem, choices: {text: […], label: […]}     the hub
/// ```
fn choices(record: &Row, id: String, fewest: usize, most: usize) -> Result<ChoiceItem> {
    let (key, value) = record.find(&["question", "question_stem"])?;
    let (column, question, choices) = if let Cell::Object(question) = value {
        let column = "question.choices";
        let list = record.list_within(question, column)?;
        (column, record.text_within(question, "question.stem")?, objects(record, column, list)?)
    } else {
        let (column, lists) = record.find(&["choices"])?;
        let choices = match lists {
            Cell::List(list) => objects(record, column, list)?,
            other => columns(record, column, other)?,
        };
        (column, record.as_text(value, key)?, choices)
    };
    let found = choices.len();
    if !(fewest..=most).contains(&found) {
        let place = record.place();
        let allowed = if fewest == most { most.to_string() } else { format!("{fewest} to {most}") };
        bail!("{place}, column `{column}`: {found} choices where {allowed} are allowed");
    }
    check_labels(record, column, &choices)?;
    let answer = record.text(&["answerKey"])?;
    finished(record, id, question, choices, ("answerKey", answer))
}

/// `[{text, label}, …]`.
fn objects(record: &Row, column: &'static str, list: &[Cell]) -> Result<Vec<Choice>> {
    let read = |value: &Cell| {
        let object = record.as_object(value, column)?;
        let label = record.text_within(object, "choices.label")?;
        Ok(choice(label, record.text_within(object, "choices.text")?))
    };
    list.iter().map(read).collect()
}

/// `{text: […], label: […]}`.
fn columns(record: &Row, column: &'static str, value: &Cell) -> Result<Vec<Choice>> {
    let object = record.as_object(value, column)?;
    let texts = record.list_within(object, "choices.text")?;
    let labels = record.list_within(object, "choices.label")?;
    if texts.len() != labels.len() {
        let (texts, labels) = (texts.len(), labels.len());
        bail!(
            "{}, column `{column}`: {texts} texts of choices, but {labels} labels",
            record.place()
        );
    }
    let pairs = labels.iter().zip(texts);
    pairs
        .map(|(label, text)| {
            let label = record.as_text(label, "choices.label")?;
            Ok(choice(label, record.as_text(text, "choices.text")?))
        })
        .collect()
}

/// Labels are distinct, and letters or digits from the first on.
fn check_labels(record: &Row, column: &'static str, choices: &[Choice]) -> Result<()> {
    let labels: Vec<&str> = choices.iter().map(|choice| choice.label.as_str()).collect();
    let repeated = (1..labels.len()).find(|&i| labels[..i].contains(&labels[i]));
    let place = record.place();
    if let Some(i) = repeated {
        bail!("{place}, column `{column}`: two choices are labelled `{}`", labels[i]);
    }
    if !LETTERS.starts_with(&labels) && !DIGITS.starts_with(&labels) {
        bail!(
            "{place}, column `{column}`: choices labelled {}, expected `A`, `B`, … or `1`, `2`, … in order",
            quoted(&labels)
        );
    }
    Ok(())
}

/// `question`, `passage`, and `answer` (the hub's other distribution: `label`), which is true or false, 1 or 0.
fn passage(record: &Row, id: String) -> Result<ChoiceItem> {
    let question = record.text(&["question"])?;
    let passage = record.text(&["passage"])?.to_owned();
    let (column, value) = record.find(&["answer", "label"])?;
    let answer = match value {
        Cell::Bool(answer) => usize::from(*answer),
        Cell::Integer(answer @ (0 | 1)) => *answer as usize,
        Cell::Integer(other) => bail!(
            "{}, column `{column}`: answer `{other}`, expected one of {}",
            record.place(),
            quoted(TRUTH)
        ),
        _ => return Err(record.wrong_type(column, "true or false", value)),
    };
    let choices = TRUTH.map(|label| choice(label, label)).to_vec();
    let question = question.to_owned();
    Ok(ChoiceItem { id, passage: Some(passage), question, choices, answer })
}

fn choice(label: &str, text: &str) -> Choice {
    Choice { label: label.to_owned(), text: text.to_owned() }
}

/// The item, with the place of its answer among the labels.
fn finished(
    record: &Row,
    id: String,
    question: &str,
    choices: Vec<Choice>,
    (column, answer): (&'static str, &str),
) -> Result<ChoiceItem> {
    let place = choices.iter().position(|choice| choice.label == answer);
    let answer = place.ok_or_else(|| {
        anyhow!(
            "{}, column `{column}`: answer `{answer}`, expected one of {}",
            record.place(),
            quoted(choices.iter().map(|choice| &choice.label))
        )
    })?;
    Ok(ChoiceItem { id, passage: None, question: question.to_owned(), choices, answer })
}
