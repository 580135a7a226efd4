//! The table of metrics: name, format and reading of every number. A new metric is one row.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use crate::record::{CheckpointRecord, Metrics, OodRecord, ParameterCounts, Results, RunRecord};
use crate::task::Task;
use crate::text::{self, same};

const MINUTE: f64 = 60.0;
const MEBIBYTE: f64 = 1_048_576.0;
pub(crate) const MILLION: f64 = 1e6;
pub(crate) const ABSENT: &str = "–";

use Better::{Higher, Lower, Neither};
use Per::{Draws, Run, Set};
use Shown::{Always, File, Named, Page, Uncertainty};
use Unit::{Count, Mebibytes, Minutes, Rank, Score, Seconds};

static TABLE: [Fact; 22] = [
    fact("accuracy", "accuracy", Higher, Score, Always, Draws, |at| at.metrics()?.accuracy),
    fact("standard", "standard metric", Higher, Score, Always, Draws, standard),
    fact("macro_f1", "macro F1", Higher, Score, Uncertainty, Draws, |at| at.metrics()?.macro_f1),
    fact("ece", "ECE", Lower, Score, Always, Draws, |at| at.metrics()?.ece),
    fact("ece_floor", "ECE of a calibrated model", Neither, Score, File, Draws, ece_floor),
    fact("nll", "NLL (nats)", Lower, Score, Always, Draws, |at| at.metrics()?.nll),
    fact("brier", "Brier score", Lower, Score, Uncertainty, Draws, |at| at.metrics()?.brier),
    fact("aurc", "risk-coverage area", Lower, Score, File, Draws, |at| {
        Some(at.checkpoint.selective.get(&at.draws)?.area)
    }),
    fact("auroc_entropy", "AUROC of the entropy", Higher, Score, File, Set, |at| {
        Some(at.other_set()?.auroc_entropy)
    }),
    fact("auroc_information", "AUROC of the mutual information", Higher, Score, File, Set, |at| {
        at.other_set()?.auroc_mutual_information
    }),
    fact("ood_accuracy", "accuracy by its own letters", Higher, Score, File, Set, |at| {
        at.other_set()?.accuracy
    }),
    fact("ood_nll", "NLL (nats) by its own letters", Lower, Score, File, Set, |at| {
        at.other_set()?.nll
    }),
    fact("ood_ece", "ECE by its own letters", Lower, Score, File, Set, |at| at.other_set()?.ece),
    fact("parameters", "trained parameters, head not counted", Neither, Count, Always, Run, |at| {
        Some(at.counts()?.trained() as f64)
    }),
    fact("stored_parameters", "numbers kept for prediction", Neither, Count, File, Run, |at| {
        Some(at.counts()?.stored as f64)
    }),
    fact("head_parameters", "parameters of the head", Neither, Count, Uncertainty, Run, |at| {
        Some(at.run.trainable_parameters.head as f64)
    }),
    fact("rank", "average rank", Neither, Rank, Always, Run, |at| Some(at.checkpoint.average_rank)),
    fact("rank_percent", "rank (% of initial)", Neither, Rank, Named, Run, |at| {
        Some(at.checkpoint.percent_rank)
    }),
    fact("time_min", "training time (min)", Neither, Minutes, Always, Run, |at| {
        Some(at.run.train_seconds / MINUTE)
    }),
    fact("predict_s", "prediction time (s)", Neither, Seconds, Uncertainty, Draws, |at| {
        at.checkpoint.predict_seconds.get(&at.draws).copied()
    }),
    fact("memory_mib", "peak memory of the process (MiB)", Neither, Mebibytes, Page, Run, |at| {
        Some(at.run.peak_memory_bytes? as f64 / MEBIBYTE)
    }),
    fact("start_memory_mib", "memory at the start (MiB)", Neither, Mebibytes, Page, Run, |at| {
        Some(at.run.start_memory_bytes? as f64 / MEBIBYTE)
    }),
];

pub(crate) struct Fact {
    name: &'static str,
    /// Heading in print, with the unit.
    title: &'static str,
    pub(crate) better: Better,
    pub(crate) unit: Unit,
    pub(crate) shown: Shown,
    per: Per,
    read: fn(&CellKey<'_>) -> Option<f64>,
}

const fn fact(
    name: &'static str,
    title: &'static str,
    better: Better,
    unit: Unit,
    shown: Shown,
    per: Per,
    read: fn(&CellKey<'_>) -> Option<f64>,
) -> Fact {
    Fact { name, title, better, unit, shown, per, read }
}

/// Direction of improvement. Sizes, time and memory are facts, not goals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Better {
    Higher,
    Lower,
    Neither,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    /// A fraction, nats, or another number of the order of one.
    Score,
    Count,
    Rank,
    Minutes,
    Seconds,
    Mebibytes,
}

impl Unit {
    /// As the paper prints them.
    pub(crate) const fn format(self) -> Format {
        let (digits, std_digits, style) = match self {
            Score => (3, 3, Style::Plain),
            Rank | Seconds => (2, 2, Style::Plain),
            Minutes => (1, 2, Style::Finer),
            Mebibytes => (0, 0, Style::Plain),
            Count => (0, 0, Style::Grouped),
        };
        Format { digits, std_digits, style }
    }

    /// `true` if values are those of a machine, and not of the model.
    pub(crate) const fn is_of_hardware(self) -> bool {
        matches!(self, Minutes | Seconds | Mebibytes)
    }
}

/// Number format of tables. The scripts of the page receive it beside the numbers, and `print` in `data.js` is its twin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Format {
    pub(crate) digits: usize,
    /// Decimals of the standard deviation.
    std_digits: usize,
    style: Style,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Style {
    Plain,
    /// One decimal more below 10: minutes of tiny runs would all be zero.
    Finer,
    /// A whole number in groups of three digits, without a deviation.
    Grouped,
    /// In millions, without a deviation.
    Millions,
}

impl Format {
    /// Counts in millions, as they are published, with decimals for the smallest models; other values unchanged.
    pub(crate) fn as_published(self) -> Self {
        match self.style {
            Style::Grouped => Self { digits: 3, style: Style::Millions, ..self },
            _ => self,
        }
    }

    /// A value in print; `–` if it is not a finite number.
    pub(crate) fn value(self, x: f64) -> String {
        match self.style {
            _ if !x.is_finite() => ABSENT.to_owned(),
            Style::Grouped if x >= 0.0 => grouped(x.round() as u64),
            Style::Finer if x < 10.0 => text::decimals(x, self.digits + 1),
            Style::Millions => text::decimals(x / MILLION, self.digits) + " M",
            _ => text::decimals(x, self.digits),
        }
    }

    /// ` ±.005`, without a zero before the point, as in the paper; empty for one seed and for counts, which most methods fix.
    pub(crate) fn deviation(self, std: Option<f64>) -> String {
        let is_count = matches!(self.style, Style::Grouped | Style::Millions);
        let Some(std) = std.filter(|std| std.is_finite() && !is_count) else {
            return String::new();
        };
        let text = format!("{std:.*}", self.std_digits);
        format!(
            " ±{}",
            text.strip_prefix('0').filter(|rest| rest.starts_with('.')).unwrap_or(&text)
        )
    }

    /// A difference of two values, with its sign.
    pub(crate) fn difference(self, x: f64) -> String {
        let (scale, unit) = if self.style == Style::Millions { (MILLION, " M") } else { (1.0, "") };
        format!("{:+.*}{unit}", self.digits, x / scale).replace('-', "−")
    }
}

/// The tables that have a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shown {
    Always,
    /// Tables about uncertainty, the page and files.
    Uncertainty,
    /// The page and files.
    File,
    Page,
    /// Claims and published numbers that name it.
    Named,
}

/// Quantities beside the run on which a value depends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Per {
    Run,
    Draws,
    /// The number of draws, and the other set of questions.
    Set,
}

/// Run, checkpoint and number of draws at which a value is read.
pub(crate) struct CellKey<'a> {
    results: &'a Results,
    run: &'a RunRecord,
    checkpoint: &'a CheckpointRecord,
    set: Option<Task>,
    draws: u32,
}

impl<'a> CellKey<'a> {
    fn metrics(&self) -> Option<&'a Metrics> {
        self.checkpoint.metrics.get(&self.draws)
    }

    /// The answers to another set's questions, if this checkpoint answered them: the last one, or one of its step.
    fn other_set(&self) -> Option<&'a OodRecord> {
        let last = self.run.checkpoints.last.as_ref()?;
        let asked = (last.step == self.checkpoint.step).then_some(self.set)??;
        self.run.ood.get(asked.name())?.get(&self.draws)
    }

    /// The parameters, which were counted at the last checkpoint: those of a checkpoint with other ranks are not known.
    fn counts(&self) -> Option<&'a ParameterCounts> {
        let last = self.run.checkpoints.last.as_ref();
        let same = last.is_none_or(|last| last.ranks == self.checkpoint.ranks);
        same.then_some(&self.run.trainable_parameters)
    }
}

/// The task's own metric.
fn standard(at: &CellKey<'_>) -> Option<f64> {
    let metrics = at.metrics()?;
    let name = at.results.standard_metric(&at.run.task);
    let accuracy = || metrics.accuracy.filter(|_| name == "accuracy");
    metrics.standard.get(name).copied().flatten().or_else(accuracy)
}

/// Mean expected calibration error of a perfectly calibrated model with the same confidences.
fn ece_floor(at: &CellKey<'_>) -> Option<f64> {
    Some(at.checkpoint.reliability.get(&at.draws)?.floor())
}

/// A row of the table at a number of posterior draws.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Metric {
    row: usize,
    /// The other set, for a metric of its questions.
    pub(crate) set: Option<Task>,
    /// 0 is the posterior mean; `None` for a metric that does not depend on draws.
    pub(crate) draws: Option<u32>,
}

impl Metric {
    pub(crate) const ACCURACY: Self = Self::known("accuracy");
    pub(crate) const STANDARD: Self = Self::known("standard");
    pub(crate) const ECE: Self = Self::known("ece");
    pub(crate) const ECE_FLOOR: Self = Self::known("ece_floor");
    pub(crate) const NLL: Self = Self::known("nll");
    pub(crate) const BRIER: Self = Self::known("brier");
    pub(crate) const MACRO_F1: Self = Self::known("macro_f1");
    pub(crate) const RISK_AREA: Self = Self::known("aurc");
    pub(crate) const PARAMETERS: Self = Self::known("parameters");
    pub(crate) const STORED: Self = Self::known("stored_parameters");
    pub(crate) const HEAD: Self = Self::known("head_parameters");
    pub(crate) const RANK: Self = Self::known("rank");
    const MEMORY: Self = Self::known("memory_mib");
    const START_MEMORY: Self = Self::known("start_memory_mib");

    /// The row called `name`; an error of the compiler if there is none.
    const fn known(name: &str) -> Self {
        let mut row = 0;
        while !same(TABLE[row].name, name) {
            row += 1;
        }
        Self::of_row(row, None)
    }

    const fn of_row(row: usize, set: Option<Task>) -> Self {
        let draws = match TABLE[row].per {
            Run => None,
            Draws | Set => Some(0),
        };
        Self { row, set, draws }
    }

    /// All metrics at the posterior mean, those about other sets set by set.
    pub(crate) fn all() -> Vec<Self> {
        let rows: Vec<usize> = (0..TABLE.len()).collect();
        let is_of_set = |row: usize| TABLE[row].per == Set;
        let mut all = Vec::new();
        for rows in rows.chunk_by(|a, b| is_of_set(*a) == is_of_set(*b)) {
            let every = || Task::reasoning().map(Some).collect();
            for set in if is_of_set(rows[0]) { every() } else { vec![None] } {
                all.extend(rows.iter().map(|row| Self::of_row(*row, set)));
            }
        }
        all
    }

    pub(crate) fn fact(self) -> &'static Fact {
        &TABLE[self.row]
    }

    /// This metric at another number of draws.
    #[must_use]
    pub(crate) fn at(self, draws: u32) -> Self {
        Self { draws: self.draws.map(|_| draws), ..self }
    }

    /// The metric that is printed behind this one: after a `+`, or in brackets.
    pub(crate) fn beside(self) -> Option<Self> {
        match self.at(0) {
            Self::PARAMETERS => Some(Self::STORED),
            Self::MEMORY => Some(Self::START_MEMORY),
            Self::ECE => Some(Self { draws: self.draws, ..Self::ECE_FLOOR }),
            _ => None,
        }
    }

    /// The name without its number of draws, common to `accuracy` and `accuracy_k10`.
    pub(crate) fn base(self) -> Cow<'static, str> {
        let name = self.fact().name;
        self.set.map_or(Cow::Borrowed(name), |set| Cow::Owned(format!("{name}_{set}")))
    }

    /// The name in CSV files: `accuracy`, `accuracy_k10`, `rank`, `time_min`, ...
    pub(crate) fn name(self) -> String {
        match self.draws {
            Some(draws) if draws > 0 => format!("{}_k{draws}", self.base()),
            _ => self.base().into_owned(),
        }
    }

    /// The metric of a CSV name; `None` if the name is not known. `nll_k10` has its number of draws in its name, for all
    /// others it is `draws`.
    pub(crate) fn parse(name: &str, draws: u32) -> Option<Self> {
        let ending = name.rsplit_once("_k");
        let (name, draws) =
            ending.and_then(|(name, k)| Some((name, k.parse().ok()?))).unwrap_or((name, draws));
        Some(Self::all().into_iter().find(|metric| metric.base() == name)?.at(draws))
    }

    pub(crate) fn title(self) -> String {
        let set = self.set.map(|set| format!(", {}", set.display_name()));
        let draws = self.draws.filter(|draws| *draws > 0).map(|draws| format!(", {draws} draws"));
        format!("{}{}{}", self.fact().title, set.unwrap_or_default(), draws.unwrap_or_default())
    }

    pub(crate) fn is_count(self) -> bool {
        self.fact().unit == Count
    }

    pub(crate) fn number_format(self) -> Format {
        self.fact().unit.format()
    }

    /// One value in print; `–` if it is not a finite number.
    pub(crate) fn format(self, value: f64) -> String {
        self.number_format().value(value)
    }

    /// A cell in print: `0.882 ±.005`, or the mean alone.
    pub(crate) fn format_spread(self, spread: &Spread) -> String {
        self.format(spread.mean) + &self.number_format().deviation(spread.std)
    }

    /// The value of this metric in one run at one of its checkpoints; `None` if the run does not have it.
    pub(crate) fn value(
        self,
        results: &Results,
        run: &RunRecord,
        checkpoint: &CheckpointRecord,
    ) -> Option<f64> {
        let draws = self.draws.unwrap_or(0);
        (self.fact().read)(&CellKey { results, run, checkpoint, set: self.set, draws })
    }
}

impl fmt::Debug for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}

/// Mean and sample standard deviation over seeds.
///
/// # Formula
///
/// ```text
/// mean = Σ x / n      std = sqrt( Σ (x − mean)² / (n − 1) )
/// ```
///
/// The sample form (`n − 1`) is what the paper prints: ranks 1, 2, 4 give 2.33 ± 1.53.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Spread {
    pub(crate) by_seed: BTreeMap<u64, f64>,
    pub(crate) mean: f64,
    /// Sample standard deviation; none for one value.
    pub(crate) std: Option<f64>,
}

impl Spread {
    /// Spread of a list; `None` if it is empty.
    pub(crate) fn of(values: &[f64]) -> Option<Self> {
        let by_seed = (0..).zip(values.iter().copied()).collect();
        let mut spread = Self { by_seed, ..Self::default() };
        spread.finalize();
        (!values.is_empty()).then_some(spread)
    }

    /// Computes mean and deviation of the values.
    pub(super) fn finalize(&mut self) {
        let values = || self.by_seed.values().copied();
        let n = self.n();
        let mean = values().sum::<f64>() / n as f64;
        let squares: f64 = values().map(|x| (x - mean).powi(2)).sum();
        let std = (n > 1).then(|| (squares / (n - 1) as f64).sqrt());
        self.mean = mean;
        self.std = std;
    }

    pub(crate) fn n(&self) -> usize {
        self.by_seed.len()
    }

    /// Standard error of the mean, `std / sqrt(n)`; none for one value.
    pub(crate) fn standard_error(&self) -> Option<f64> {
        self.std.map(|std| std / (self.n() as f64).sqrt())
    }
}

pub(crate) fn grouped(n: u64) -> String {
    text::grouped(n, '\u{202f}')
}

#[cfg(test)]
mod tests {
    use super::super::summary::Summary;
    use super::*;
    use crate::record::sample::{sample_reasoning, sample_results};

    fn metric(name: &str) -> Metric {
        Metric::parse(name, 0).unwrap()
    }

    /// The ranks are two cells of the published table whose seeds are known.
    #[test]
    fn cells_print_as_in_the_paper() {
        for (name, values, expected) in [
            ("accuracy", &[0.877, 0.882, 0.887][..], "0.882 ±.005"),
            ("accuracy", &[f64::NAN, 0.5], "–"),
            ("rank", &[1.0, 2.0, 4.0], "2.33 ±1.53"),
            ("rank", &[1.0, 2.0, 2.0], "1.67 ±.58"),
            ("time_min", &[12.3], "12.3"),
            ("time_min", &[0.123], "0.12"),
            ("parameters", &[4_483_592.0, 4_483_592.0], "4\u{202f}483\u{202f}592"),
            ("parameters", &[1000.0, 3000.0], "2\u{202f}000"),
        ] {
            let spread = Spread::of(values).unwrap();
            assert_eq!(metric(name).format_spread(&spread), expected, "{name}");
        }
        let one = Spread::of(&[0.5]).unwrap();
        assert_eq!((one.mean, one.std, one.standard_error()), (0.5, None, None));
        assert_eq!(Spread::of(&[]), None);
        assert_eq!([0, 999, 3_400_000].map(grouped), ["0", "999", "3\u{202f}400\u{202f}000"]);
    }

    /// Titles head columns where some run has the value, and no others.
    #[test]
    fn every_title_heads_a_column_of_some_results_and_not_of_all() {
        let mut few = sample_results();
        few.runs.clear();
        let cases = [sample_results(), sample_reasoning(), few];
        let shown = cases.each_ref().map(|results| {
            let summary = Summary::of_last(results);
            let metrics = summary.on_page();
            let names = summary.cells(&metrics).map(|(metric, ..)| metric.base());
            names.collect::<std::collections::BTreeSet<_>>()
        });
        for metric in Metric::all().into_iter().filter(|metric| metric.fact().shown != Named) {
            let n = shown.iter().filter(|names| names.contains(&metric.base())).count();
            let asked = metric
                .set
                .is_none_or(|set| cases[1].runs.iter().any(|run| run.ood.contains_key(set.name())));
            assert!(n < shown.len() && (n > 0) == asked, "{}: {n}", metric.title());
        }
        // A score of uncertainty has no column beside a regression.
        let only = |task: &str| {
            let mut results = sample_results();
            results.runs.retain(|run| run.task == task);
            let summary = Summary::of_last(&results);
            let has = |metric| summary.cell(metric, "LoRA", task).is_some();
            [Metric::ACCURACY, Metric::STANDARD, Metric::ECE, Metric::NLL].map(has)
        };
        assert_eq!(only("stsb"), [false, true, false, false]);
        assert_eq!(only("rte"), [true, false, true, true]);
    }

    #[test]
    fn names_go_there_and_back() {
        for metric in Metric::all() {
            for metric in [metric, metric.at(10)] {
                assert_eq!(Metric::parse(&metric.name(), 0), Some(metric));
            }
        }
        assert_eq!(Metric::NLL.at(10).name(), "nll_k10");
        assert_eq!(Metric::RANK.at(10), Metric::RANK, "it has no draws");
        assert_eq!(
            metric("auroc_entropy_arc-e_k10").title(),
            "AUROC of the entropy, ARC-E, 10 draws"
        );
        assert_eq!(Metric::parse("nll", 10), Some(Metric::NLL.at(10)));
        assert_eq!(Metric::parse("params_m", 0), None);
        assert_eq!(Metric::parse("nll_kind", 0), None);
    }

    #[test]
    fn other_sets_belong_to_the_last_checkpoint_and_counts_to_their_ranks() {
        let results = sample_reasoning();
        let own = |task: &str| {
            results.runs.iter().find(|run| run.task == task && run.method == "BayesLoRA").unwrap()
        };
        let run = own("obqa");
        let other = own("arc-e");
        let [last, best, others] =
            [&run.checkpoints.last, &run.checkpoints.best, &other.checkpoints.last]
                .map(|checkpoint| checkpoint.as_ref().unwrap());
        let entropy = metric("auroc_entropy_arc-c_k10");
        let expected = run.ood["arc-c"][&10].auroc_entropy;
        assert_eq!(entropy.value(&results, run, last), Some(expected));
        assert_eq!(entropy.value(&results, run, best), None);
        assert_eq!(entropy.value(&results, other, others), None, "a model of another task");
        let one = metric("auroc_information_arc-c_k1");
        assert_eq!(one.value(&results, run, last), None, "one draw is one model");

        let results = sample_results();
        let run = results.runs.iter().find(|run| run.method == "BayesLoRA").unwrap();
        let mut last = run.checkpoints.last.clone().unwrap();
        assert_eq!(Metric::PARAMETERS.value(&results, run, &last), Some(98_496.0));
        last.ranks.clear();
        assert_eq!(Metric::PARAMETERS.value(&results, run, &last), None);
    }
}
