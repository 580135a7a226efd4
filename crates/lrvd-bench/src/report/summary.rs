//! The numbers of a report: every metric by method and task, summed up over seeds. Computed once per report and
//! checkpoint; tables, comparisons and the page read it. Beside them scores of single evaluation rows, from the files of predictions.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use lrvd_core::metrics::NLL_FLOOR;

use super::metric::{Metric, Shown, Spread};
use super::names::{method_rank, task_order};
use crate::error::Result;
use crate::io::read_lines;
use crate::method::MethodName;
use crate::record::{CheckpointRecord, PredictionLine, Results, RunRecord};
use crate::settings::CheckpointChoice;

impl CheckpointChoice {
    pub(crate) const BOTH: [Self; 2] = [Self::Last, Self::Best];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Last => "last",
            Self::Best => "best",
        }
    }

    /// This checkpoint of a run; none where the run stopped before it.
    pub(crate) fn of(self, run: &RunRecord) -> Option<&CheckpointRecord> {
        match self {
            Self::Last => run.checkpoints.last.as_ref(),
            Self::Best => run.checkpoints.best.as_ref(),
        }
    }
}

type ByMethod<'a, T> = BTreeMap<&'a str, BTreeMap<&'a str, T>>;

/// Metrics by method and task at one kind of checkpoint, over the finished runs. Methods and tasks of unfinished runs keep
/// their (empty) places.
pub(crate) struct Summary<'a> {
    pub(crate) results: &'a Results,
    pub(crate) rows: &'a RowScores,
    pub(crate) choice: CheckpointChoice,
    /// As registered; other names, those of arms, follow in the order of their runs.
    pub(crate) methods: Vec<&'a str>,
    pub(crate) tasks: Vec<&'a str>,
    /// Whether the results are about uncertainty: those of the reasoning suite are, and those of any suite that ran a
    /// method beyond the three of the paper's first table.
    pub(crate) uncertainty: bool,
    /// The number of draws beside 0 that figures, switches and sentences are about: the one at which the most methods answered,
    /// and the largest of these. A longer sweep of a single method does not empty the places of all others.
    pub(crate) draws: Option<u32>,
    /// Every metric at every number of draws at which a run answered.
    metrics: Vec<Metric>,
    cells: BTreeMap<Metric, ByMethod<'a, Spread>>,
}

impl<'a> Summary<'a> {
    pub(crate) fn both(results: &'a Results, rows: &'a RowScores) -> [Self; 2] {
        CheckpointChoice::BOTH.map(|choice| Self::new(results, rows, choice))
    }

    /// That of the checkpoint that the settings choose, `experiment.checkpoint`; of the last one by default.
    pub(crate) fn reported(both: &[Self; 2]) -> &Self {
        let name = both[0].results.config.pointer("/experiment/checkpoint");
        &both[usize::from(name.is_some_and(|name| name == CheckpointChoice::Best.name()))]
    }

    pub(crate) fn new(results: &'a Results, rows: &'a RowScores, choice: CheckpointChoice) -> Self {
        let mut methods: Vec<&str> = Vec::new();
        for run in &results.runs {
            if !methods.contains(&run.method.as_str()) {
                methods.push(&run.method);
            }
        }
        methods.sort_by_key(|name| method_rank(name));
        let mut tasks: Vec<&str> = results.runs.iter().map(|run| run.task.as_str()).collect();
        tasks.sort_by(|a, b| task_order(a, b));
        tasks.dedup();
        let beyond = |method: &&str| MethodName::FIRST_TABLE.iter().all(|m| m.name() != *method);
        let uncertainty = results.suite == "reasoning" || methods.iter().any(beyond);

        let mut answered: BTreeMap<u32, BTreeSet<&str>> = BTreeMap::from([(0, BTreeSet::new())]);
        for run in results.finished() {
            for draws in run.checkpoints.iter().flat_map(|checkpoint| checkpoint.metrics.keys()) {
                answered.entry(*draws).or_default().insert(&run.method);
            }
        }
        let metrics = metrics(results, answered.keys().copied());
        let drawn = answered.iter().filter(|(draws, _)| **draws > 0);
        let draws = drawn.max_by_key(|(draws, methods)| (methods.len(), **draws)).map(|(k, _)| *k);

        let mut runs: Vec<&RunRecord> = results.finished().collect();
        runs.sort_by_key(|run| run.seed);
        let mut cells: BTreeMap<Metric, ByMethod<'_, Spread>> = BTreeMap::new();
        for run in runs {
            let Some(checkpoint) = choice.of(run) else { continue };
            for metric in &metrics {
                if let Some(value) = metric.value(results, run, checkpoint) {
                    let tasks = cells.entry(*metric).or_default().entry(&run.method).or_default();
                    tasks.entry(&run.task).or_default().by_seed.insert(run.seed, value);
                }
            }
        }
        let methods_of = cells.values_mut().flat_map(BTreeMap::values_mut);
        methods_of.flat_map(BTreeMap::values_mut).for_each(Spread::sum_up);
        Self { results, rows, choice, methods, tasks, uncertainty, draws, metrics, cells }
    }

    /// Rank that an average is a part of: that of the start of the runs, the largest of them.
    pub(crate) fn full_rank(&self, method: &str, task: &str) -> Option<u32> {
        let runs = self.results.runs.iter().filter(|run| run.method == method && run.task == task);
        runs.map(|run| run.rank_budget.initial_rank).max()
    }

    /// One number of a table; none where no finished run has it. If the task's own metric is the accuracy, it is listed once.
    pub(crate) fn cell(&self, metric: Metric, method: &str, task: &str) -> Option<&Spread> {
        let again = metric.at(0) == Metric::STANDARD;
        if again && self.results.standard_metric(task) == "accuracy" {
            return None;
        }
        self.cells.get(&metric)?.get(method)?.get(task)
    }

    /// A method's answer at the metric's draws, or its only one where it draws nothing, and the metric of that.
    pub(crate) fn answer(
        &self,
        metric: Metric,
        method: &str,
        task: &str,
    ) -> Option<(Metric, &Spread)> {
        let at = |metric| Some((metric, self.cells.get(&metric)?.get(method)?.get(task)?));
        at(metric).or_else(|| at(metric.at(0)))
    }

    /// The mean of what is printed behind a cell; none where there is nothing.
    pub(crate) fn beside(&self, metric: Metric, method: &str, task: &str) -> Option<f64> {
        Some(self.cell(metric.beside()?, method, task)?.mean).filter(|mean| *mean > 0.0)
    }

    /// The cells of some metrics in the order of a table: metric, method, task.
    pub(crate) fn cells(
        &self,
        metrics: &[Metric],
    ) -> impl Iterator<Item = (Metric, &'a str, &'a str, &Spread)> {
        metrics.iter().flat_map(move |&metric| {
            self.methods.iter().flat_map(move |&method| {
                let cell =
                    move |&task| Some((metric, method, task, self.cell(metric, method, task)?));
                self.tasks.iter().filter_map(cell)
            })
        })
    }

    /// Rows of the headline table. The paper's first table: accuracy, rank and time, and the standard metric where some
    /// task has another one; ECE, NLL and parameters beside them. Its uncertainty tables: accuracy, macro F1, ECE, NLL and
    /// Brier score at every number of draws, parameters, rank, and the times of training and of prediction.
    pub(crate) fn headline(&self) -> Vec<Metric> {
        let head = self.results.runs.iter().any(|run| run.trainable_parameters.head > 0);
        self.shown(|metric| match metric.fact().shown {
            Shown::Always => self.uncertainty || metric.at(0) == metric,
            Shown::Uncertainty => self.uncertainty && (head || metric != Metric::HEAD),
            Shown::File | Shown::Page | Shown::Named => false,
        })
    }

    /// Rows of the CSV files: all quality at every number of draws, how well uncertainty tells the other sets apart that
    /// models were shown, sizes and times.
    pub(crate) fn in_files(&self) -> Vec<Metric> {
        self.shown(|metric| !matches!(metric.fact().shown, Shown::Page | Shown::Named))
    }

    /// What the page has: the rows of the files, and memory.
    pub(crate) fn on_page(&self) -> Vec<Metric> {
        self.shown(|metric| metric.fact().shown != Shown::Named)
    }

    fn shown(&self, is_shown: impl Fn(Metric) -> bool) -> Vec<Metric> {
        self.metrics.iter().copied().filter(|metric| is_shown(*metric)).collect()
    }
}

#[cfg(test)]
impl<'a> Summary<'a> {
    /// Of the last checkpoints, without scores of rows.
    pub(crate) fn of_last(results: &'a Results) -> Self {
        static NO_ROWS: RowScores = RowScores(BTreeMap::new());
        Self::new(results, &NO_ROWS, CheckpointChoice::Last)
    }
}

/// The rows that these results fill, at each of `draws`: the standard metric only where a task has another one than the
/// accuracy, and those of other sets only if some model was shown the set.
fn metrics(results: &Results, draws: impl Iterator<Item = u32> + Clone) -> Vec<Metric> {
    let other = results.runs.iter().any(|run| results.standard_metric(&run.task) != "accuracy");
    let asked = |name: &str| results.runs.iter().any(|run| run.ood.contains_key(name));
    let filled = |metric: &Metric| match metric.set {
        Some(set) => asked(set.name()),
        None => other || *metric != Metric::STANDARD,
    };
    let at_all = |metric: Metric| match metric.draws {
        Some(_) => draws.clone().map(|k| metric.at(k)).collect(),
        None => vec![metric],
    };
    Metric::all().into_iter().filter(filled).flat_map(at_all).collect()
}

/// A metric of a run: checkpoint, task key, method in print, seed.
type Key = (&'static str, String, String, u64, Metric);

pub(super) fn key(
    choice: CheckpointChoice,
    task: &str,
    method: &str,
    seed: u64,
    metric: Metric,
) -> Key {
    (choice.name(), task.to_owned(), method.to_owned(), seed, metric)
}

/// Accuracy, NLL and Brier score of every evaluation row in order, by run: scores whose mean over rows is the run's own.
#[derive(Clone, Debug, Default)]
pub(crate) struct RowScores(pub(super) BTreeMap<Key, Vec<f64>>);

impl RowScores {
    /// Adds both checkpoints of a run from its `folder`; a checkpoint without a file adds nothing, and neither do scores
    /// of a regression.
    pub(crate) fn read(
        &mut self,
        folder: &Path,
        task: &str,
        method: &str,
        seed: u64,
    ) -> Result<()> {
        for choice in CheckpointChoice::BOTH {
            let path = folder.join(format!("predictions-{}.jsonl", choice.name()));
            if !path.is_file() {
                continue;
            }
            for line in read_lines::<PredictionLine>(&path)? {
                for (&draws, probabilities) in &line.probs {
                    for (metric, score) in row_scores(probabilities, line.label) {
                        let key = key(choice, task, method, seed, metric.at(draws));
                        self.0.entry(key).or_default().push(score);
                    }
                }
            }
        }
        Ok(())
    }

    /// Gives all runs to the method or arm called `name`.
    pub(crate) fn rename(&mut self, name: &str) {
        let all = std::mem::take(&mut self.0).into_iter();
        let renamed =
            |(choice, task, _, seed, metric): Key| (choice, task, name.to_owned(), seed, metric);
        self.0 = all.map(|(key, scores)| (renamed(key), scores)).collect();
    }

    pub(crate) fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }
}

/// What one row adds to each metric; nothing for the score of a regression.
fn row_scores(probabilities: &[f64], label: f64) -> Vec<(Metric, f64)> {
    let label = label as usize;
    let Some(own) = probabilities.get(label).filter(|_| probabilities.len() > 1) else {
        return Vec::new();
    };
    let right = probabilities.iter().enumerate().all(|(c, p)| p < own || (p == own && c >= label));
    let squares =
        probabilities.iter().map(|p| p * p).sum::<f64>() - own * own + (own - 1.0).powi(2);
    vec![
        (Metric::ACCURACY, f64::from(u8::from(right))),
        (Metric::NLL, -own.max(NLL_FLOOR).ln()),
        (Metric::BRIER, squares),
    ]
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use lrvd_core::metrics::Predictions;

    use super::*;
    use crate::record::RunStatus;
    use crate::record::sample::{sample_reasoning, sample_results};

    fn names(metrics: &[Metric]) -> String {
        metrics.iter().map(|metric| metric.name()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn unfinished_runs_do_not_count_and_an_accuracy_is_listed_once() {
        let mut results = sample_results();
        let run = results.runs.iter_mut().find(|r| r.task == "rte" && r.method == "LoRA").unwrap();
        run.status = RunStatus::Failed { reason: "loss is NaN at step 3".into() };
        let summary = Summary::of_last(&results);
        let n = |task: &str| summary.cell(Metric::RANK, "LoRA", task).map(Spread::n);
        assert_eq!((n("rte"), n("cola")), (Some(2), Some(3)));
        assert_eq!(summary.tasks, ["cola", "rte", "stsb"]);
        assert_eq!(summary.methods, ["LoRA", "AdaLoRA", "BayesLoRA"]);
        let has = |metric, task| summary.cell(metric, "LoRA", task).is_some();
        let both = |task| [Metric::ACCURACY, Metric::STANDARD].map(|metric| has(metric, task));
        assert_eq!(["stsb", "rte", "cola"].map(both), [[false, true], [true, false], [true; 2]]);
        // A claim may name it.
        assert!(summary.answer(Metric::STANDARD, "LoRA", "rte").is_some());
    }

    #[test]
    fn the_suite_decides_what_is_shown() {
        let mut found = String::new();
        let mut show = |case: &str, results: &Results| {
            let summary = Summary::of_last(results);
            let (shown, files) = (names(&summary.headline()), names(&summary.in_files()));
            writeln!(found, "{case}\n    shown: {shown}\n    in files: {files}").unwrap();
        };
        let mut results = sample_reasoning();
        show("the first table's methods", &sample_results());
        show("many methods", &results);
        results.suite = "glue".into();
        show("more than the first table's methods", &results);
        results.runs.retain(|run| ["LoRA", "BayesLoRA"].contains(&run.method.as_str()));
        show("two of them", &results);
        insta::assert_snapshot!(found);
    }

    #[test]
    fn one_long_sweep_does_not_empty_the_page() {
        let mut results = sample_reasoning();
        let run = results.runs.iter_mut().find(|run| run.method == "BayesLoRA").unwrap();
        let metrics = &mut run.checkpoints.last.as_mut().unwrap().metrics;
        metrics.insert(100, metrics[&10].clone());
        let summary = Summary::of_last(&results);
        assert_eq!(summary.draws, Some(10));
        assert!(summary.headline().contains(&Metric::ACCURACY.at(100)), "tables show all");
        results.runs.retain(|run| run.method == "LoRA");
        let summary = Summary::of_last(&results);
        assert_eq!((summary.draws, summary.metrics.contains(&Metric::NLL.at(10))), (None, false));
    }

    #[test]
    fn their_means_are_those_of_the_record() -> Result<(), Box<dyn std::error::Error>> {
        let folder = tempfile::tempdir()?;
        let rows = [([0.5, 0.3, 0.2], 0.0), ([0.4, 0.4, 0.2], 1.0), ([0.1, 0.2, 0.7], 2.0)];
        let line = |(p, label): &([f64; 3], f64)| {
            format!(
                r#"{{"id":"a","label":{label:?},"probs":{{"0":{p:?}}},"entropy":{{}},"mutual_information":{{}}}}"#
            )
        };
        let lines: Vec<String> = rows.iter().map(line).collect();
        std::fs::write(folder.path().join("predictions-last.jsonl"), lines.join("\n"))?;
        let mut scores = RowScores::default();
        scores.read(folder.path(), "sst2", "LoRA", 1)?;
        let mean = |metric| -> Option<f64> {
            let own = scores.0.get(&key(CheckpointChoice::Last, "sst2", "LoRA", 1, metric))?;
            Some(own.iter().sum::<f64>() / own.len() as f64)
        };
        let all = rows.map(|(p, _)| p).concat();
        let predictions = Predictions::new(&all, 3, &[0, 1, 2])?;
        for (metric, expected) in [
            (Metric::ACCURACY, predictions.accuracy()),
            (Metric::NLL, predictions.nll()),
            (Metric::BRIER, predictions.brier()),
        ] {
            assert!(mean(metric).is_some_and(|m| (m - expected).abs() < 1e-12), "{metric:?}");
        }
        assert_eq!(mean(Metric::NLL.at(10)), None);
        let best = scores.0.get(&key(CheckpointChoice::Best, "sst2", "LoRA", 1, Metric::NLL));
        assert_eq!(best, None, "no file");
        assert_eq!(row_scores(&[0.3], 0.0), [], "a regression");
        Ok(())
    }
}
