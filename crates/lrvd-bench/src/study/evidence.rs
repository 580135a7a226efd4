//! Every number that a study measured, and differences between arms.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::design::Arm;
use super::verdict::Verdict;
use crate::record::{Measurement, RunRecord};
use crate::report::Spread;

/// Standard errors that a difference must exceed to count.
const ERRORS: f64 = 2.0;

/// A metric, at a number where it is a function of one: `nll` at 10 draws.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quantity {
    /// Name of the metric.
    pub metric: &'static str,
    /// What it is taken at.
    pub at: Option<f64>,
}

impl Quantity {
    /// A metric that is a function of nothing.
    pub const fn of(metric: &'static str) -> Self {
        Self { metric, at: None }
    }

    /// A metric at a number.
    pub const fn at(metric: &'static str, at: f64) -> Self {
        Self { metric, at: Some(at) }
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.at {
            Some(at) => write!(f, "{} at {at}", self.metric),
            None => f.write_str(self.metric),
        }
    }
}

/// One number of one run.
#[derive(Clone, Debug, PartialEq)]
pub struct Observation {
    /// Label of the arm.
    pub arm: String,
    /// Key of the task.
    pub task: String,
    /// Seed.
    pub seed: u64,
    /// What was found.
    pub found: Measurement,
}

/// Every number by arm, task and seed.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    /// The arms, in their order.
    pub arms: Vec<Arm>,
    /// The numbers, in the order in which they were made.
    pub observations: Vec<Observation>,
}

impl Evidence {
    /// No number yet of `arms`.
    pub fn new(arms: Vec<Arm>) -> Self {
        Self { arms, observations: Vec::new() }
    }

    /// Adds a run of `arm`: its last checkpoint, costs, what was fitted, and what was `measured` beside.
    pub fn add(&mut self, arm: &str, record: &RunRecord, measured: Vec<Measurement>) {
        for found in of_record(record).into_iter().chain(measured) {
            let (arm, task) = (arm.to_owned(), record.task.clone());
            self.observations.push(Observation { arm, task, seed: record.seed, found });
        }
    }

    /// The tasks, in their order.
    pub fn tasks(&self) -> Vec<&str> {
        let mut tasks = Vec::new();
        for observation in &self.observations {
            if !tasks.contains(&observation.task.as_str()) {
                tasks.push(observation.task.as_str());
            }
        }
        tasks
    }

    /// `quantity` of `arm` by task and seed.
    pub fn values(&self, arm: &str, quantity: Quantity) -> BTreeMap<(&str, u64), f64> {
        self.metric(arm, quantity.metric, quantity.at)
    }

    /// `metric` of `arm` at `at` by task and seed.
    pub fn metric(&self, arm: &str, metric: &str, at: Option<f64>) -> BTreeMap<(&str, u64), f64> {
        let is_it = |o: &&Observation| o.arm == arm && o.found.metric == metric && o.found.at == at;
        let found = self.observations.iter().filter(is_it);
        found.map(|o| ((o.task.as_str(), o.seed), o.found.value)).collect()
    }

    /// What `metric` of `arm` is at every row, by task, seed and row.
    pub fn rows(&self, arm: &str, metric: &str) -> BTreeMap<(&str, u64, u64), f64> {
        let own = self.observations.iter().filter(|o| o.arm == arm && o.found.metric == metric);
        own.filter_map(|o| Some(((o.task.as_str(), o.seed, o.found.at? as u64), o.found.value)))
            .collect()
    }

    /// The names `n` of metrics `x/n` of `arm` for any `x`, in their order.
    pub fn names(&self, arm: &str) -> Vec<&str> {
        let own = self.observations.iter().filter(|o| o.arm == arm);
        in_order(own.filter_map(|o| Some(o.found.metric.split_once('/')?.1)))
    }

    /// The `x` of all such metrics that are no function of anything.
    pub(super) fn named_metrics(&self) -> Vec<&str> {
        let own = self.observations.iter().filter(|o| o.found.at.is_none());
        in_order(own.filter_map(|o| Some(o.found.metric.split_once('/')?.0)))
    }

    /// Mean and spread over seeds of `quantity` of `arm` on `task`.
    pub(super) fn spread(&self, arm: &str, task: &str, quantity: Quantity) -> Option<Spread> {
        self.metric_spread(arm, task, quantity.metric, quantity.at)
    }

    /// The same of `metric` at `at`.
    pub(super) fn metric_spread(
        &self,
        arm: &str,
        task: &str,
        metric: &str,
        at: Option<f64>,
    ) -> Option<Spread> {
        let all = self.metric(arm, metric, at);
        let values: Vec<f64> =
            all.iter().filter(|((t, _), _)| *t == task).map(|(_, &value)| value).collect();
        Spread::of(&values)
    }

    /// Mean over tasks and seeds; none before the first number.
    pub fn mean(&self, arm: &str, quantity: Quantity) -> Option<f64> {
        let values: Vec<f64> = self.values(arm, quantity).into_values().collect();
        Some(Spread::of(&values)?.mean)
    }

    /// Where `metric` of `arm` was taken, ascending.
    pub fn places(&self, arm: &str, metric: &str) -> Vec<f64> {
        let own = self.observations.iter().filter(|o| o.arm == arm && o.found.metric == metric);
        let mut places: Vec<f64> = own.filter_map(|o| o.found.at).collect();
        places.sort_by(f64::total_cmp);
        places.dedup();
        places
    }

    /// `quantity` of the arm `of` less that of the arm `from`, paired by task and seed.
    pub fn difference(&self, quantity: Quantity, of: &str, from: &str) -> Paired {
        self.contrast((of, quantity), (from, quantity))
    }

    /// One quantity of one arm less another of another, or of the same.
    pub fn contrast(&self, of: (&str, Quantity), from: (&str, Quantity)) -> Paired {
        let base = self.values(from.0, from.1);
        let pairs: Vec<f64> = self
            .values(of.0, of.1)
            .into_iter()
            .filter_map(|(run, value)| Some(value - base.get(&run)?))
            .collect();
        let name = if of.1 == from.1 {
            format!("{}: {} less {}", of.1, of.0, from.0)
        } else if of.0 == from.0 {
            format!("{}: {} less {}", of.0, of.1, from.1)
        } else {
            format!("{} of {} less {} of {}", of.1, of.0, from.1, from.0)
        };
        Paired::of(name, &pairs)
    }
}

/// Each once, in the order of its first place.
fn in_order<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut seen = BTreeSet::new();
    names.filter(|name| seen.insert(*name)).collect()
}

/// A difference between two arms: mean over task and seed, and its standard error.
#[derive(Clone, Debug, PartialEq)]
pub struct Paired {
    /// What less what.
    pub name: String,
    /// Mean; none without a pair.
    pub mean: Option<f64>,
    /// Standard error of the mean; none below two pairs.
    pub error: Option<f64>,
    /// Number of pairs.
    pub pairs: usize,
}

impl Paired {
    /// The mean of `differences`, or of any numbers.
    pub fn of(name: impl Into<String>, differences: &[f64]) -> Self {
        let spread = Spread::of(differences);
        Self {
            name: name.into(),
            mean: spread.as_ref().map(|s| s.mean),
            error: spread.as_ref().and_then(Spread::standard_error),
            pairs: differences.len(),
        }
    }

    /// Whether it is below `bound`: holds if two standard errors below, fails if two above.
    pub fn below(&self, bound: f64) -> Verdict {
        match (self.mean, self.error) {
            (Some(mean), Some(error)) if mean + ERRORS * error < bound => Verdict::Holds,
            (Some(mean), Some(error)) if mean - ERRORS * error > bound => Verdict::Fails,
            _ => Verdict::CannotBeSaid,
        }
    }

    /// Whether it is above `bound`.
    pub fn above(&self, bound: f64) -> Verdict {
        let negative = Self { mean: self.mean.map(|mean| -mean), ..self.clone() };
        negative.below(-bound)
    }

    /// Whether it lies within `margin` of 0: fails if it lies outside by two standard errors.
    pub fn within(&self, margin: f64) -> Verdict {
        Verdict::all([self.below(margin), self.above(-margin)])
    }
}

impl fmt::Display for Paired {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pairs = self.pairs;
        match (self.mean, self.error) {
            (None, _) => write!(f, "{}: not measured", self.name),
            (Some(mean), None) => write!(f, "{}: {mean:+.4} (one run)", self.name),
            (Some(mean), Some(error)) => {
                write!(f, "{}: {mean:+.4} ± {error:.4} ({pairs} runs)", self.name)
            }
        }
    }
}

/// What the record of a run says, as numbers.
fn of_record(record: &RunRecord) -> Vec<Measurement> {
    let counts = record.trainable_parameters;
    let mut found = vec![
        Measurement::new("parameters", counts.trained() as f64),
        Measurement::new("stored_parameters", counts.stored as f64),
        Measurement::new("train_seconds", record.train_seconds),
        Measurement::new("evaluate_seconds", record.evaluate_seconds),
    ];
    found.extend(record.fitted.iter().map(|(name, &value)| Measurement::new(name, value)));
    let Some(last) = &record.checkpoints.last else { return found };
    found.extend([
        Measurement::new("total_rank", last.total_rank as f64),
        Measurement::new("average_rank", last.average_rank),
        Measurement::new("percent_rank", last.percent_rank),
    ]);
    for (&draws, metrics) in &last.metrics {
        let named = [
            ("accuracy", metrics.accuracy),
            ("nll", metrics.nll),
            ("ece", metrics.ece),
            ("brier", metrics.brier),
            ("mutual_information", metrics.mutual_information),
        ];
        let named = named.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
        let own = metrics.standard.iter().filter(|(name, _)| *name != "accuracy");
        let all = named.chain(own.map(|(name, &value)| (name.clone(), value)));
        found.extend(all.map(|(name, value)| Measurement::at(name, f64::from(draws), value)));
    }
    let draws = |(&draws, &value): (&u32, &f64)| {
        Measurement::at("predict_seconds", f64::from(draws), value)
    };
    found.extend(last.predict_seconds.iter().map(draws));
    let area = last.selective.iter();
    found.extend(area.map(|(&k, s)| Measurement::at("selective_area", f64::from(k), s.area)));
    found
}
