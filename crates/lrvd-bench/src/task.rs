//! The tasks: what their columns and classes mean, and which number each reports.
//!
//! [`TaskSpec`] is what every task family shares; [`GlueTask`] is the table of the eight GLUE tasks.
//! A task family that comes later brings its own enum and hands out the same specification.
//! [`Goal`] is the part that a user's own data has as well.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::record::Metrics;
use crate::text::UnknownName;

/// Classes or scores, and the numbers that sum up predictions of them.
///
/// A benchmark task has one, and so has a user's own data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Goal {
    pub name: String,
    /// Class names in id order; empty for regression.
    pub classes: Vec<String>,
    pub standard_metrics: Vec<Metric>,
    pub selection: Metric,
}

impl Goal {
    pub fn of_task(task: GlueTask) -> Self {
        let spec = task.spec();
        Self {
            name: spec.name.to_owned(),
            classes: spec.class_names().iter().map(ToString::to_string).collect(),
            standard_metrics: spec.standard_metrics.to_vec(),
            selection: spec.selection_metric(),
        }
    }

    /// The metric by which models are compared, in `metrics`; minus infinity where it is absent.
    pub fn score(&self, metrics: &Metrics) -> f64 {
        let found = match self.selection {
            Metric::Accuracy => metrics.accuracy,
            other => metrics.standard.get(other.name()).copied(),
        };
        found.unwrap_or(f64::NEG_INFINITY)
    }

    /// Classification: F1 and the Matthews coefficient (of class 1) where there are two classes.
    pub fn classification(name: &str, classes: Vec<String>) -> Self {
        let standard_metrics =
            if classes.len() == 2 { vec![Metric::F1, Metric::Matthews] } else { Vec::new() };
        Self { name: name.to_owned(), classes, standard_metrics, selection: Metric::Accuracy }
    }

    pub fn regression(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            classes: Vec::new(),
            standard_metrics: vec![Metric::Pearson, Metric::Spearman],
            selection: Metric::Pearson,
        }
    }

    pub fn is_regression(&self) -> bool {
        self.classes.is_empty()
    }

    pub fn n_labels(&self) -> usize {
        self.classes.len().max(1)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// One of these classes; the index is the class id in files and in logits.
    Classes(&'static [&'static str]),
    /// A real number within `low..=high`, learnt by regression with a single output.
    Score { low: f64, high: f64 },
}

/// A number that sums up predictions on a validation split; larger is better for all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Fraction of examples whose most probable class is the label.
    Accuracy,
    /// Harmonic mean of precision and recall of class 1.
    F1,
    Matthews,
    /// Linear correlation of predicted and labelled scores.
    Pearson,
    /// Rank correlation of predicted and labelled scores.
    Spearman,
}

impl Metric {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Accuracy => "accuracy",
            Self::F1 => "f1",
            Self::Matthews => "matthews",
            Self::Pearson => "pearson",
            Self::Spearman => "spearman",
        }
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct TaskSpec {
    /// Name on the command line and in records, such as `sst2`.
    pub name: &'static str,
    /// Name in the paper's tables and in the original folder layout, such as `SST-2`.
    pub display_name: &'static str,
    /// Text keys, first segment first; one or two.
    pub keys: &'static [&'static str],
    /// Classes in id order, or the range of scores.
    pub target: Target,
    /// The metric of the paper's table; `None` where the paper has no such task.
    pub paper_metric: Option<Metric>,
    /// The metrics that the benchmark itself reports, the principal one first.
    pub standard_metrics: &'static [Metric],
    /// Published number of training examples.
    pub n_train: usize,
    /// Published number of validation examples.
    pub n_validation: usize,
}

impl TaskSpec {
    /// Class names in id order; empty for regression.
    pub const fn class_names(&self) -> &'static [&'static str] {
        match self.target {
            Target::Classes(names) => names,
            Target::Score { .. } => &[],
        }
    }

    /// Width of the model's output: the number of classes, or 1 for regression.
    pub const fn n_labels(&self) -> usize {
        match self.target {
            Target::Classes(names) => names.len(),
            Target::Score { .. } => 1,
        }
    }

    pub const fn is_regression(&self) -> bool {
        matches!(self.target, Target::Score { .. })
    }

    /// The metric that picks the best checkpoint: the paper's, or else the principal standard one.
    pub const fn selection_metric(&self) -> Metric {
        match self.paper_metric {
            Some(metric) => metric,
            None => self.standard_metrics[0],
        }
    }
}

/// Class order and sizes are those of the benchmark's public distribution; the accuracy column of
/// the paper covers seven of the eight tasks (arXiv:2506.22809, table 1).
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
        let expected = text.trim();
        Self::ALL
            .into_iter()
            .find(|task| {
                expected.eq_ignore_ascii_case(task.name())
                    || expected.eq_ignore_ascii_case(task.display_name())
            })
            .ok_or_else(|| UnknownName::new("task", expected, Self::ALL.map(Self::name)))
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
    fn goals_of_tasks_keep_their_specification() {
        for task in GlueTask::ALL {
            let (goal, spec) = (Goal::of_task(task), task.spec());
            assert_eq!(goal.n_labels(), spec.n_labels(), "{task}");
            assert_eq!(goal.is_regression(), spec.is_regression(), "{task}");
            assert_eq!(goal.selection, spec.selection_metric(), "{task}");
        }
    }

    #[test]
    fn binary_metrics_need_two_classes() {
        let names = |n: usize| (0..n).map(|i| format!("c{i}")).collect::<Vec<_>>();
        let two = Goal::classification("own", names(2));
        assert_eq!(two.standard_metrics, [Metric::F1, Metric::Matthews]);
        assert_eq!(Goal::classification("own", names(3)).standard_metrics, []);
        assert_eq!(Goal::regression("own").n_labels(), 1);
    }

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
            "unknown task `sst-3`; expected one of `cola`, `sst2`, `mrpc`, `qqp`, `mnli`, `qnli`, \
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
