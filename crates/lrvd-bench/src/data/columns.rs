//! Which column or key of a file holds what?
//!
//! Names are tried in order: the original files first, then the public distributions.

use crate::task::GlueTask;

/// Names under which the parts of an example may be found, in order of preference.
#[derive(Debug, Clone, Copy)]
pub(super) struct Columns {
    pub(super) text_a: &'static [&'static str],
    pub(super) text_b: Option<&'static [&'static str]>,
    pub(super) label: &'static [&'static str],
}

/// Columns that make an example's id, joined by a hyphen; the first set that a file has is used.
pub(super) const IDS: &[&[&str]] = &[&["idx"], &["index"], &["id"], &["#1 ID", "#2 ID"]];

impl Columns {
    /// The names of one task.
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

    /// Finds every needed column among `names`; the error is the list of names that one of them may have.
    pub(super) fn resolve(&self, names: &[&str]) -> Result<Resolved, &'static [&'static str]> {
        let find = |wanted: &'static [&'static str]| {
            wanted
                .iter()
                .find_map(|name| names.iter().position(|found| found == name))
                .ok_or(wanted)
        };
        let id = IDS.iter().find_map(|set| {
            set.iter().map(|name| names.iter().position(|found| found == name)).collect()
        });
        Ok(Resolved {
            text_a: find(self.text_a)?,
            text_b: self.text_b.map(find).transpose()?,
            label: find(self.label)?,
            id: id.unwrap_or_default(),
        })
    }
}

/// Positions of the needed columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Resolved {
    pub(super) text_a: usize,
    pub(super) text_b: Option<usize>,
    pub(super) label: usize,
    /// Columns of the id; empty where the row number has to serve.
    pub(super) id: Vec<usize>,
}
