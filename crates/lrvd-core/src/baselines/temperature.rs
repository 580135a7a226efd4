//! Temperature scaling.

use crate::error::{Error, check_all_in, check_finite, check_length, some_rows};
use crate::special::compensated_sum;

/// Smallest and largest temperature that is looked at.
pub const BRACKET: (f64, f64) = (1e-2, 1e2);
/// Iterations after which the bracket is below rounding even if every one only halves it.
const MAX_ITERATIONS: u32 = 200;

/// A temperature and what it is worth.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TemperatureFit {
    /// The minimiser of the negative log-likelihood within [`BRACKET`].
    pub temperature: f64,
    /// Mean negative log-likelihood at temperature 1, nats.
    pub nll_before: f64,
    /// Mean negative log-likelihood at the fitted temperature, nats.
    pub nll: f64,
    /// Whether the minimum lies outside the bracket, whose nearer end was taken: every label is the most
    /// probable class (the colder the better), or the logits of the labels are on average not above the others.
    pub at_bound: bool,
}

/// The temperature that minimises the cross-entropy of held-out examples against the shares of their classes: the negative
/// log-likelihood where one class has all.
///
/// With `b = 1/T` and shares `s`, the mean over examples
///
/// ```text
/// NLL(b)  = ln Σ_c exp(b·z_c) − b·E_s[z]        NLL'(b) = E_p[z] − E_s[z]        NLL''(b) = Var_p[z] ≥ 0
/// ```
///
/// is convex in `b`, so its minimum is the one zero of `NLL'`.
///
/// `logits` and `shares` are `[n, n_classes]`, row-major; the shares of a row sum to 1.
///
/// Newton's method in `b`, kept inside a shrinking bracket by halving it in `ln T`: quadratic near the
/// minimum, never lost. Where the slope at 1 is exactly 0 (logits that do not depend on the class, or so far
/// apart that it underflows), 1 is returned.
///
/// Source: Guo et al. 2017, arXiv:1706.04599.
///
/// # Examples
///
/// ```
/// # use lrvd_core::baselines::temperature_scaling;
/// // Logit difference 4, but right in 3 of 4 cases: ln 3 is what it should have been.
/// let fit = temperature_scaling(&[4.0, 0.0], 2, &[0.75, 0.25])?;
/// assert!((fit.temperature - 4.0 / 3.0_f64.ln()).abs() < 1e-12);
/// # Ok::<(), lrvd_core::Error>(())
/// ```
pub fn temperature_scaling(
    logits: &[f64],
    n_classes: usize,
    shares: &[f64],
) -> Result<TemperatureFit, Error> {
    some_rows("logits", logits.len(), "n_classes", n_classes)?;
    check_finite("logits", logits)?;
    check_length("shares", shares.len(), logits.len())?;
    check_all_in("shares", shares, 0.0, 1.0)?;
    let rows = logits.chunks_exact(n_classes).zip(shares.chunks_exact(n_classes));
    let mean = |(row, shares): (&[f64], &[f64])| row.iter().zip(shares).map(|(z, s)| z * s).sum();
    Ok(fit(logits, n_classes, &rows.map(mean).collect::<Vec<f64>>()))
}

/// The fit to the mean logit of each row under its target.
fn fit(logits: &[f64], n_classes: usize, targets: &[f64]) -> TemperatureFit {
    let at = |inverse| Nll::new(logits, n_classes, targets, inverse);
    let (inverse, at_bound) = minimise(at);
    let (before, after) = (at(1.0), at(inverse));
    TemperatureFit {
        temperature: 1.0 / inverse,
        nll_before: before.value,
        nll: after.value,
        at_bound,
    }
}

/// The zero of an increasing slope in `1/BRACKET`, and whether there is none.
fn minimise(at: impl Fn(f64) -> Nll) -> (f64, bool) {
    let (mut low, mut high) = (1.0 / BRACKET.1, 1.0 / BRACKET.0);
    let mut inverse = 1.0_f64;
    if at(inverse).slope == 0.0 {
        return (inverse, false);
    }
    if at(low).slope >= 0.0 {
        return (low, true);
    }
    if at(high).slope <= 0.0 {
        return (high, true);
    }
    for _ in 0..MAX_ITERATIONS {
        let here = at(inverse);
        let newton = inverse - here.slope / here.curvature;
        // Before the bracket is applied, which would replace a step to its end by one to its middle.
        if here.slope == 0.0 || (newton - inverse).abs() <= f64::EPSILON * inverse {
            break;
        }
        *(if here.slope > 0.0 { &mut high } else { &mut low }) = inverse;
        // NaN (no curvature in floating point) is not inside either.
        inverse = if newton > low && newton < high { newton } else { (low * high).sqrt() };
    }
    (inverse, false)
}

/// The objective and its derivatives with respect to `1/T`, means over examples.
struct Nll {
    value: f64,
    slope: f64,
    curvature: f64,
}

impl Nll {
    fn new(logits: &[f64], n_classes: usize, targets: &[f64], inverse: f64) -> Self {
        let rows: Vec<[f64; 3]> = logits
            .chunks_exact(n_classes)
            .zip(targets)
            .map(|(row, &target)| Self::of_row(row, target, inverse))
            .collect();
        let mean = |k: usize| compensated_sum(rows.iter().map(|r| r[k])) / rows.len() as f64;
        Self { value: mean(0), slope: mean(1), curvature: mean(2) }
    }

    /// Value, slope and curvature of one example, relative to its largest logit.
    fn of_row(row: &[f64], target: f64, inverse: f64) -> [f64; 3] {
        let top = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let (mut total, mut first, mut second) = (0.0, 0.0, 0.0);
        for z in row.iter().map(|z| z - top) {
            let share = (inverse * z).exp();
            total += share;
            first += share * z;
            second += share * z * z;
        }
        let (mean, square) = (first / total, second / total);
        let target = target - top;
        [total.ln() - inverse * target, mean - target, (square - mean * mean).max(0.0)]
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const LOGITS: [f64; 12] = [2.0, -1.0, 0.5, 0.0, 3.0, -2.0, 1.0, 1.5, -0.5, -3.0, 0.25, 4.0];
    const LABELS: [usize; 4] = [0, 1, 0, 1];

    fn one_hot(labels: &[usize], n_classes: usize) -> Vec<f64> {
        let row = |&label| (0..n_classes).map(move |class| f64::from(class == label));
        labels.iter().flat_map(row).collect()
    }

    fn of_labels(logits: &[f64], n_classes: usize, labels: &[usize]) -> TemperatureFit {
        temperature_scaling(logits, n_classes, &one_hot(labels, n_classes)).unwrap()
    }

    #[test]
    fn two_classes_in_closed_form() {
        // Logit difference a, right k of n times: T = a/ln(k/(n − k)).
        for (a, right, n) in [(4.0, 3, 4), (0.5, 9, 10), (30.0, 99, 100), (0.01, 51, 100)] {
            let labels: Vec<usize> = (0..n).map(|i| usize::from(i >= right)).collect();
            let fit = of_labels(&[a, 0.0].repeat(n), 2, &labels);
            let share = right as f64 / n as f64;
            let expected = a / (share / (1.0 - share)).ln();
            assert!((fit.temperature / expected - 1.0).abs() < 1e-11, "{fit:?} {expected}");
            let entropy = -share * share.ln() - (1.0 - share) * (1.0 - share).ln();
            assert!((fit.nll - entropy).abs() < 1e-13);
            assert!(fit.nll <= fit.nll_before && !fit.at_bound);
        }
    }

    #[test]
    fn the_slope_vanishes_and_its_derivatives_are_difference_quotients() {
        let found = of_labels(&LOGITS, 3, &LABELS);
        let targets: Vec<f64> = LABELS.iter().enumerate().map(|(i, y)| LOGITS[3 * i + y]).collect();
        // Bit for bit: what a class without a share adds is 0.
        assert_eq!(found, fit(&LOGITS, 3, &targets));
        let at = |b: f64| Nll::new(&LOGITS, 3, &targets, b);
        assert!(at(1.0 / found.temperature).slope.abs() < 1e-14);
        for b in [0.2, 0.9, 2.5] {
            let h = 6e-6;
            let slope = (at(b + h).value - at(b - h).value) / (2.0 * h);
            let curvature = (at(b + h).slope - at(b - h).slope) / (2.0 * h);
            assert!((at(b).slope - slope).abs() < 1e-9);
            assert!((at(b).curvature - curvature).abs() < 1e-9);
        }
        for factor in [0.9, 1.1] {
            assert!(at(factor / found.temperature).value > found.nll);
        }
    }

    #[test]
    fn minima_outside_the_bracket_end_at_its_nearer_side() {
        let right = of_labels(&[1.0, 0.0, 0.0, 2.0], 2, &[0, 1]);
        assert!((right.temperature / BRACKET.0 - 1.0).abs() < 1e-15 && right.at_bound);
        let wrong = of_labels(&[1.0, 0.0, 0.0, 2.0], 2, &[1, 0]);
        assert!((wrong.temperature / BRACKET.1 - 1.0).abs() < 1e-15 && wrong.at_bound);
        let flat = of_labels(&[0.3; 4], 2, &[0, 1]);
        assert_eq!((flat.temperature, flat.at_bound), (1.0, false));
    }

    #[test]
    fn shares_are_as_good_as_rows_of_each_class_in_their_number() {
        // Three votes for the first class and one for the second: one row with shares, or four rows.
        let (row, votes) = ([4.0, 0.0, -1.0], [0, 0, 0, 1]);
        let rows = of_labels(&row.repeat(4), 3, &votes);
        let shares = temperature_scaling(&row, 3, &[0.75, 0.25, 0.0]).unwrap();
        assert!((shares.temperature / rows.temperature - 1.0).abs() < 1e-12, "{shares:?} {rows:?}");
        assert!((shares.nll - rows.nll).abs() < 1e-13);
    }

    #[test]
    fn what_cannot_be_fitted_is_an_error() {
        let empty = temperature_scaling(&[], 2, &[]);
        assert_eq!(empty, Err(Error::length("logits", 0, "at least 1")));
        let shares = one_hot(&LABELS, 3);
        for (logits, classes, shares) in [
            (&LOGITS[..], 3, &shares[..9]),
            (&LOGITS, 5, &shares),
            (&LOGITS, 0, &shares),
            (&LOGITS[..3], 3, &[1.5, -0.5, 0.0]),
            (&[f64::INFINITY, 0.0], 2, &[1.0, 0.0]),
        ] {
            assert!(temperature_scaling(logits, classes, shares).is_err());
        }
    }
}
