//! Comparisons of the methods of a table: every pair in a metric on a task, paired by seed and, where the answers are recorded,
//! by evaluation row.
//!
//! The formulas are those of [`lrvd_core::metrics::Difference`]; `docs/math/statistics.md` states all procedures. The family
//! of Holm's correction is a column of a table: all pairs of methods in one metric on one task.

pub(super) use lrvd_core::metrics::{Difference, LEVEL, holm};
use serde::Serialize;

use super::metric::{Better, Metric, Spread};
use super::summary::{Summary, key};

/// Largest distance between a recorded score and the mean of its rows: further apart, they are not of the same answers.
const SAME: f64 = 1e-6;

/// The difference of `metric` on `task` between two methods; a method without draws has one answer at every number of them.
///
/// Over seeds alone where the scores of rows are not recorded, or do not give the recorded score (soft labels).
pub(super) fn difference(
    summary: &Summary<'_>,
    (metric, task): (Metric, &str),
    (of, from): (&str, &str),
) -> Option<Difference> {
    let [own, other] = [of, from].map(|method| summary.answer(metric, method, task));
    let (metric, own) = own?;
    let (other_metric, other) = other?;
    let pairs: Vec<(u64, f64)> = own
        .by_seed
        .iter()
        .filter_map(|(seed, value)| Some((*seed, value - other.by_seed.get(seed)?)))
        .collect();
    let rows = |method, seed: u64, metric, spread: &Spread| {
        let rows = summary.rows.0.get(&key(summary.choice, task, method, seed, metric))?;
        let mean = rows.iter().sum::<f64>() / rows.len() as f64;
        ((mean - spread.by_seed.get(&seed)?).abs() < SAME).then_some(rows)
    };
    let by_row = |seed: u64| {
        let own = rows(of, seed, metric, own)?;
        let other = rows(from, seed, other_metric, other)?;
        let same = own.len() == other.len();
        same.then(|| own.iter().zip(other).map(|(a, b)| a - b).collect::<Vec<f64>>())
    };
    match pairs.iter().map(|(seed, _)| by_row(*seed)).collect::<Option<Vec<_>>>() {
        Some(rows) => Difference::from_rows(&rows),
        None => Difference::from_seeds(&pairs.iter().map(|(_, d)| *d).collect::<Vec<_>>()),
    }
}

/// Mark of a method in a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Mark {
    /// Significantly better than every other method that has a number.
    Best,
    /// The best mean, or not shown to differ from it.
    NotSeparable,
}

/// Two methods, the better mean first.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pair<'a> {
    pub(super) of: &'a str,
    pub(super) from: &'a str,
    /// The difference and its probability by Holm's correction for all pairs of the column; `None` if it cannot be tested.
    pub(super) tested: Option<(Difference, f64)>,
}

impl Pair<'_> {
    pub(super) fn differs(&self) -> bool {
        self.tested.is_some_and(|(_, p)| p < LEVEL)
    }

    pub(super) fn has(&self, method: &str) -> bool {
        self.of == method || self.from == method
    }
}

/// All methods of a task in one metric.
pub(super) struct Column<'a, 's> {
    /// Methods with a number and its seeds, the best mean first.
    pub(super) ranked: Vec<(&'a str, &'s Spread)>,
    /// Methods without a number.
    pub(super) absent: Vec<&'a str>,
    /// Every pair of the ranked methods.
    pub(super) pairs: Vec<Pair<'a>>,
}

impl<'a, 's> Column<'a, 's> {
    /// Compares all pairs of methods; none with fewer than two numbers, no pair that can be tested for want of seeds, or no
    /// direction in which the metric improves.
    pub(super) fn new(summary: &'s Summary<'a>, metric: Metric, task: &str) -> Option<Self> {
        let sign = match metric.fact().better {
            Better::Higher => 1.0,
            Better::Lower => -1.0,
            Better::Neither => return None,
        };
        let spread = |method: &'a str| {
            summary.answer(metric, method, task).map(|(_, s)| s).filter(|s| s.mean.is_finite())
        };
        let (found, absent): (Vec<&'a str>, Vec<&'a str>) =
            summary.methods.iter().copied().partition(|method| spread(method).is_some());
        let mut ranked: Vec<(&str, &Spread)> =
            found.into_iter().filter_map(|method| Some((method, spread(method)?))).collect();
        ranked.sort_by(|a, b| (sign * b.1.mean).total_cmp(&(sign * a.1.mean)));
        if ranked.iter().filter(|(_, spread)| spread.n() > 1).count() < 2 {
            return None;
        }
        let places = || (0..ranked.len()).flat_map(|j| (0..j).map(move |i| (i, j)));
        let found: Vec<_> = places()
            .map(|(i, j)| {
                let of = ranked[i].0;
                let from = ranked[j].0;
                (of, from, difference(summary, (metric, task), (of, from)))
            })
            .collect();
        let p: Vec<f64> = found.iter().filter_map(|(.., d)| d.map(Difference::p)).collect();
        let mut adjusted = holm(&p).into_iter();
        let pair = |(of, from, d): (&'a str, &'a str, Option<Difference>)| Pair {
            of,
            from,
            tested: d.and_then(|d| Some((d, adjusted.next()?))),
        };
        let pairs = found.into_iter().map(pair).collect();
        Some(Self { ranked, absent, pairs })
    }

    /// The method with the best mean, if it differs from every other one that has a number.
    pub(super) fn best(&self) -> Option<&'a str> {
        let (top, _) = self.ranked[0];
        self.pairs.iter().filter(|pair| pair.has(top)).all(Pair::differs).then_some(top)
    }

    /// The marks by method; empty if no pair was tested.
    pub(super) fn marks(&self) -> Vec<(&'a str, Mark)> {
        let (top, _) = self.ranked[0];
        if let Some(best) = self.best() {
            return vec![(best, Mark::Best)];
        }
        if self.pairs.iter().all(|pair| pair.tested.is_none()) {
            return Vec::new();
        }
        let apart =
            |method: &str| self.pairs.iter().any(|p| p.has(top) && p.has(method) && p.differs());
        let methods = self.ranked.iter().map(|(method, _)| *method);
        methods.filter(|m| *m == top || !apart(m)).map(|m| (m, Mark::NotSeparable)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::summary::RowScores;
    use super::*;
    use crate::record::Results;
    use crate::record::sample::{sample_results, set_accuracy};
    use crate::settings::CheckpointChoice::Last;

    fn marks(results: &Results) -> Option<String> {
        let summary = Summary::of_last(results);
        let marks = Column::new(&summary, Metric::ACCURACY, "rte")?.marks();
        let words: Vec<String> =
            marks.iter().map(|(name, mark)| format!("{name} {mark:?}")).collect();
        Some(words.join(", "))
    }

    #[test]
    fn marks_are_for_the_best_alone_or_for_all_that_are_not_shown_to_differ_from_it() {
        let mut results = sample_results();
        let accuracies = [
            ("LoRA", [0.50, 0.51, 0.49]),
            ("AdaLoRA", [0.86, 0.90, 0.88]),
            ("BayesLoRA", [0.90, 0.905, 0.895]),
        ];
        set_accuracy(&mut results, "rte", 0.5, accuracies);
        assert_eq!(marks(&results).unwrap(), "BayesLoRA NotSeparable, AdaLoRA NotSeparable");
        set_accuracy(&mut results, "rte", 0.5, [("AdaLoRA", [0.80, 0.811, 0.789])]);
        assert_eq!(marks(&results).unwrap(), "BayesLoRA Best");
        // A method of one seed cannot be tested: with the best mean or another one, no method is the best.
        for value in [1.0, 0.5] {
            let mut results = results.clone();
            results.runs.retain(|run| run.method != "LoRA" || run.seed == 1);
            set_accuracy(&mut results, "rte", 0.5, [("LoRA", [value; 3])]);
            let expected = if value == 1.0 {
                "LoRA NotSeparable, BayesLoRA NotSeparable, AdaLoRA NotSeparable"
            } else {
                "BayesLoRA NotSeparable, LoRA NotSeparable"
            };
            assert_eq!(marks(&results).unwrap(), expected);
        }
        results.runs.retain(|run| run.seed == 1);
        assert_eq!(marks(&results), None, "one seed");
    }

    #[test]
    fn a_pair_below_the_best_is_tested_too() {
        // The best method varies, so that it differs from none; the two others differ by .021 in all seeds but a thousandth.
        let mut results = sample_results();
        let accuracies = [
            ("BayesLoRA", [0.97, 0.86, 0.915]),
            ("LoRA", [0.908, 0.907, 0.909]),
            ("AdaLoRA", [0.887, 0.8865, 0.8875]),
        ];
        set_accuracy(&mut results, "rte", 0.5, accuracies);
        let summary = Summary::of_last(&results);
        let column = Column::new(&summary, Metric::ACCURACY, "rte").unwrap();
        let differ: Vec<_> =
            column.pairs.iter().filter(|p| p.differs()).map(|p| (p.of, p.from)).collect();
        assert_eq!(differ, [("LoRA", "AdaLoRA")]);
        assert_eq!((column.best(), column.marks().len()), (None, 3));
        // scipy.stats.t: .0205 to .0215 by .0005 are 72.75 standard errors; three times its p.
        let (_, p) = column.pairs.iter().find(|p| p.differs()).unwrap().tested.unwrap();
        assert!((p - 3.0 * 1.889_109_301_8e-4).abs() < 1e-8, "{p}");
    }

    #[test]
    fn rows_count_where_they_are_known() {
        let mut results = sample_results();
        set_accuracy(&mut results, "rte", 0.5, [("LoRA", [0.5; 3]), ("BayesLoRA", [0.9; 3])]);
        let metric = Metric::ACCURACY;
        let found = |rows: &RowScores| {
            let summary = Summary::new(&results, rows);
            difference(&summary, (metric, "rte"), ("BayesLoRA", "LoRA"))
        };
        assert_eq!(found(&RowScores::default()), None, "seeds that agree");
        let mut rows = RowScores::default();
        for seed in 1..=3 {
            for (method, n) in [("LoRA", 5), ("BayesLoRA", 9)] {
                let right = (0..10).map(|i| f64::from(u8::from(i < n)));
                rows.0.insert(key(Last, "rte", method, seed, metric), right.collect());
            }
        }
        // √(0.4 · 0.6 · 10/9 / 10): the seeds agree, and ten rows are few.
        let with_rows = found(&rows).unwrap();
        assert!((with_rows.error() - (0.4_f64 * 0.6 / 9.0).sqrt()).abs() < 1e-12);
        assert!(with_rows.has_rows() && (0.01..0.05).contains(&with_rows.p()), "{with_rows:?}");
        // Rows whose mean is not the recorded score are other answers.
        rows.0.values_mut().for_each(|rows| rows[9] = 0.5);
        assert_eq!(found(&rows), None);
    }
}
