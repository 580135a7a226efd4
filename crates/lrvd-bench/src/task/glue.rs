//! The GLUE task table: columns, classes in id order, metrics, published sizes.
//!
//! Class order and sizes are those of the benchmark's public distribution; the accuracy column of
//! the paper covers seven of the eight tasks (arXiv:2506.22809, table 1).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{Metric, Target, TaskSpec};
use crate::text::UnknownName;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GlueTask {
    /// Corpus of Linguistic Acceptability: is the sentence grammatical?
    Cola,
    /// Stanford Sentiment Treebank, two classes.
    Sst2,
    /// Microsoft Research Paraphrase Corpus.
    Mrpc,
    /// Quora Question Pairs: do two questions ask the same?
    Qqp,
    /// Multi-genre natural language inference, three classes.
    Mnli,
    /// Question-answering inference: does the sentence answer the question?
    Qnli,
    /// Recognising Textual Entailment.
    Rte,
    /// Semantic Textual Similarity Benchmark: regression on a score from 0 to 5.
    Stsb,
}

/// Two classes that the inference tasks share.
const ENTAILMENT: Target = Target::Classes(&["entailment", "not_entailment"]);

impl GlueTask {
    pub const ALL: [Self; 8] = [
        Self::Cola,
        Self::Sst2,
        Self::Mrpc,
        Self::Qqp,
        Self::Mnli,
        Self::Qnli,
        Self::Rte,
        Self::Stsb,
    ];

    pub const fn spec(self) -> &'static TaskSpec {
        match self {
            Self::Cola => &COLA,
            Self::Sst2 => &SST2,
            Self::Mrpc => &MRPC,
            Self::Qqp => &QQP,
            Self::Mnli => &MNLI,
            Self::Qnli => &QNLI,
            Self::Rte => &RTE,
            Self::Stsb => &STSB,
        }
    }

    pub const fn name(self) -> &'static str {
        self.spec().name
    }

    pub const fn display_name(self) -> &'static str {
        self.spec().display_name
    }
}

impl fmt::Display for GlueTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for GlueTask {
    type Err = UnknownName;

    /// Reads a command-line name (`sst2`) or a table name (`SST-2`), in any case.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wanted = text.trim();
        Self::ALL
            .into_iter()
            .find(|task| {
                wanted.eq_ignore_ascii_case(task.name())
                    || wanted.eq_ignore_ascii_case(task.display_name())
            })
            .ok_or_else(|| UnknownName::new("task", wanted, Self::ALL.map(Self::name)))
    }
}

const COLA: TaskSpec = TaskSpec {
    name: "cola",
    display_name: "CoLA",
    keys: &["sentence"],
    target: Target::Classes(&["unacceptable", "acceptable"]),
    paper_metric: Some(Metric::Accuracy),
    standard_metrics: &[Metric::Matthews],
    n_train: 8_551,
    n_validation: 1_043,
};

const SST2: TaskSpec = TaskSpec {
    name: "sst2",
    display_name: "SST-2",
    keys: &["sentence"],
    target: Target::Classes(&["negative", "positive"]),
    paper_metric: Some(Metric::Accuracy),
    standard_metrics: &[Metric::Accuracy],
    n_train: 67_349,
    n_validation: 872,
};

const MRPC: TaskSpec = TaskSpec {
    name: "mrpc",
    display_name: "MRPC",
    keys: &["sentence1", "sentence2"],
    target: Target::Classes(&["not_equivalent", "equivalent"]),
    paper_metric: Some(Metric::Accuracy),
    standard_metrics: &[Metric::F1, Metric::Accuracy],
    n_train: 3_668,
    n_validation: 408,
};

const QQP: TaskSpec = TaskSpec {
    name: "qqp",
    display_name: "QQP",
    keys: &["question1", "question2"],
    target: Target::Classes(&["not_duplicate", "duplicate"]),
    paper_metric: Some(Metric::Accuracy),
    standard_metrics: &[Metric::F1, Metric::Accuracy],
    n_train: 363_846,
    n_validation: 40_430,
};

const MNLI: TaskSpec = TaskSpec {
    name: "mnli",
    display_name: "MNLI",
    keys: &["premise", "hypothesis"],
    target: Target::Classes(&["entailment", "neutral", "contradiction"]),
    paper_metric: Some(Metric::Accuracy),
    standard_metrics: &[Metric::Accuracy],
    n_train: 392_702,
    n_validation: 9_815,
};

const QNLI: TaskSpec = TaskSpec {
    name: "qnli",
    display_name: "QNLI",
    keys: &["question", "sentence"],
    target: ENTAILMENT,
    paper_metric: Some(Metric::Accuracy),
    standard_metrics: &[Metric::Accuracy],
    n_train: 104_743,
    n_validation: 5_463,
};

const RTE: TaskSpec = TaskSpec {
    name: "rte",
    display_name: "RTE",
    keys: &["sentence1", "sentence2"],
    target: ENTAILMENT,
    paper_metric: Some(Metric::Accuracy),
    standard_metrics: &[Metric::Accuracy],
    n_train: 2_490,
    n_validation: 277,
};

const STSB: TaskSpec = TaskSpec {
    name: "stsb",
    display_name: "STS-B",
    keys: &["sentence1", "sentence2"],
    target: Target::Score { low: 0.0, high: 5.0 },
    paper_metric: None,
    standard_metrics: &[Metric::Pearson, Metric::Spearman],
    n_train: 5_749,
    n_validation: 1_500,
};

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn both_spellings_of_every_name_parse_back() {
        for task in GlueTask::ALL {
            for text in [task.name(), task.display_name(), &task.name().to_uppercase()] {
                assert_eq!(text.parse::<GlueTask>().unwrap(), task, "{text}");
            }
            let json = serde_json::to_string(&task).unwrap();
            assert_eq!(json, format!("\"{}\"", task.name()));
        }
    }

    #[test]
    fn a_misspelt_name_is_answered_with_the_nearest() {
        let error = "sst-3".parse::<GlueTask>().unwrap_err();
        assert_eq!(error.suggestion.as_deref(), Some("sst2"));
        assert_eq!(
            error.to_string(),
            "unknown task `sst-3`; wanted one of `cola`, `sst2`, `mrpc`, `qqp`, `mnli`, `qnli`, \
             `rte`, `stsb`; did you mean `sst2`?"
        );
        assert_eq!("imagenet".parse::<GlueTask>().unwrap_err().suggestion, None);
    }

    #[test]
    fn output_widths_and_metrics_follow_the_target() {
        let widths = GlueTask::ALL.map(|task| task.spec().n_labels());
        assert_eq!(widths, [2, 2, 2, 2, 3, 2, 2, 1]);
        for task in GlueTask::ALL {
            let spec = task.spec();
            assert_eq!(spec.is_regression(), task == GlueTask::Stsb);
            assert_eq!(spec.keys.len() == 2, !matches!(task, GlueTask::Cola | GlueTask::Sst2));
            assert_eq!(spec.paper_metric.is_some(), (task != GlueTask::Stsb));
        }
        assert_eq!(GlueTask::Stsb.spec().selection_metric(), Metric::Pearson);
        assert_eq!(GlueTask::Cola.spec().selection_metric(), Metric::Accuracy);
    }
}
