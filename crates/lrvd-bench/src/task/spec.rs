//! The fixed facts of a task, known before one row of it is read.

use std::fmt;

use serde::{Deserialize, Serialize};

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
    /// Matthews correlation coefficient.
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
