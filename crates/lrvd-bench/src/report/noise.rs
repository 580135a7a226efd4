//! Which differences between methods are beyond the noise of what was measured.
//!
//! ```text
//! error² = s² / n + rows        s the sample standard deviation over n seeds
//! a ≠ b  where  |ā − b̄| > t · √(error_a² + error_b²)
//! ```
//!
//! `rows` is the variance that the choice of validation rows gives a share (`p(1 − p)/n`), a Matthews correlation
//! (`(1 − r²)/n`, exact for balanced classes), another correlation (`(1 − r²)²/n`), and at most gives an area under a
//! ROC curve (`a(1 − a)/n`); records do not tell that of other metrics, for which it is left out. The rows are the same
//! for all methods, so that this part is on the safe side. `t` is Student's two-sided 95 % quantile at the degrees of
//! freedom of Welch and Satterthwaite, where rows count as many, and at least 2. One seed says nothing.

use std::collections::BTreeMap;

use serde::Serialize;

use super::metric::{Better, Metric};
use super::spread::Spread;
use super::summary::Summary;
use crate::record::Results;

/// Two-sided 95 % quantiles of Student's distribution by degrees of freedom, as tables print them.
const QUANTILES: [(f64, f64); 11] = [
    (1.0, 12.706),
    (2.0, 4.303),
    (3.0, 3.182),
    (4.0, 2.776),
    (5.0, 2.571),
    (6.0, 2.447),
    (8.0, 2.306),
    (12.0, 2.179),
    (20.0, 2.086),
    (40.0, 2.021),
    (60.0, LEAST),
];
/// Standard errors beyond which a difference is no noise, however many seeds there are.
const LEAST: f64 = 2.0;

/// What can be said of a method among its rivals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mark {
    /// Better than all others beyond noise.
    Best,
    /// Cannot be told from the best.
    Par,
}

/// A mean over at least two seeds, and where its error comes from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Estimate {
    pub(super) mean: f64,
    seeds: f64,
    freedom: f64,
    rows: f64,
}

impl Estimate {
    /// `rows` is the variance that comes from the choice of rows; none for fewer than two seeds.
    pub(super) fn of(spread: &Spread, rows: f64) -> Option<Self> {
        let error = spread.standard_error()?;
        let freedom = (spread.n() - 1) as f64;
        let known = spread.mean.is_finite() && error.is_finite();
        known.then_some(Self { mean: spread.mean, seeds: error * error, freedom, rows })
    }

    /// The standard error of the mean.
    pub(super) fn error(self) -> f64 {
        (self.seeds + self.rows).sqrt()
    }

    /// Whether two means differ beyond the noise of both, and by more than `least`.
    pub(super) fn differs(self, other: Self, least: f64) -> bool {
        let variance = self.seeds + self.rows + other.seeds + other.rows;
        let part = |e: Self| e.seeds * e.seeds / e.freedom;
        let noise = quantile(variance * variance / (part(self) + part(other))) * variance.sqrt();
        (self.mean - other.mean).abs() > noise.max(least)
    }
}

/// Student's quantile, between the printed ones by straight lines in `1 / freedom`.
fn quantile(freedom: f64) -> f64 {
    let pairs = QUANTILES.windows(2).map(|pair| (pair[0], pair[1]));
    for ((low, above), (high, below)) in pairs {
        if freedom < high {
            let share = (low.max(freedom).recip() - high.recip()) / (low.recip() - high.recip());
            return below + share * (above - below);
        }
    }
    LEAST
}

/// The methods of a task that have a metric at least twice, the best one first.
pub(super) struct Standing<'a> {
    /// Name and estimate.
    pub(super) ranked: Vec<(&'a str, Estimate)>,
    /// Whether each is the best one or cannot be told from it.
    pub(super) near: Vec<bool>,
}

impl<'a> Standing<'a> {
    /// Compares all methods, each by its answer at the metric's draws or, where it draws nothing, its only one.
    /// None where there is nothing to compare, or no direction in which the metric improves.
    pub(super) fn new(
        results: &Results,
        summary: &'a Summary,
        metric: Metric,
        task: &str,
    ) -> Option<Self> {
        let sign = match metric.better() {
            Better::Higher => 1.0,
            Better::Lower => -1.0,
            Better::Neither => return None,
        };
        let estimate = |method: &'a String| {
            let spread = summary.answer(metric, method, task)?;
            let rows = of_rows(results, metric, task, spread.mean);
            Some((method.as_str(), Estimate::of(spread, rows)?))
        };
        let mut ranked: Vec<(&str, Estimate)> =
            summary.methods.iter().filter_map(estimate).collect();
        ranked.sort_by(|a, b| (sign * b.1.mean).total_cmp(&(sign * a.1.mean)));
        let (_, best) = *ranked.first()?;
        if ranked.len() < 2 {
            return None;
        }
        // What prints alike is alike.
        let least = 0.5 * 10_f64.powi(-(metric.decimals().0 as i32));
        let near = ranked.iter().map(|(_, other)| !best.differs(*other, least)).collect();
        Some(Self { ranked, near })
    }

    /// Whether no method can be told from the best.
    pub(super) fn is_level(&self) -> bool {
        self.near.iter().all(|near| *near)
    }

    /// The marks by method: one best, or all that cannot be told from the best.
    pub(super) fn marks(&self) -> BTreeMap<&'a str, Mark> {
        let alone = self.near.iter().filter(|near| **near).count() == 1;
        let mark = if alone { Mark::Best } else { Mark::Par };
        let near = self.ranked.iter().zip(&self.near).filter(|(_, near)| **near);
        near.map(|((method, _), _)| (*method, mark)).collect()
    }
}

/// Variance of `mean` that comes from the choice of validation rows, as far as the metric tells it.
fn of_rows(results: &Results, metric: Metric, task: &str, mean: f64) -> f64 {
    let Some(data) = results.data.get(task).filter(|data| data.validation.rows > 0) else {
        return 0.0;
    };
    let own = data.validation.rows;
    let other = |set: &str| {
        let runs = results.runs.iter().filter(|run| run.task == task);
        runs.filter_map(|run| run.ood.get(set)?.values().next()).map(|record| record.n).min()
    };
    let other = metric.other_set().and_then(|set| other(set.name())).filter(|n| *n > 0);
    let share = mean * (1.0 - mean);
    let correlation = 1.0 - mean * mean;
    let (variance, rows) = match metric {
        Metric::Accuracy(_) | Metric::MacroF1(_) => (share, own),
        Metric::Standard(_) => match data.standard_metric.as_str() {
            "matthews" => (correlation, own),
            "pearson" | "spearman" => (correlation * correlation, own),
            _ => (share, own),
        },
        Metric::OtherAccuracy(..) => (share, other.unwrap_or(own)),
        Metric::EntropyAuroc(..) | Metric::InformationAuroc(..) => {
            (share, other.map_or(own, |n| n.min(own)))
        }
        _ => return 0.0,
    };
    variance.max(0.0) / rows as f64
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::super::summary::CheckpointChoice;
    use super::*;
    use crate::record::sample::{sample_results, set_accuracy};

    fn estimate(values: &[f64], rows: f64) -> Estimate {
        Estimate::of(&Spread::of(values).unwrap(), rows).unwrap()
    }

    #[test]
    fn quantiles_are_those_of_students_tables() {
        // R: qt(0.975, c(1, 2, 7, 10, 30)).
        for (freedom, wanted) in
            [(1.0, 12.706), (2.0, 4.303), (7.0, 2.365), (10.0, 2.228), (30.0, 2.042)]
        {
            let found = quantile(freedom);
            assert!((found - wanted).abs() < 0.01, "{freedom}: {found} for {wanted}");
        }
        assert_eq!([0.5, 1e9, f64::INFINITY].map(quantile), [12.706, 2.0, 2.0]);
    }

    #[test]
    fn few_seeds_need_a_larger_difference() {
        // Both have a standard error of 0.01, so that the noise is t · 0.01414: at two degrees of freedom 0.0609.
        let two = |mean: f64| estimate(&[mean - 0.01, mean + 0.01], 0.0);
        assert!(!two(0.80).differs(two(0.86), 0.0) && two(0.80).differs(two(0.862), 0.0));
        // Where rows make the noise it is twice that, 0.0283.
        let rows = |mean: f64| estimate(&[mean, mean], 1e-4);
        assert!(!rows(0.80).differs(rows(0.828), 0.0) && rows(0.80).differs(rows(0.829), 0.0));
        assert!(!estimate(&[0.5, 0.5], 0.0).differs(estimate(&[0.5004; 2], 0.0), 5e-4));
        assert_eq!(Estimate::of(&Spread::of(&[0.5]).unwrap(), 0.0), None);
    }

    #[test]
    fn marks_are_for_the_best_alone_or_for_all_that_are_near_it() {
        let mut results = sample_results();
        for (method, accuracy) in [("LoRA", 0.5), ("AdaLoRA", 0.88), ("BayesLoRA", 0.9)] {
            set_accuracy(&mut results, "rte", method, &[(accuracy, 0.5); 3]);
        }
        let metric = Metric::Accuracy(0);
        let marks = |results: &Results, task: &str| {
            let summary = Summary::new(results, CheckpointChoice::Last, &[metric]);
            Standing::new(results, &summary, metric, task).map(|s| {
                s.marks().into_iter().map(|(name, mark)| (name.to_owned(), mark)).collect()
            })
        };
        results.data.get_mut("rte").unwrap().validation.rows = 400;
        let near: Vec<(String, Mark)> = marks(&results, "rte").unwrap();
        assert_eq!(near, [("AdaLoRA".into(), Mark::Par), ("BayesLoRA".into(), Mark::Par)]);
        results.data.get_mut("rte").unwrap().validation.rows = 40_000;
        assert_eq!(marks(&results, "rte").unwrap(), [("BayesLoRA".into(), Mark::Best)]);
        results.runs.retain(|run| run.seed == 1);
        assert_eq!(marks(&results, "rte"), None, "one seed");
    }
}
