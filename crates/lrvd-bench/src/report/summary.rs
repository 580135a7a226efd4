//! The paper's tables in numbers: metrics by method and task, summed up over seeds.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::metric::Metric;
use super::rows::task_order;
use super::significance::Spread;
use crate::record::{CheckpointRecord, Results, RunRecord, RunStatus};
pub(crate) use crate::settings::CheckpointChoice;
use crate::settings::MethodName;
use crate::task::Task;

/// [`Results::suite`] of the multiple-choice questions.
const REASONING: &str = "reasoning";

impl CheckpointChoice {
    pub(crate) const BOTH: [Self; 2] = [Self::Last, Self::Best];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Last => "last",
            Self::Best => "best",
        }
    }

    /// The checkpoint that the settings of the results say to report, `experiment.checkpoint`; the last where they say
    /// nothing.
    pub(crate) fn reported(results: &Results) -> Self {
        let said = results.config.pointer("/experiment/checkpoint").and_then(Value::as_str);
        if said == Some(Self::Best.name()) { Self::Best } else { Self::Last }
    }

    /// This checkpoint of a run; none where the run stopped before it.
    pub(crate) fn of(self, run: &RunRecord) -> Option<&CheckpointRecord> {
        match self {
            Self::Last => run.checkpoints.last.as_ref(),
            Self::Best => run.checkpoints.best.as_ref(),
        }
    }
}

/// Metrics by method and task at one kind of checkpoint, over the finished runs.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Summary {
    pub(crate) choice: CheckpointChoice,
    pub(crate) metrics: Vec<Metric>,
    pub(crate) methods: Vec<String>,
    pub(crate) tasks: Vec<String>,
    /// Rank that a cell's average is a part of: that of the settings, or of the start of the run if larger.
    full_ranks: BTreeMap<(String, String), u32>,
    cells: BTreeMap<(Metric, String, String), Spread>,
}

impl Summary {
    /// Sums up the finished runs over seeds. Methods and tasks of unfinished runs keep their (empty) places.
    pub(crate) fn new(results: &Results, choice: CheckpointChoice, metrics: &[Metric]) -> Self {
        let mut methods: Vec<String> = Vec::new();
        for run in &results.runs {
            if !methods.contains(&run.method) {
                methods.push(run.method.clone());
            }
        }
        // As registered; other names, those of arms, follow in the order of their runs.
        methods.sort_by_key(|name| {
            let known = MethodName::from_name(name);
            (known.is_none(), known)
        });
        let mut tasks: Vec<String> = results.runs.iter().map(|run| run.task.clone()).collect();
        tasks.sort_by(|a, b| task_order(a, b));
        tasks.dedup();

        let mut runs: Vec<&RunRecord> =
            results.runs.iter().filter(|run| run.status == RunStatus::Finished).collect();
        runs.sort_by_key(|run| run.seed);
        // What is printed after a count is not a separate row.
        let measured: BTreeSet<Metric> =
            metrics.iter().flat_map(|m| std::iter::once(*m).chain(m.beside())).collect();
        let mut values: BTreeMap<(Metric, String, String), Vec<f64>> = BTreeMap::new();
        for run in runs {
            let Some(checkpoint) = choice.of(run) else { continue };
            for metric in &measured {
                // If the task's metric is the accuracy, it is listed once.
                let own = results.data.get(&run.task).map(|data| data.standard_metric.as_str());
                if matches!(metric, Metric::Standard(_)) && own.is_none_or(|m| m == "accuracy") {
                    continue;
                }
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
        let said = results.config.pointer("/experiment/initial_rank").and_then(Value::as_u64);
        let mut full_ranks: BTreeMap<(String, String), u32> = BTreeMap::new();
        for run in &results.runs {
            let begun = u64::from(run.rank_budget.initial_rank).max(said.unwrap_or(0)) as u32;
            let full = full_ranks.entry((run.method.clone(), run.task.clone())).or_insert(begun);
            *full = begun.max(*full);
        }
        Self { choice, metrics: metrics.to_vec(), methods, tasks, full_ranks, cells }
    }

    pub(crate) fn full_rank(&self, method: &str, task: &str) -> Option<u32> {
        self.full_ranks.get(&(method.to_owned(), task.to_owned())).copied()
    }

    /// One cell; none where no finished run has the metric.
    pub(crate) fn cell(&self, metric: Metric, method: &str, task: &str) -> Option<&Spread> {
        self.cells.get(&(metric, method.to_owned(), task.to_owned()))
    }

    /// A method's answer at the metric's draws, or its only one where it draws nothing.
    pub(crate) fn answer(&self, metric: Metric, method: &str, task: &str) -> Option<&Spread> {
        let only = || self.cell(metric.at_draws(0), method, task);
        self.cell(metric, method, task).or_else(only)
    }

    /// The same by seed, and the metric that the values are of.
    pub(super) fn by_seed(
        &self,
        results: &Results,
        metric: Metric,
        method: &str,
        task: &str,
    ) -> (Metric, BTreeMap<u64, f64>) {
        let drawn = self.cell(metric, method, task).is_some();
        let metric = if drawn { metric } else { metric.at_draws(0) };
        let runs = results.runs.iter().filter(|run| {
            run.status == RunStatus::Finished && run.method == method && run.task == task
        });
        let values = runs
            .filter_map(|run| Some((run.seed, metric.value(results, run, self.choice.of(run)?)?)));
        (metric, values.collect())
    }

    /// The mean of what is printed behind a cell; none where there is nothing.
    pub(crate) fn beside(&self, metric: Metric, method: &str, task: &str) -> Option<f64> {
        let beside = self.cell(metric.beside()?, method, task)?.mean;
        (beside > 0.0).then_some(beside)
    }

    /// All cells in the order of the table: metric, method, task.
    pub(crate) fn cells(&self) -> impl Iterator<Item = (Metric, &str, &str, &Spread)> {
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

/// The number of draws beside 0 that the figures and switches of the page show: the one at which the most methods
/// answered, and the largest of these. A longer sweep of a single method does not empty the places of all others.
pub(crate) fn table_draws(results: &Results) -> Option<u32> {
    let mut methods: BTreeMap<u32, BTreeSet<&str>> = BTreeMap::new();
    for run in results.runs.iter().filter(|run| run.status == RunStatus::Finished) {
        let checkpoints = [&run.checkpoints.last, &run.checkpoints.best].into_iter().flatten();
        for draws in checkpoints.flat_map(|c| c.metrics.keys()).filter(|k| **k > 0) {
            methods.entry(*draws).or_default().insert(&run.method);
        }
    }
    methods.into_iter().max_by_key(|(draws, methods)| (methods.len(), *draws)).map(|(k, _)| k)
}

/// Every number of draws at which a finished run answered, ascending, and 0.
pub(crate) fn evaluated_draws(results: &Results) -> Vec<u32> {
    let runs = results.runs.iter().filter(|run| run.status == RunStatus::Finished);
    let checkpoints = runs.flat_map(|run| [&run.checkpoints.last, &run.checkpoints.best]);
    let draws = checkpoints.flatten().flat_map(|checkpoint| checkpoint.metrics.keys().copied());
    let draws: BTreeSet<u32> = std::iter::once(0).chain(draws).collect();
    draws.into_iter().collect()
}

/// Rows of the headline table. The paper's first table: accuracy, rank and time, and the standard metric where some
/// task has another one; ECE, NLL and parameters beside them. Its uncertainty tables: accuracy, macro F1, ECE, NLL and Brier score at every number of draws
/// that was evaluated, parameters, rank, and the times of training and of prediction.
pub(crate) fn headline_metrics(results: &Results) -> Vec<Metric> {
    let first_table = !is_about_uncertainty(results);
    let head = results.runs.iter().any(|run| run.trainable_parameters.head > 0);
    csv_metrics(results)
        .into_iter()
        .filter(|metric| match metric {
            Metric::Accuracy(k) | Metric::Standard(k) => *k == 0 || !first_table,
            Metric::Nll(0)
            | Metric::Ece(0)
            | Metric::Parameters
            | Metric::Rank
            | Metric::TimeMin => true,
            Metric::HeadParameters => head && !first_table,
            Metric::MacroF1(_)
            | Metric::Ece(_)
            | Metric::Nll(_)
            | Metric::Brier(_)
            | Metric::PredictSeconds(_) => !first_table,
            // For programs: the kept numbers stand behind the parameters, and the page draws the others.
            _ => false,
        })
        .collect()
}

/// Rows of the CSV files: all quality at every number of draws that was evaluated, how well uncertainty tells the other sets
/// apart that models were shown, sizes and times.
pub(crate) fn csv_metrics(results: &Results) -> Vec<Metric> {
    let other = |run: &RunRecord| {
        results.data.get(&run.task).is_some_and(|data| data.standard_metric != "accuracy")
    };
    let shown = |set: &Task| results.runs.iter().any(|run| run.ood.contains_key(set.name()));
    let draws = evaluated_draws(results);
    let at_all = |metric: Metric| -> Vec<Metric> {
        match metric.draws() {
            Some(_) => draws.iter().map(|k| metric.at_draws(*k)).collect(),
            None => vec![metric],
        }
    };
    let standard = results.runs.iter().any(other).then_some(Metric::Standard(0));
    let ood = Task::reasoning().filter(shown).flat_map(Metric::of_other_set);
    std::iter::once(Metric::Accuracy(0))
        .chain(standard)
        .chain([
            Metric::MacroF1(0),
            Metric::Ece(0),
            Metric::EceFloor(0),
            Metric::Nll(0),
            Metric::Brier(0),
        ])
        .chain([Metric::SelectiveArea(0)])
        .chain(ood)
        .chain([Metric::Parameters, Metric::StoredParameters, Metric::HeadParameters])
        .chain([Metric::Rank, Metric::TimeMin, Metric::PredictSeconds(0)])
        .flat_map(at_all)
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::record::sample::{sample_reasoning, sample_results, set_accuracy};

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
            [
                Metric::Accuracy(0),
                Metric::Standard(0),
                Metric::Ece(0),
                Metric::Nll(0),
                Metric::Parameters,
                Metric::Rank,
                Metric::TimeMin
            ]
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
            Metric::Accuracy(1),
            Metric::Accuracy(10),
            Metric::MacroF1(2),
            Metric::Ece(5),
            Metric::Brier(10),
            Metric::Parameters,
            Metric::PredictSeconds(0),
            Metric::PredictSeconds(10),
        ] {
            assert!(metrics.contains(&metric), "{metric:?}");
        }
        assert!(!metrics.contains(&Metric::HeadParameters), "a language model has no other head");
        assert!(!metrics.contains(&Metric::StoredParameters), "they stand behind the parameters");
        let summary = Summary::new(&results, CheckpointChoice::Last, &metrics);
        assert!(summary.cell(Metric::Ece(10), "LoRA", "obqa").is_none(), "it has no draws");
        assert!(summary.cell(Metric::Ece(10), "BayesLoRA", "obqa").is_some());

        results.suite = "glue".into();
        assert_eq!(headline_metrics(&results), metrics, "more than the first table's methods");
        results.runs.retain(|run| ["LoRA", "BayesLoRA"].contains(&run.method.as_str()));
        assert_eq!(
            headline_metrics(&results),
            [
                Metric::Accuracy(0),
                Metric::Ece(0),
                Metric::Nll(0),
                Metric::Parameters,
                Metric::Rank,
                Metric::TimeMin
            ]
        );
    }

    #[test]
    fn files_for_programs_hold_what_tables_leave_out() {
        let results = sample_reasoning();
        let metrics = csv_metrics(&results);
        assert!(headline_metrics(&results).iter().all(|metric| metrics.contains(metric)));
        for metric in [
            Metric::SelectiveArea(1),
            Metric::EntropyAuroc(Task::ArcE, 0),
            Metric::InformationAuroc(Task::ArcC, 10),
            Metric::StoredParameters,
        ] {
            assert!(metrics.contains(&metric), "{metric:?}");
        }
        assert!(!metrics.contains(&Metric::EntropyAuroc(Task::Obqa, 0)), "it is their own");
        let summary = Summary::new(&results, CheckpointChoice::Last, &metrics);
        let cell = |metric, method: &str| summary.cell(metric, method, "obqa").is_some();
        assert!(cell(Metric::EntropyAuroc(Task::ArcC, 5), "BayesLoRA"));
        assert!(cell(Metric::SelectiveArea(0), "LoRA") && !cell(Metric::SelectiveArea(5), "LoRA"));
        let counts = summary.cell(Metric::StoredParameters, "SWAG", "obqa").unwrap();
        assert_eq!(counts.values, [81_408.0; 2], "once for each seed");
        // The first table's file has the calibration that its page shows.
        let first = csv_metrics(&sample_results());
        assert!(first.contains(&Metric::Ece(10)) && first.contains(&Metric::Standard(0)));
    }

    #[test]
    fn the_settings_choose_the_checkpoint() {
        let mut results = sample_results();
        assert_eq!(CheckpointChoice::reported(&results), CheckpointChoice::Last);
        for choice in CheckpointChoice::BOTH {
            results.config = serde_json::json!({ "experiment": { "checkpoint": choice.name() } });
            assert_eq!(CheckpointChoice::reported(&results), choice);
        }
        results.config = Value::Null;
        assert_eq!(CheckpointChoice::reported(&results), CheckpointChoice::Last);
    }

    #[test]
    fn one_long_sweep_does_not_empty_the_page() {
        let mut results = sample_reasoning();
        assert_eq!(table_draws(&results), Some(10));
        assert_eq!(evaluated_draws(&results), [0, 1, 2, 5, 10]);
        let run = results.runs.iter_mut().find(|run| run.method == "BayesLoRA").unwrap();
        let metrics = &mut run.checkpoints.last.as_mut().unwrap().metrics;
        let at_ten = metrics[&10].clone();
        metrics.insert(100, at_ten);
        assert_eq!(table_draws(&results), Some(10));
        assert!(headline_metrics(&results).contains(&Metric::Accuracy(100)), "tables show all");
        results.runs.retain(|run| run.method == "LoRA");
        assert_eq!(table_draws(&results), None);
        assert_eq!(evaluated_draws(&results), [0]);
    }
}
