//! A task as the model sees it: token ids and labels of both splits.

use super::batch::TokenisedExample;
use super::drawn;
use crate::record::Metrics;
use crate::task::Goal;

/// Mixed into the run's seed, so that the rows held out are no order of an epoch.
const HOLDOUT_SALT: u64 = 0x484f_4c44_4f55_5421;

#[derive(Clone, Debug)]
pub struct PreparedTask {
    pub goal: Goal,
    pub labels: usize,
    pub train: Vec<TokenisedExample>,
    /// Examples kept out of training, for methods that fit something afterwards.
    pub holdout: Vec<TokenisedExample>,
    pub validation: Vec<TokenisedExample>,
    pub validation_ids: Vec<String>,
    pub pad_id: u32,
    /// Tokens that stand for the classes, for a language model; empty for an encoder.
    pub answers: Vec<u32>,
    /// What a reader of the results must know of the encoding, one sentence each.
    pub notes: Vec<String>,
}

/// How many of `rows` a `share` of them is; one row is left at least.
pub(crate) fn held_out_rows(rows: usize, share: f64) -> usize {
    let wanted = (share * rows as f64).round() as usize;
    wanted.min(rows.saturating_sub(1))
}

/// The `rows` less `share` of them, and those, drawn by `seed`; both in their order. One row stays at least.
pub(crate) fn held_out<T>(rows: Vec<T>, share: f64, seed: u64) -> (Vec<T>, Vec<T>) {
    let wanted = held_out_rows(rows.len(), share);
    let (held, rest) = drawn(rows, wanted, seed ^ HOLDOUT_SALT);
    (rest, held)
}

/// The rows of a run in their order and the number of those, at its end, that take part once they have cut the ranks: all of
/// `holdout`, or none of it where something `is_fitted_to` them afterwards.
pub(crate) fn in_order<T: Clone>(
    train: &[T],
    holdout: &[T],
    is_fitted_to: bool,
) -> (Vec<T>, usize) {
    let waiting = if is_fitted_to { &[] } else { holdout };
    ([train, waiting].concat(), waiting.len())
}

impl PreparedTask {
    /// A task without examples, for a model that only answers.
    pub fn without_examples(goal: Goal) -> Self {
        Self {
            labels: goal.n_labels(),
            goal,
            train: Vec::new(),
            holdout: Vec::new(),
            validation: Vec::new(),
            validation_ids: Vec::new(),
            pad_id: 0,
            answers: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// The same task with the last `share` of the training examples kept out of training.
    #[must_use]
    pub fn holding_out(&self, share: f64) -> Self {
        let mut task = self.clone();
        let kept = task.train.len() - (share * task.train.len() as f64).round() as usize;
        task.holdout = task.train.split_off(kept.max(1).min(task.train.len()));
        task
    }

    /// The same task with `share` of the training examples kept out of training, drawn by `seed`; both parts stay in
    /// their order.
    #[must_use]
    pub fn holding_out_drawn(&self, share: f64, seed: u64) -> Self {
        let (train, holdout) = held_out(self.train.clone(), share, seed);
        Self { train, holdout, ..self.clone() }
    }

    /// Name of the metric that picks the best checkpoint.
    pub fn selection_metric(&self) -> &'static str {
        self.goal.selection.name()
    }

    /// That metric in `metrics`; minus infinity where it is absent.
    pub fn score(&self, metrics: &Metrics) -> f64 {
        self.goal.score(metrics)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Label;

    #[test]
    fn rows_held_out_are_drawn_by_the_seed_and_go_nowhere_else() {
        let one = |i: u32| TokenisedExample {
            ids: vec![i],
            type_ids: vec![0],
            choices: None,
            label: Label::Class(0),
        };
        let goal = Goal::classification("tone", ["a", "b"].map(String::from).to_vec());
        let task = PreparedTask {
            train: (0..40).map(one).collect(),
            ..PreparedTask::without_examples(goal)
        };
        let ids = |rows: &[TokenisedExample]| rows.iter().map(|e| e.ids[0]).collect::<Vec<_>>();
        let (first, other) = (task.holding_out_drawn(0.1, 1), task.holding_out_drawn(0.1, 2));
        assert_eq!((first.train.len(), first.holdout.len()), (36, 4));
        assert_ne!(ids(&first.holdout), ids(&other.holdout));
        assert_eq!(ids(&first.holdout), ids(&task.holding_out_drawn(0.1, 1).holdout));
        let mut all = [ids(&first.train), ids(&first.holdout)].concat();
        assert!(ids(&first.train).is_sorted() && ids(&first.holdout).is_sorted());
        all.sort_unstable();
        assert_eq!(all, ids(&task.train));
        assert_eq!(task.holding_out_drawn(1.0, 1).train.len(), 1);
    }
}
