//! Which differences are significant: one rule for the marks of tables, the sentences below them and the claims of arms.
//!
//! A difference `d[s][r]` is one method's score less another's with the same seed `s` and, where the answers to every
//! row were recorded, on the same evaluation row `r`. Seeds and rows are both samples (crossed random effects):
//!
//! ```text
//! d[s][r] = μ + seed[s] + row[r] + e[s][r]            s = 1..S, r = 1..R
//!
//! A = R/(S−1) Σ_s (d̄[s] − d̄)²      B = S/(R−1) Σ_r (d̄[r] − d̄)²
//! E = Σ_sr (d[s][r] − d̄[s] − d̄[r] + d̄)² / ((S−1)(R−1))
//!
//! var(d̄) = (A + max(B − E, 0)) / (S R)
//! ```
//!
//! `A / (S R)` is the variance between seeds, `(B − E) / (S R)` what the choice of rows adds to it. Without rows, or for
//! a score that is not a mean over rows, `A / (S R)` alone remains, which is `s² / S`. Degrees of freedom by
//! Satterthwaite: `(A + B − E)² / (A²/(S−1) + B²/(R−1) + E²/((S−1)(R−1)))`, and `S − 1` without a contribution of rows.
//!
//! A difference is significant if its two-sided 95 % interval of Student's distribution leaves out 0, after Holm's
//! correction for all comparisons of a family: the rivals of the best method in one column of a table, or all claims of a
//! page. "No worse by more than a margin" needs the one-sided 95 % bound. One seed gives no interval, and neither do
//! seeds that all show the same difference. In simulations with normal errors the interval covers the mean in 94 to 95 %
//! of cases with three to five seeds, and in 90 to 95 % with two.
//!
//! References: Satterthwaite 1946; Holm 1979; Searle et al. 1992, Variance components, chapter 4.

use serde::Serialize;
use statrs::distribution::{ContinuousCDF as _, StudentsT};

use super::metric::{Better, Metric};
use super::summary::{Summary, key};

/// Probability of an error that a verdict accepts.
pub(super) const LEVEL: f64 = 0.05;

/// A mean difference between two methods, with what is known of its error.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Difference {
    pub(super) mean: f64,
    pub(super) error: f64,
    freedom: f64,
}

impl Difference {
    pub(super) fn of_seeds(seeds: &[f64]) -> Option<Self> {
        Self::of_rows(&seeds.iter().map(|d| vec![*d]).collect::<Vec<_>>())
    }

    /// Of differences `[seed][row]`, as many rows for every seed. None below two seeds, for differences that are not
    /// finite, and where they do not vary.
    pub(super) fn of_rows(d: &[Vec<f64>]) -> Option<Self> {
        let (seeds, rows) = (d.len(), d.first()?.len());
        if seeds < 2 || rows == 0 || d.iter().any(|own| own.len() != rows) {
            return None;
        }
        let (s, r) = (seeds as f64, rows as f64);
        let of_seed: Vec<f64> = d.iter().map(|own| own.iter().sum::<f64>() / r).collect();
        let of_row: Vec<f64> =
            (0..rows).map(|i| d.iter().map(|own| own[i]).sum::<f64>() / s).collect();
        let mean = of_seed.iter().sum::<f64>() / s;
        let squares = |means: &[f64]| means.iter().map(|m| (m - mean).powi(2)).sum::<f64>();
        let a = r * squares(&of_seed) / (s - 1.0);
        let (mut added, mut of_rows) = (0.0, 0.0);
        if rows > 1 {
            let rest = d.iter().zip(&of_seed).flat_map(|(own, seed)| {
                own.iter().zip(&of_row).map(move |(d, row)| (d - seed - row + mean).powi(2))
            });
            let b = s * squares(&of_row) / (r - 1.0);
            let e = rest.sum::<f64>() / ((s - 1.0) * (r - 1.0));
            if b > e {
                added = b - e;
                of_rows = b * b / (r - 1.0) + e * e / ((s - 1.0) * (r - 1.0));
            }
        }
        let error = ((a + added) / (s * r)).sqrt();
        let freedom = (a + added).powi(2) / (a * a / (s - 1.0) + of_rows);
        let usable = mean.is_finite() && error > f64::EPSILON * mean.abs() && freedom.is_finite();
        usable.then_some(Self { mean, error, freedom })
    }

    fn student(self) -> Option<StudentsT> {
        StudentsT::new(0.0, 1.0, self.freedom).ok()
    }

    /// Quantile of the two-sided interval, by halving the range of the distribution function: `statrs`' own has five digits,
    /// and is 1.83 in place of 1.96 at ten million degrees of freedom.
    fn quantile(self) -> f64 {
        let Some(student) = self.student() else { return f64::INFINITY };
        let is_inside = |t: f64| student.cdf(-t) > LEVEL / 2.0;
        let mut low = 0.0;
        let mut high = 2.0;
        while is_inside(high) && high < f64::MAX / 2.0 {
            high *= 2.0;
        }
        for _ in 0..80 {
            let middle = f64::midpoint(low, high);
            *(if is_inside(middle) { &mut low } else { &mut high }) = middle;
        }
        high
    }

    pub(super) fn interval(self) -> (f64, f64) {
        let quantile = self.quantile();
        (self.mean - quantile * self.error, self.mean + quantile * self.error)
    }

    /// Two-sided probability of a mean so far from 0 if there is no difference.
    pub(super) fn p(self) -> f64 {
        self.student().map_or(1.0, |t| 2.0 * t.cdf(-(self.mean / self.error).abs()))
    }

    /// One-sided probability of a mean so far below `bound` if the true one is not below it.
    pub(super) fn p_below(self, bound: f64) -> f64 {
        self.student().map_or(1.0, |t| t.cdf((self.mean - bound) / self.error))
    }

    /// The same of a mean above `bound`.
    pub(super) fn p_above(self, bound: f64) -> f64 {
        Self { mean: -self.mean, ..self }.p_below(-bound)
    }
}

/// Probabilities of a family of comparisons, adjusted by Holm's method: significant is what stays below the level.
pub(super) fn holm(p: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|&a, &b| p[a].total_cmp(&p[b]));
    let mut adjusted = vec![0.0; p.len()];
    let mut largest = 0.0_f64;
    for (place, &index) in order.iter().enumerate() {
        largest = largest.max(((p.len() - place) as f64 * p[index]).min(1.0));
        adjusted[index] = largest;
    }
    adjusted
}

/// The difference of `metric` on `task` between two methods, paired by seed and, where recorded, by row; a method without
/// draws has one answer at every number of them.
pub(super) fn difference(
    summary: &Summary<'_>,
    (metric, task): (Metric, &str),
    (of, from): (&str, &str),
) -> Option<Difference> {
    let [own, other] = [of, from].map(|method| summary.answer(metric, method, task));
    let ((metric, own), (other_metric, other)) = (own?, other?);
    let pairs: Vec<(u64, f64)> = own
        .by_seed
        .iter()
        .filter_map(|(seed, value)| Some((*seed, value - other.by_seed.get(seed)?)))
        .collect();
    let by_row = |seed: u64| {
        let rows =
            |method, metric| summary.rows.0.get(&key(summary.choice, task, method, seed, metric));
        let (own, other) = (rows(of, metric)?, rows(from, other_metric)?);
        let same = own.len() == other.len();
        same.then(|| own.iter().zip(other).map(|(a, b)| a - b).collect::<Vec<f64>>())
    };
    match pairs.iter().map(|(seed, _)| by_row(*seed)).collect::<Option<Vec<_>>>() {
        Some(rows) => Difference::of_rows(&rows),
        None => Difference::of_seeds(&pairs.iter().map(|(_, d)| *d).collect::<Vec<_>>()),
    }
}

/// What can be said of a method among its rivals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mark {
    /// Significantly better than all others.
    Best,
    /// Not significantly different from the best.
    Par,
}

pub(super) struct Rival<'a> {
    pub(super) method: &'a str,
    pub(super) mean: f64,
    /// Its score less that of the best; none for the best itself, and where it cannot be tested.
    pub(super) difference: Option<Difference>,
    /// Whether it is the best or not significantly different from it.
    pub(super) near: bool,
}

/// Compares the methods of a task that have a metric with at least two seeds, each by its answer at the metric's draws or,
/// where it draws nothing, its only one: the best one first. None where there is nothing to compare, or no direction in
/// which the metric improves.
pub(super) fn standing<'a>(
    summary: &Summary<'a>,
    metric: Metric,
    task: &str,
) -> Option<Vec<Rival<'a>>> {
    let sign = match metric.fact().better {
        Better::Higher => 1.0,
        Better::Lower => -1.0,
        Better::Neither => return None,
    };
    let mean = |method: &&'a str| {
        let (_, spread) = summary.answer(metric, method, task)?;
        (spread.n() > 1 && spread.mean.is_finite()).then_some((*method, spread.mean))
    };
    let mut means: Vec<(&str, f64)> = summary.methods.iter().filter_map(mean).collect();
    means.sort_by(|a, b| (sign * b.1).total_cmp(&(sign * a.1)));
    let (&(best, top), rivals) = means.split_first().filter(|(_, rivals)| !rivals.is_empty())?;
    let found: Vec<Option<Difference>> = rivals
        .iter()
        .map(|(method, _)| difference(summary, (metric, task), (method, best)))
        .collect();
    let p: Vec<f64> = found.iter().map(|d| d.map_or(1.0, Difference::p)).collect();
    // What prints alike is alike.
    let least = 0.5 * 10_f64.powi(-(metric.fact().unit.decimals().0 as i32));
    let first = Rival { method: best, mean: top, difference: None, near: true };
    let rest = rivals.iter().zip(found).zip(holm(&p)).map(|((&(method, mean), d), p)| Rival {
        method,
        mean,
        difference: d,
        near: p > LEVEL || d.is_none_or(|d| d.mean.abs() <= least),
    });
    Some(std::iter::once(first).chain(rest).collect())
}

/// The marks by method: one best, or all that do not differ significantly from the best.
pub(super) fn marks<'a>(ranked: &[Rival<'a>]) -> Vec<(&'a str, Mark)> {
    let near = || ranked.iter().filter(|rival| rival.near);
    let mark = if near().count() == 1 { Mark::Best } else { Mark::Par };
    near().map(|rival| (rival.method, mark)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::summary::RowScores;
    use super::*;
    use crate::record::Results;
    use crate::record::sample::{sample_results, set_accuracy};
    use crate::settings::CheckpointChoice::Last;

    fn near(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-9, "{found}, expected {expected}");
    }

    #[test]
    fn intervals_are_those_of_scipy() {
        // numpy for the mean squares, scipy.stats.t for the rest.
        let d = Difference::of_seeds(&[-0.03, -0.01, -0.02]).unwrap();
        near(d.error, 0.005773502691896258);
        near(d.interval().0, -0.0448413771175033);
        near(d.interval().1, 0.0048413771175033);
        near(d.p(), 0.07417990022744855);
        near(d.p_below(0.01), 0.017549359322992328);
        near(Difference { mean: 0.02, ..d }.p_above(-0.01), 0.017549359322992328);
        let d = Difference::of_rows(&[
            vec![0.10, -0.30, 0.25, 0.40, 0.05],
            vec![0.20, -0.10, 0.30, 0.55, -0.05],
            vec![0.05, -0.25, 0.45, 0.30, 0.15],
        ])
        .unwrap();
        near(d.mean, 0.14);
        near(d.error, 0.11075498483890767);
        near(d.freedom, 3.837896049424701);
        near(d.interval().0, -0.17269582628131208);
        near(d.p(), 0.2775316216887911);
        // Rows that vary less than their residuals add nothing.
        let d =
            Difference::of_rows(&[vec![0.3, 0.1, 0.2], vec![0.1, 0.3, 0.15], vec![0.6, 0.5, 0.61]])
                .unwrap();
        near(d.error, 0.12620285453913932);
        near(d.freedom, 2.0);
        near(d.interval().0, -0.22522927880722426);
    }

    /// Two-sided `p` of `t` standard errors: the regularised incomplete beta function of mpmath 1.4.1 with 40 digits; quantiles by
    /// `scipy.stats.t.isf(.025, freedom)`.
    #[test]
    fn students_tails_hold_for_any_degrees_of_freedom() {
        for (freedom, quantile, tails) in [
            (
                1.0,
                12.706204736174705,
                [0.9993633804398389, 0.12566591637800237, 0.015912179824051628],
            ),
            (
                3.8,
                2.8350358793212047,
                [0.9992523908078161, 0.008557623012044427, 3.943880660237238e-6],
            ),
            (
                30.0,
                2.042272456301238,
                [0.9992087357664851, 2.3296685467007796e-5, 1.3726045194406403e-27],
            ),
            (
                1e3,
                1.9623390808264085,
                [0.9992023150184527, 6.767256364648631e-7, 1.0478852155173361e-209],
            ),
            (1e5, 1.95998770753461, [0.9992021175668878, 5.742701678641673e-7, 0.0]),
            (1e7, 1.9599642217672055, [0.999202115592125, 5.733128075008539e-7, 0.0]),
        ] {
            let of = |t: f64| Difference { mean: -t, error: 1.0, freedom };
            for (t, expected) in [1e-3, 5.0, 40.0].into_iter().zip(tails) {
                let allowed = 1e-6 * expected + 1e-300;
                assert!((of(t).p() - expected).abs() <= allowed, "{t} {freedom}: {}", of(t).p());
            }
            let (low, high) = of(0.0).interval();
            assert!((high / quantile - 1.0).abs() < 1e-6 && low == -high, "{freedom}: {high}");
        }
    }

    /// `p.adjust(p, "holm")` of R, by hand: multiples of the rank, at most 1, never falling.
    #[test]
    fn holms_probabilities_stay_between_nothing_and_one() {
        assert_eq!(holm(&[0.5, 0.0, 0.25]), [0.5, 0.0, 0.5]);
        assert_eq!(holm(&[1.0, 1e-320, 0.7]), [1.0, 3.0 * 1e-320, 1.0]);
        assert_eq!((holm(&[]), holm(&[0.04])), (Vec::new(), vec![0.04]));
    }

    #[test]
    fn two_seeds_need_twelve_standard_errors_and_without_variation_there_is_no_test() {
        // qt(0.975, 1) = 12.706 standard errors of 0.01.
        let p = |mean: f64| Difference::of_seeds(&[mean - 0.01, mean + 0.01]).unwrap().p();
        assert!(p(0.127) > LEVEL && p(0.1271) < LEVEL);
        let seeds: [&[f64]; 3] = [&[0.5], &[0.5, 0.5], &[0.5, f64::NAN]];
        assert_eq!(seeds.map(Difference::of_seeds), [None; 3]);
        assert_eq!(Difference::of_rows(&[vec![1.0, 2.0], vec![1.0]]), None, "other rows");
        assert_eq!(Difference::of_rows(&[]), None);
    }

    #[test]
    fn marks_are_for_the_best_alone_or_for_all_that_are_near_it() {
        let mut results = sample_results();
        let accuracies = [
            ("LoRA", [0.50, 0.51, 0.49]),
            ("AdaLoRA", [0.86, 0.90, 0.88]),
            ("BayesLoRA", [0.90, 0.905, 0.895]),
        ];
        set_accuracy(&mut results, "rte", 0.5, accuracies);
        let found = |results: &Results| {
            let ranked = standing(&Summary::of_last(results), Metric::ACCURACY, "rte")?;
            Some(marks(&ranked).iter().map(|(name, mark)| format!("{name} {mark:?}")).collect())
        };
        let near: Vec<String> = found(&results).unwrap();
        assert_eq!(near, ["BayesLoRA Par", "AdaLoRA Par"]);
        set_accuracy(&mut results, "rte", 0.5, [("AdaLoRA", [0.80, 0.81, 0.79])]);
        assert_eq!(found(&results).unwrap(), ["BayesLoRA Best"]);
        results.runs.retain(|run| run.seed == 1);
        assert_eq!(found(&results), None, "one seed");
    }

    #[test]
    fn rows_count_where_they_are_known() {
        let mut results = sample_results();
        // Seeds agree to a thousandth on what four rows out of ten decide.
        let accuracies = [("LoRA", [0.5, 0.501, 0.502]), ("BayesLoRA", [0.9, 0.902, 0.901])];
        set_accuracy(&mut results, "rte", 0.5, accuracies);
        let metric = Metric::ACCURACY;
        let found = |rows: &RowScores| {
            let summary = Summary::new(&results, rows, Last);
            difference(&summary, (metric, "rte"), ("BayesLoRA", "LoRA")).unwrap()
        };
        assert!(found(&RowScores::default()).p() < 1e-4);
        let mut rows = RowScores::default();
        for seed in 1..=3 {
            for (method, n) in [("LoRA", 5), ("BayesLoRA", 9)] {
                let right = (0..10).map(|i| f64::from(u8::from(i < n)));
                rows.0.insert(key(Last, "rte", method, seed, metric), right.collect());
            }
        }
        // √(0.4 · 0.6 · 10/9 / 10): the seeds agree, and ten rows say little.
        let with_rows = found(&rows);
        near(with_rows.error, (0.4_f64 * 0.6 / 9.0).sqrt());
        assert!((0.01..0.05).contains(&with_rows.p()), "{with_rows:?}");
    }
}
