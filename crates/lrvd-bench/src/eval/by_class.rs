//! Scores of each class, and the rows whose numbers a model misses most.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use lrvd_core::metrics::{ClassScores, LabelSetMetrics, Outcome, Predictions};
use serde::Serialize;

use super::{Scored, labels, present, targets};
use crate::answers::AnswerSpace;
use crate::data::{At, PreparedTask};
use crate::error::Result;
use crate::method::LabelThresholds;
use crate::record::{AverageRecord, ClassRecord, ClassReport, ConfusedRecord};

/// Cells of the confusion matrix, and residuals, that are listed.
const LARGEST: usize = 10;

/// Rows by label and answer, in class order: `confusion[label][answer]`.
pub type Confusion = Vec<Vec<usize>>;

/// A number that the model misses.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Residual {
    pub id: String,
    #[serde(flatten)]
    pub at: Option<At>,
    pub label: f64,
    pub predicted: f64,
    /// The label less what is predicted.
    pub residual: f64,
}

/// Names of the classes that are the same for all rows: those of questions with choices of their rows are places.
fn names(answers: &AnswerSpace) -> Option<Vec<String>> {
    let are_fixed = matches!(
        answers,
        AnswerSpace::Classes { .. } | AnswerSpace::Labels { .. } | AnswerSpace::Question { .. }
    );
    are_fixed.then(|| answers.names())
}

/// Rows of `task` by label and answer, `None` of a task that has no classes, or several labels for a row.
pub(crate) fn confusion(scored: &Scored, task: &PreparedTask) -> Result<Option<Confusion>> {
    if names(&task.goal.answers).is_none()
        || matches!(task.goal.answers, AnswerSpace::Labels { .. })
    {
        return Ok(None);
    }
    let labels = labels(task);
    let cells = Predictions::new(&scored.outputs, task.labels, &labels)?.confusion();
    Ok(Some(cells.chunks(task.labels).map(<[usize]>::to_vec).collect()))
}

/// Scores of every class of `task` by the answers of a number of draws; `None` of a task that has no classes. One of several labels
/// is given from its entry of `thresholds` on.
pub(crate) fn class_report(
    scored: &Scored,
    task: &PreparedTask,
    thresholds: &[f64],
) -> Result<Option<ClassReport>> {
    let Some(names) = names(&task.goal.answers) else { return Ok(None) };
    let outcomes = if let AnswerSpace::Labels { .. } = task.goal.answers {
        let present = present(&task.validation, task.labels);
        LabelSetMetrics::outcomes(&scored.outputs, thresholds, &present)?
    } else {
        Predictions::new(&scored.outputs, task.labels, &labels(task))?.outcomes()
    };
    let class = |(class, outcome): (&String, &Outcome)| {
        let scores = outcome.occurs().then(|| outcome.scores());
        ClassRecord {
            class: class.clone(),
            precision: scores.map(|s| s.precision),
            recall: scores.map(|s| s.recall),
            f1: scores.map(|s| s.f1),
            support: outcome.present as u64,
        }
    };
    let average = |ClassScores { precision, recall, f1 }| AverageRecord { precision, recall, f1 };
    let confused = confusion(scored, task)?.map_or_else(Vec::new, |cells| confused(&cells, &names));
    Ok(Some(ClassReport {
        classes: names.iter().zip(&outcomes).map(class).collect(),
        macro_average: average(ClassScores::macro_average(&outcomes)),
        weighted_average: average(ClassScores::weighted_average(&outcomes)),
        confused,
    }))
}

/// The largest cells off the diagonal; equal ones in class order.
fn confused(cells: &Confusion, names: &[String]) -> Vec<ConfusedRecord> {
    let mut found = Vec::new();
    for (label, row) in cells.iter().enumerate() {
        let rows: usize = row.iter().sum();
        for (answer, &count) in row.iter().enumerate() {
            if answer != label && count > 0 {
                found.push(ConfusedRecord {
                    label: names[label].clone(),
                    answer: names[answer].clone(),
                    count: count as u64,
                    share: count as f64 / rows as f64,
                });
            }
        }
    }
    found.sort_by_key(|cell| Reverse(cell.count));
    found.truncate(LARGEST);
    found
}

/// Scores of every class by number of draws; empty of a task that has no classes.
pub(crate) fn class_reports(
    scored: &BTreeMap<u32, Scored>,
    task: &PreparedTask,
    thresholds: &LabelThresholds,
) -> Result<BTreeMap<u32, ClassReport>> {
    let report = |(&draws, scored): (&u32, &Scored)| {
        let thresholds = thresholds.of(draws as usize, task.labels);
        Ok(class_report(scored, task, &thresholds)?.map(|report| (draws, report)))
    };
    scored.iter().filter_map(|scored| report(scored).transpose()).collect()
}

/// The largest residuals of numbers, the largest first; empty of another task.
pub(crate) fn residuals(scored: &Scored, task: &PreparedTask) -> Vec<Residual> {
    if task.goal.answers != AnswerSpace::Score {
        return Vec::new();
    }
    let rows = task.validation_ids.iter().zip(targets(&task.validation)).zip(&scored.outputs);
    let residual = |(row, ((id, label), &predicted)): (usize, ((&String, f64), &f64))| Residual {
        id: id.clone(),
        at: task.validation_places.get(row).copied(),
        label,
        predicted,
        residual: label - predicted,
    };
    let mut found: Vec<Residual> = rows.enumerate().map(residual).collect();
    found.sort_by(|a, b| b.residual.abs().total_cmp(&a.residual.abs()));
    found.truncate(LARGEST);
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Label;
    use crate::data::batch::TokenisedExample;
    use crate::eval::score_draws;
    use crate::task::Goal;
    use lrvd_burn::train::Prediction;

    fn task(goal: Goal, labels: impl IntoIterator<Item = Label>) -> PreparedTask {
        let validation: Vec<_> =
            labels.into_iter().map(|label| TokenisedExample::single(vec![1], label)).collect();
        PreparedTask {
            validation_ids: (0..validation.len()).map(|row| row.to_string()).collect(),
            validation,
            ..PreparedTask::without_examples(goal)
        }
    }

    /// The rows of the table test in `lrvd_core::metrics`, whose values are those of scikit-learn.
    #[test]
    fn classes_are_reported_with_the_largest_confusions() {
        let names: Vec<String> = ["a", "b", "c", "d", "e"].map(String::from).into();
        let labels = [0, 0, 0, 0, 1, 1, 1, 2, 2, 4].map(Label::Class);
        let task = task(Goal::classification("letters", names), labels);
        let given = [0, 0, 1, 4, 1, 1, 0, 1, 1, 4];
        let logits = given.iter().flat_map(|&g| (0..5).map(move |c| f64::from(u8::from(c == g))));
        let logits = Prediction::new(logits.collect(), 10, 5);
        let scored = BTreeMap::from([(0, score_draws(&logits, &task).unwrap())]);
        let reports = class_reports(&scored, &task, &LabelThresholds::default()).unwrap();
        let ClassReport { classes, confused, .. } = &reports[&0];
        assert_eq!((classes[2].f1, classes[2].support), (Some(0.0), 2));
        assert_eq!((classes[3].f1, classes[3].support), (None, 0));
        let cells: Vec<(&str, &str, u64, f64)> = confused
            .iter()
            .map(|cell| (&*cell.label, &*cell.answer, cell.count, cell.share))
            .collect();
        let third = 1.0 / 3.0;
        let expected =
            [("c", "b", 2, 1.0), ("a", "b", 1, 0.25), ("a", "e", 1, 0.25), ("b", "a", 1, third)];
        assert_eq!(cells, expected);
        let matrix = confusion(&scored[&0], &task).unwrap().unwrap();
        assert_eq!(matrix[0], [2, 1, 0, 0, 1]);
        assert!(residuals(&scored[&0], &task).is_empty());
    }

    #[test]
    fn the_largest_residuals_come_first_whatever_their_sign() {
        let targets = [1.0, 5.0, 2.0, 2.0];
        let task = task(Goal::new("score", AnswerSpace::Score), targets.map(Label::Score));
        let outputs = Prediction::new(vec![1.5, 2.0, 6.0, 2.0], 4, 1);
        let scored = score_draws(&outputs, &task).unwrap();
        let found = residuals(&scored, &task);
        let found: Vec<(&str, f64)> = found.iter().map(|r| (&*r.id, r.residual)).collect();
        assert_eq!(found, [("2", -4.0), ("1", 3.0), ("0", -0.5), ("3", 0.0)]);
        let scored = BTreeMap::from([(0, scored)]);
        assert!(class_reports(&scored, &task, &LabelThresholds::default()).unwrap().is_empty());
    }
}
