//! What is learnt from a set of examples, whichever file they came from.

use serde::{Deserialize, Serialize};

use super::{GlueTask, Metric};
use crate::record::Metrics;

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

#[cfg(test)]
mod tests {
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
}
