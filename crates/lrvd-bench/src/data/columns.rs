//! Names of the columns that hold an example's texts, label and id.
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
