//! The paper's tables in numbers: metrics by method and task, summed up over seeds.

use std::collections::{BTreeMap, BTreeSet};

use super::checkpoint::CheckpointRecord;
use super::metric::Metric;
use super::names::{method_order, task_order};
use super::record::{Results, RunRecord, RunStatus};
use super::spread::Spread;
use crate::method::MethodName;

/// [`Results::suite`] of the multiple-choice questions.
const REASONING: &str = "reasoning";

/// Which of the two checkpoints of a run a table speaks of. A table never mixes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckpointChoice {
    /// After the last step.
    Last,
    /// The best by the validation metric.
    Best,
}

impl CheckpointChoice {
    /// Both, the last first.
    pub const BOTH: [Self; 2] = [Self::Last, Self::Best];

    /// `last` or `best`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Last => "last",
            Self::Best => "best",
        }
    }

    /// This checkpoint of a run; none where the run stopped before it.
    pub fn of(self, run: &RunRecord) -> Option<&CheckpointRecord> {
        match self {
            Self::Last => run.checkpoints.last.as_ref(),
            Self::Best => run.checkpoints.best.as_ref(),
        }
    }
}

/// Metrics by method and task at one kind of checkpoint, over the finished runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// The checkpoint all cells speak of.
    pub choice: CheckpointChoice,
    /// Rows, in order.
    pub metrics: Vec<Metric>,
    /// Methods in print order.
    pub methods: Vec<String>,
    /// Task keys in print order.
    pub tasks: Vec<String>,
    cells: BTreeMap<(Metric, String, String), Spread>,
}

impl Summary {
    /// Sums up the finished runs over seeds. Methods and tasks of unfinished runs keep their (empty) places.
    pub fn new(results: &Results, choice: CheckpointChoice, metrics: &[Metric]) -> Self {
        let mut methods: Vec<String> = results.runs.iter().map(|run| run.method.clone()).collect();
        methods.sort_by(|a, b| method_order(a, b));
        methods.dedup();
        let mut tasks: Vec<String> = results.runs.iter().map(|run| run.task.clone()).collect();
        tasks.sort_by(|a, b| task_order(a, b));
        tasks.dedup();

        let mut runs: Vec<&RunRecord> =
            results.runs.iter().filter(|run| run.status == RunStatus::Finished).collect();
        runs.sort_by_key(|run| run.seed);
        let mut values: BTreeMap<(Metric, String, String), Vec<f64>> = BTreeMap::new();
        for run in runs {
            let Some(checkpoint) = choice.of(run) else { continue };
            for metric in metrics {
                if let Some(value) = metric.value(results, run, checkpoint) {
                    let key = (*metric, run.method.clone(), run.task.clone());
                    values.entry(key).or_default().push(value);
                }
            }
        }
        let cells = values
            .into_iter()
            .filter_map(|(key, values)| Spread::of(&values).map(|spread| (key, spread)))
            .collect();
        Self { choice, metrics: metrics.to_vec(), methods, tasks, cells }
    }

    /// One cell; none where no finished run has the metric.
    pub fn cell(&self, metric: Metric, method: &str, task: &str) -> Option<&Spread> {
        self.cells.get(&(metric, method.to_owned(), task.to_owned()))
    }

    /// All cells in the order of the table: metric, method, task.
    pub fn cells(&self) -> impl Iterator<Item = (Metric, &str, &str, &Spread)> {
        self.metrics.iter().flat_map(move |metric| {
            self.methods.iter().flat_map(move |method| {
                self.tasks.iter().filter_map(move |task| {
                    let spread = self.cell(*metric, method, task)?;
                    Some((*metric, method.as_str(), task.as_str(), spread))
                })
            })
        })
    }
}

/// Whether the results are about uncertainty: those of the reasoning suite are, and those of any suite that ran a
/// method beyond the three of the paper's first table.
pub(crate) fn is_about_uncertainty(results: &Results) -> bool {
    let first = MethodName::FIRST_TABLE.map(MethodName::name);
    results.suite == REASONING || results.runs.iter().any(|run| !first.contains(&run.method))
}

/// The number of draws beside 0 that tables show: the one at which the most methods answered, and the largest of
/// these. A longer sweep of a single method does not empty the rows of all others.
pub fn table_draws(results: &Results) -> Option<u32> {
    let mut methods: BTreeMap<u32, BTreeSet<&str>> = BTreeMap::new();
    for run in results.runs.iter().filter(|run| run.status == RunStatus::Finished) {
        let checkpoints = [&run.checkpoints.last, &run.checkpoints.best].into_iter().flatten();
        for draws in checkpoints.flat_map(|c| c.metrics.keys()).filter(|k| **k > 0) {
            methods.entry(*draws).or_default().insert(&run.method);
        }
    }
    methods.into_iter().max_by_key(|(draws, methods)| (methods.len(), *draws)).map(|(k, _)| k)
}

/// Rows of the headline table. The paper's first table: accuracy, rank and time, and the standard metric where some
/// task has another one. Its uncertainty tables: accuracy, ECE, NLL and Brier score at the posterior mean and at
/// [`table_draws`], parameters, rank, and the times of training and of prediction.
pub fn headline_metrics(results: &Results) -> Vec<Metric> {
    let other = |run: &RunRecord| {
        results.data.get(&run.task).is_some_and(|data| data.standard_metric != "accuracy")
    };
    let standard = results.runs.iter().any(other);
    if !is_about_uncertainty(results) {
        let mut metrics = vec![Metric::Accuracy(0)];
        metrics.extend(standard.then_some(Metric::Standard(0)));
        metrics.extend([Metric::Rank, Metric::TimeMin]);
        return metrics;
    }
    let draws: Vec<u32> = std::iter::once(0).chain(table_draws(results)).collect();
    let mut metrics = Vec::new();
    let mut add = |of: fn(u32) -> Metric| metrics.extend(draws.iter().map(|k| of(*k)));
    add(Metric::Accuracy);
    if standard {
        add(Metric::Standard);
    }
    add(Metric::Ece);
    add(Metric::Nll);
    add(Metric::Brier);
    metrics.push(Metric::Parameters);
    let head = results.runs.iter().any(|run| run.trainable_parameters.head > 0);
    metrics.extend(head.then_some(Metric::HeadParameters));
    metrics.extend([Metric::Rank, Metric::TimeMin]);
    metrics.extend(draws.iter().map(|k| Metric::PredictSeconds(*k)));
    metrics
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::super::sample::{sample_results, set_accuracy};
    use super::super::sample_reasoning::sample_reasoning;
    use super::*;

    #[test]
    fn last_and_best_are_kept_apart() {
        let mut results = sample_results();
        set_accuracy(&mut results, "rte", "LoRA", &[(0.25, 0.5), (0.5, 0.75), (0.75, 1.0)]);
        let at = |choice| {
            let summary = Summary::new(&results, choice, &[Metric::Accuracy(0)]);
            summary.cell(Metric::Accuracy(0), "LoRA", "rte").unwrap().clone()
        };
        assert_eq!(at(CheckpointChoice::Last).values, [0.25, 0.5, 0.75]);
        assert_eq!(at(CheckpointChoice::Last).std, Some(0.25));
        assert_eq!(at(CheckpointChoice::Best).values, [0.5, 0.75, 1.0]);
    }

    #[test]
    fn unfinished_runs_do_not_count() {
        let mut results = sample_results();
        let run = results.runs.iter_mut().find(|r| r.task == "rte" && r.method == "LoRA").unwrap();
        run.status = RunStatus::Failed { reason: "loss is NaN at step 3".into() };
        let summary = Summary::new(&results, CheckpointChoice::Last, &[Metric::Rank]);
        assert_eq!(summary.cell(Metric::Rank, "LoRA", "rte").unwrap().n(), 2);
        assert_eq!(summary.cell(Metric::Rank, "LoRA", "cola").unwrap().n(), 3);
        assert_eq!(summary.tasks, ["cola", "rte", "stsb"]);
        assert_eq!(summary.methods, ["LoRA", "AdaLoRA", "BayesLoRA"]);
    }

    #[test]
    fn regression_has_a_standard_metric_and_no_accuracy() {
        let results = sample_results();
        let metrics = headline_metrics(&results);
        assert_eq!(
            metrics,
            [Metric::Accuracy(0), Metric::Standard(0), Metric::Rank, Metric::TimeMin]
        );
        let summary = Summary::new(&results, CheckpointChoice::Last, &metrics);
        assert!(summary.cell(Metric::Accuracy(0), "LoRA", "stsb").is_none());
        assert!(summary.cell(Metric::Standard(0), "LoRA", "stsb").is_some());
    }

    #[test]
    fn the_suite_decides_what_is_shown() {
        let mut results = sample_reasoning();
        let metrics = headline_metrics(&results);
        for metric in [
            Metric::Accuracy(0),
            Metric::Accuracy(10),
            Metric::Ece(10),
            Metric::Brier(10),
            Metric::Parameters,
            Metric::PredictSeconds(0),
            Metric::PredictSeconds(10),
        ] {
            assert!(metrics.contains(&metric), "{metric:?}");
        }
        assert!(!metrics.contains(&Metric::HeadParameters), "a language model has no other head");
        let summary = Summary::new(&results, CheckpointChoice::Last, &metrics);
        assert!(summary.cell(Metric::Ece(10), "LoRA", "obqa").is_none(), "it has no draws");
        assert!(summary.cell(Metric::Ece(10), "BayesLoRA", "obqa").is_some());

        results.suite = "glue".into();
        assert_eq!(headline_metrics(&results), metrics, "more than the first table's methods");
        results.runs.retain(|run| ["LoRA", "BayesLoRA"].contains(&run.method.as_str()));
        assert_eq!(
            headline_metrics(&results),
            [Metric::Accuracy(0), Metric::Rank, Metric::TimeMin]
        );
    }

    #[test]
    fn one_long_sweep_does_not_empty_the_table() {
        let mut results = sample_reasoning();
        assert_eq!(table_draws(&results), Some(10));
        let run = results.runs.iter_mut().find(|run| run.method == "BayesLoRA").unwrap();
        let metrics = &mut run.checkpoints.last.as_mut().unwrap().metrics;
        let at_ten = metrics[&10].clone();
        metrics.insert(100, at_ten);
        assert_eq!(table_draws(&results), Some(10));
        results.runs.retain(|run| run.method == "LoRA");
        assert_eq!(table_draws(&results), None);
    }
}
