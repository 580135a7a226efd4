//! Examples of a task from one file in any of its formats.
//!
//! Columns are found by the names of [`Columns`]; other columns are allowed and not read. The acceptability corpus
//! alone has files without a header. A label is a class id, a class name or, for regression, a number.

#[cfg(test)]
mod tests;

use std::path::Path;

use super::example::Field;
use super::table::{Cell, Format, Layout, Row, Table};
use super::{Example, Label};
use crate::error::Result;
use crate::task::GlueTask;

/// Columns of the headerless acceptability files; the names `label` and `sentence` are those of [`Columns`].
const COLA_COLUMNS: &[&str] = &["source", "label", "author mark", "sentence"];

/// Reads the examples of one file.
///
/// Texts are kept verbatim, outer spaces included.
pub(crate) fn read_examples(file: &Path, format: Format, task: GlueTask) -> Result<Vec<Example>> {
    let columns = Columns::of(task);
    let unnamed = (task == GlueTask::Cola).then_some(COLA_COLUMNS);
    let layout = Layout { columns: &columns.names(), unnamed, ..Layout::of(format) };
    let mut examples = Vec::new();
    for row in Table::open(file, &layout)? {
        let row = row?;
        let text = |expected| row.text(expected).map(str::to_owned);
        examples.push(Example {
            id: row.id(IDS)?.unwrap_or_else(|| examples.len().to_string()),
            text_a: text(columns.text_a)?,
            text_b: columns.text_b.map(text).transpose()?,
            choices: Vec::new(),
            label: label(&row, columns.label, task)?,
        });
    }
    Ok(examples)
}

fn label(row: &Row, expected: &[&str], task: GlueTask) -> Result<Label> {
    let (column, cell) = row.find(expected)?;
    let field = Field { spec: task.spec(), column, place: row.place() };
    match cell {
        Cell::Text(text) => field.of_text(text),
        Cell::Integer(id) => field.of_integer(*id),
        Cell::Float(score) => field.of_score(*score),
        other => Err(row.wrong_type(column, "a label", other)),
    }
}

/// Names under which the parts of an example may be found, those of the original files first.
#[derive(Debug, Clone, Copy)]
pub(super) struct Columns {
    pub(super) text_a: &'static [&'static str],
    pub(super) text_b: Option<&'static [&'static str]>,
    pub(super) label: &'static [&'static str],
}

/// Columns that make an example's id, joined by a hyphen; the first set that a file has is used.
pub(super) const IDS: &[&[&str]] = &[&["idx"], &["index"], &["id"], &["#1 ID", "#2 ID"]];

impl Columns {
    pub(super) const fn of(task: GlueTask) -> Self {
        const LABEL: &[&str] = &["label"];
        const INFERENCE_A: &[&str] = &["sentence1", "premise"];
        const INFERENCE_B: &[&str] = &["sentence2", "hypothesis"];
        let (text_a, text_b, label): (&'static [&str], Option<&'static [&str]>, _) = match task {
            GlueTask::Cola | GlueTask::Sst2 => (&["sentence"], None, LABEL),
            GlueTask::Mrpc => (
                &["#1 String", "sentence1"],
                Some(&["#2 String", "sentence2"]),
                &["Quality", "label"] as &[&str],
            ),
            GlueTask::Qqp => {
                (&["question1"], Some(&["question2"]), &["is_duplicate", "label"] as &[&str])
            }
            GlueTask::Mnli => (INFERENCE_A, Some(INFERENCE_B), &["gold_label", "label"] as &[&str]),
            GlueTask::Qnli => (&["question"], Some(&["sentence"]), LABEL),
            GlueTask::Rte => (INFERENCE_A, Some(INFERENCE_B), LABEL),
            GlueTask::Stsb => {
                (&["sentence1"], Some(&["sentence2"]), &["score", "label"] as &[&str])
            }
        };
        Self { text_a, text_b, label }
    }

    pub(super) fn names(&self) -> Vec<&'static str> {
        let parts = [self.text_a, self.text_b.unwrap_or_default(), self.label];
        parts.into_iter().chain(IDS.iter().copied()).flatten().copied().collect()
    }
}
