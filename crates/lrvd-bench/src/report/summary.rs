//! The numbers of a report: every metric by checkpoint, method and task over seeds, computed once; tables, comparisons and the
//! page read it. Beside them scores of single evaluation rows, from the files of predictions.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::rc::Rc;

use lrvd_burn::files::is_file;
use lrvd_core::metrics::{Aurocs, NLL_FLOOR, Predictions, Score, pearson, pseudo_values, spearman};

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

    /// This checkpoint of a run; `None` if the run stopped before it.
    pub(crate) fn of(self, run: &RunRecord) -> Option<&CheckpointRecord> {
        match self {
            Self::Last => run.checkpoints.last.as_ref(),
            Self::Best => run.checkpoints.best.as_ref(),
        }
    }
}

type ByMethod<'a, T> = BTreeMap<&'a str, BTreeMap<&'a str, T>>;

/// Metrics by checkpoint, method and task, over the finished runs. Methods and tasks of unfinished runs, and planned methods,
/// keep their (empty) places.
#[derive(Clone)]
pub(crate) struct Summary<'a> {
    pub(crate) results: &'a Results,
    pub(crate) rows: &'a RowScores,
    /// Checkpoint of the cells that are read: that of the settings, `experiment.checkpoint`, by default the last one; or
    /// another one, see [`Summary::at`].
    pub(crate) choice: CheckpointChoice,
    /// As registered; other names, those of arms, follow in the order of their runs.
    pub(crate) methods: Vec<&'a str>,
    pub(crate) tasks: Vec<&'a str>,
    /// `true` for results about uncertainty: those of the reasoning suite, and those of any suite with a method beyond the
    /// three of the paper's first table.
    pub(crate) uncertainty: bool,
    /// The number of draws beside 0 in figures, switches and sentences: the one at which the most methods answered, and the
    /// largest of these. A longer sweep of a single method does not empty the places of all others.
    pub(crate) draws: Option<u32>,
    /// Every metric at every number of draws at which a run answered.
    metrics: Vec<Metric>,
    cells: Rc<BTreeMap<(CheckpointChoice, Metric), ByMethod<'a, Spread>>>,
}

impl<'a> Summary<'a> {
    pub(crate) fn new(results: &'a Results, rows: &'a RowScores) -> Self {
        let mut methods: Vec<&str> = Vec::new();
        let planned = results.planned.values().flat_map(BTreeMap::keys);
        for method in results.runs.iter().map(|run| &run.method).chain(planned) {
            if !methods.contains(&method.as_str()) {
                methods.push(method);
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
        let mut cells: BTreeMap<_, ByMethod<'_, Spread>> = BTreeMap::new();
        let at_both = |run| CheckpointChoice::BOTH.map(|choice| (choice, run));
        for (choice, run) in runs.into_iter().flat_map(at_both) {
            let Some(checkpoint) = choice.of(run) else { continue };
            for &metric in &metrics {
                if let Some(value) = metric.value(results, run, checkpoint) {
                    let methods = cells.entry((choice, metric)).or_default();
                    let tasks = methods.entry(&run.method).or_default();
                    tasks.entry(&run.task).or_default().by_seed.insert(run.seed, value);
                }
            }
        }
        let methods_of = cells.values_mut().flat_map(BTreeMap::values_mut);
        methods_of.flat_map(BTreeMap::values_mut).for_each(Spread::finalize);
        let best = results.config.pointer("/experiment/checkpoint");
        let is_best = best.is_some_and(|name| name == CheckpointChoice::Best.name());
        Self {
            results,
            rows,
            choice: CheckpointChoice::BOTH[usize::from(is_best)],
            methods,
            tasks,
            uncertainty,
            draws,
            metrics,
            cells: Rc::new(cells),
        }
    }

    /// These numbers, read at the checkpoint `choice`.
    pub(crate) fn at(&self, choice: CheckpointChoice) -> Self {
        Self { choice, ..self.clone() }
    }

    fn spread(&self, metric: Metric, method: &str, task: &str) -> Option<&Spread> {
        self.cells.get(&(self.choice, metric))?.get(method)?.get(task)
    }

    /// Largest initial rank of the runs, of which an average rank is a part.
    pub(crate) fn full_rank(&self, method: &str, task: &str) -> Option<u32> {
        let runs = self.results.runs.iter().filter(|run| run.method == method && run.task == task);
        runs.map(|run| run.rank_budget.initial_rank).max()
    }

    /// One number of a table; `None` if no finished run has it. If the task's own metric is the accuracy, it is listed once.
    pub(crate) fn cell(&self, metric: Metric, method: &str, task: &str) -> Option<&Spread> {
        let again = metric.at(0) == Metric::STANDARD;
        if again && self.results.standard_metric(task) == "accuracy" {
            return None;
        }
        self.spread(metric, method, task)
    }

    /// A method's answer at the metric's draws, or its only one where it draws nothing, and the metric of that.
    pub(crate) fn answer(
        &self,
        metric: Metric,
        method: &str,
        task: &str,
    ) -> Option<(Metric, &Spread)> {
        let at = |metric| Some((metric, self.spread(metric, method, task)?));
        at(metric).or_else(|| at(metric.at(0)))
    }

    /// The number that is printed behind a cell: the full rank, or the mean of another metric; `None` without one.
    pub(crate) fn beside(&self, metric: Metric, method: &str, task: &str) -> Option<f64> {
        if metric == Metric::RANK {
            return self.full_rank(method, task).map(f64::from);
        }
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

    /// Metrics of the page: the rows of the files, and memory.
    pub(crate) fn on_page(&self) -> Vec<Metric> {
        self.shown(|metric| metric.fact().shown != Shown::Named)
    }

    fn shown(&self, is_shown: impl Fn(Metric) -> bool) -> Vec<Metric> {
        self.metrics.iter().copied().filter(|metric| is_shown(*metric)).collect()
    }
}

#[cfg(test)]
impl<'a> Summary<'a> {
    /// The last checkpoints, without scores of rows.
    pub(crate) fn of_last(results: &'a Results) -> Self {
        static NO_ROWS: RowScores = RowScores(BTreeMap::new());
        Self::new(results, &NO_ROWS).at(CheckpointChoice::Last)
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
type Key = (CheckpointChoice, String, String, u64, Metric);

pub(super) fn key(
    choice: CheckpointChoice,
    task: &str,
    method: &str,
    seed: u64,
    metric: Metric,
) -> Key {
    (choice, task.to_owned(), method.to_owned(), seed, metric)
}

/// Scores of evaluation rows by run, whose mean is the run's own: of every row in order for accuracy, NLL and Brier score, the
/// jackknife's pseudo-values for scores that are no means over rows.
#[derive(Clone, Debug, Default)]
pub(crate) struct RowScores(pub(super) BTreeMap<Key, Vec<f64>>);

impl RowScores {
    /// Adds both checkpoints of a `run` of a task with this `standard` metric from its `folder`, and its answers to other sets; a
    /// file that is absent adds nothing.
    pub(crate) fn read(&mut self, folder: &Path, run: &RunRecord, standard: &str) -> Result<()> {
        let mut add = |choice, (metric, scores): (Metric, Vec<f64>)| {
            self.0.insert(key(choice, &run.task, &run.method, run.seed, metric), scores);
        };
        for choice in CheckpointChoice::BOTH {
            let own = prediction_lines(folder, choice.name())?;
            for &draws in own.first().iter().flat_map(|line| line.probs.keys()) {
                let scores = row_scores(&own, draws, standard).into_iter();
                scores.for_each(|(metric, scores)| add(choice, (metric.at(draws), scores)));
            }
        }
        if run.ood.is_empty() {
            return Ok(());
        }
        let own = prediction_lines(folder, CheckpointChoice::Last.name())?;
        for set in run.ood.keys() {
            let theirs = prediction_lines(folder, &format!("last-{set}"))?;
            for &draws in own.first().iter().flat_map(|line| line.entropy.keys()) {
                for (metric, scores) in separations(&own, &theirs, draws, set) {
                    for choice in CheckpointChoice::BOTH {
                        add(choice, (metric, scores.clone()));
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

/// The lines of `predictions-<name>.jsonl`; empty without the file.
fn prediction_lines(folder: &Path, name: &str) -> Result<Vec<PredictionLine>> {
    let path = folder.join(format!("predictions-{name}.jsonl"));
    if is_file(&path)? { read_lines(&path) } else { Ok(Vec::new()) }
}

/// The scores of all rows at a number of draws, as far as the answers define them.
fn row_scores(lines: &[PredictionLine], draws: u32, standard: &str) -> Vec<(Metric, Vec<f64>)> {
    let answers = lines.iter().filter_map(|line| line.probs.get(&draws));
    let outputs: Vec<f64> = answers.flatten().copied().collect();
    let classes = outputs.len() / lines.len().max(1);
    if classes < 2 {
        let targets: Vec<f64> = lines.iter().map(|line| line.label).collect();
        let correlation = if standard == "spearman" { spearman } else { pearson };
        let of = |kept: &[usize]| {
            let [outputs, targets] =
                [&outputs, &targets].map(|all| kept.iter().map(|&i| all[i]).collect::<Vec<_>>());
            correlation(&outputs, &targets)
        };
        let found = (outputs.len() == lines.len()).then(|| pseudo_values(lines.len(), of));
        return found
            .and_then(Result::ok)
            .map(|scores| (Metric::STANDARD, scores))
            .into_iter()
            .collect();
    }
    let labels: Vec<usize> = lines.iter().map(|line| line.label as usize).collect();
    let Ok(predictions) = Predictions::new(&outputs, classes, &labels) else { return Vec::new() };
    let rows = || outputs.chunks_exact(classes).zip(&labels);
    let squares = |(row, &label): (&[f64], &usize)| {
        let own = row[label];
        row.iter().map(|p| p * p).sum::<f64>() - own * own + (own - 1.0).powi(2)
    };
    let right: Vec<f64> =
        predictions.correct().iter().map(|right| f64::from(u8::from(*right))).collect();
    let own = match standard {
        "matthews" => predictions.pseudo_values(Score::Matthews).ok(),
        "f1" => predictions.pseudo_values(Score::F1).ok(),
        _ => Some(right.clone()),
    };
    let of = |score| predictions.pseudo_values(score).ok();
    let found = [
        (Metric::ACCURACY, Some(right)),
        (Metric::NLL, Some(rows().map(|(row, &label)| -row[label].max(NLL_FLOOR).ln()).collect())),
        (Metric::BRIER, Some(rows().map(squares).collect())),
        (Metric::STANDARD, own),
        (Metric::MACRO_F1, of(Score::MacroF1)),
        (Metric::ECE, of(Score::Ece)),
        (Metric::RISK_AREA, of(Score::RiskArea)),
    ];
    found.into_iter().filter_map(|(metric, scores)| Some((metric, scores?))).collect()
}

/// Pseudo-values of the areas by which both uncertainties separate the rows of another `set`, `theirs`, from a run's own.
fn separations(
    own: &[PredictionLine],
    theirs: &[PredictionLine],
    draws: u32,
    set: &str,
) -> Vec<(Metric, Vec<f64>)> {
    type Read = fn(&PredictionLine) -> &BTreeMap<u32, f64>;
    let reads: [(&str, Read); 2] = [
        ("auroc_entropy", |line| &line.entropy),
        ("auroc_information", |line| &line.mutual_information),
    ];
    let separation = |(name, read): (&str, Read)| {
        let metric = Metric::parse(&format!("{name}_{set}"), draws)?;
        let [own, theirs] = [own, theirs].map(|lines| {
            lines.iter().map(|line| read(line).get(&draws).copied()).collect::<Option<Vec<f64>>>()
        });
        Some((metric, Aurocs::new(&[own?], &[theirs?]).ok()?.pseudo_values(0)))
    };
    reads.into_iter().filter_map(separation).collect()
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

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
            let shown = names(&summary.headline());
            let files = names(&summary.in_files());
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

    /// A run whose answers to two classes and to another set are in `folder`.
    fn run_with_answers(folder: &Path) -> RunRecord {
        let mut run = sample_reasoning().runs[0].clone();
        run.ood = BTreeMap::from([("arc-c".to_owned(), BTreeMap::new())]);
        let p = [0.9, 0.2, 0.7, 0.4, 0.35, 0.8, 0.55, 0.15];
        let lines = |p: &[f64], labels: &[f64]| {
            let line = |(p, label): (&f64, &f64)| {
                let q = 1.0 - p;
                let entropy = 0.5 - (p - 0.5).abs();
                format!(
                    r#"{{"id":"a","label":{label:?},"probs":{{"0":[{q:?},{p:?}]}},"entropy":{{"0":{entropy:?}}},"mutual_information":{{}}}}"#
                )
            };
            p.iter().zip(labels).map(line).collect::<Vec<_>>().join("\n")
        };
        let own = lines(&p, &[1.0, 0.0, 0.0, 1.0, 0.0, 1.0, 1.0, 0.0]);
        std::fs::write(folder.join("predictions-last.jsonl"), own).unwrap();
        let theirs = lines(&[0.6, 0.45, 0.3], &[0.0; 3]);
        std::fs::write(folder.join("predictions-last-arc-c.jsonl"), theirs).unwrap();
        run
    }

    /// By hand of three right and one wrong answer in each class: MCC, F1, macro F1; NumPy for the rest.
    #[test]
    fn their_means_are_the_scores() {
        let folder = tempfile::tempdir().unwrap();
        let run = run_with_answers(folder.path());
        for (standard, expected) in [("matthews", 0.5), ("f1", 0.75), ("accuracy", 0.75)] {
            let mut scores = RowScores::default();
            scores.read(folder.path(), &run, standard).unwrap();
            let mean = |metric| -> Option<f64> {
                let key = key(CheckpointChoice::Last, &run.task, &run.method, run.seed, metric);
                let own = scores.0.get(&key)?;
                Some(own.iter().sum::<f64>() / own.len() as f64)
            };
            let area = Metric::parse("auroc_entropy_arc-c", 0).unwrap();
            for (metric, expected) in [
                (Metric::ACCURACY, 0.75),
                (Metric::STANDARD, expected),
                (Metric::NLL, 0.482_881_250_104_023_3),
                (Metric::BRIER, 0.321_875),
                (Metric::MACRO_F1, 0.75),
                (Metric::ECE, 0.256_25),
                (Metric::RISK_AREA, 0.112_797_619_047_619_05),
                (area, 0.770_833_333_333_333_4),
            ] {
                let found = mean(metric).unwrap();
                assert!((found - expected).abs() < 1e-12, "{metric:?}: {found}, {expected}");
            }
            assert_eq!(mean(Metric::NLL.at(10)), None);
            let best = key(CheckpointChoice::Best, &run.task, &run.method, run.seed, Metric::NLL);
            assert_eq!(scores.0.get(&best), None, "no file");
        }
        // Of a regression, its correlation: numpy.corrcoef.
        let line = |(p, label): (f64, f64)| PredictionLine {
            labels: None,
            id: String::new(),
            line: None,
            row: None,
            label,
            probs: BTreeMap::from([(0, vec![p])]),
            entropy: BTreeMap::new(),
            mutual_information: BTreeMap::new(),
        };
        let lines =
            [(0.1, 0.0), (0.4, 0.5), (0.35, 0.2), (0.8, 1.0), (0.9, 0.7), (0.2, 0.4)].map(line);
        let found = row_scores(&lines, 0, "pearson");
        let [(Metric::STANDARD, values)] = &found[..] else { panic!("{found:?}") };
        assert!((values.iter().sum::<f64>() / 6.0 - 0.863_731_833_073_219_1).abs() < 1e-12);
    }
}
