//! Temperature scaling, and its shrinkage towards 1 where few rows are held out.

use crate::error::{Error, at_least_one_row, check_all_in, check_finite, check_length};
use crate::special::compensated_sum;

/// Smallest and largest temperature that the maximum of the likelihood is looked for in.
pub const BRACKET: (f64, f64) = (1e-2, 1e2);
/// Rows below which [`shrunk_temperature`] fits none.
pub const FEWEST_ROWS: usize = 20;
/// Standard deviation of `ln T` under the prior of [`shrunk_temperature`], without the share of [`PRIOR_ROWS`].
pub const LOG_STD_DEV: f64 = 0.5;
/// Rows whose information the prior of [`shrunk_temperature`] is worth.
pub const PRIOR_ROWS: f64 = 16.0;
/// Iterations after which the bracket is below rounding even if every one only halves it.
const MAX_ITERATIONS: u32 = 200;
/// End of the search for a shrunk `ln T`, which the prior keeps from being reached.
const REACH: f64 = 512.0;

/// A temperature and the negative log-likelihoods without and with it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TemperatureFit {
    /// The minimizer of the negative log-likelihood within [`BRACKET`].
    pub temperature: f64,
    /// Mean negative log-likelihood at temperature 1, nats.
    pub nll_before: f64,
    /// Mean negative log-likelihood at the fitted temperature, nats.
    pub nll: f64,
    /// `true` if the minimum is outside the bracket, whose nearer end was taken: every label is the most
    /// probable class (the colder the better), or the logits of the labels are on average not above the others.
    pub at_bound: bool,
}

/// The temperature that minimizes the cross-entropy of held-out examples against the shares of their classes: the negative
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
/// Newton's method in `ln b`, kept inside a shrinking bracket by halving it: quadratic near the minimum, never lost.
/// 1 is returned if the slope there is exactly 0: logits that do not depend on the class, or are so far apart that it
/// underflows.
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
    let targets = targets(logits, n_classes, shares)?;
    Ok(fit(logits, n_classes, &targets, 0.0, BRACKET.1.ln()))
}

/// The temperature at the maximum of the posterior of held-out examples under a Gaussian prior on `ln T` around 0; `None` below
/// [`FEWEST_ROWS`] of them.
///
/// ```text
/// n·NLL(1/T) + ½·w·(ln T)²  →  min,      w = 1/LOG_STD_DEV² + PRIOR_ROWS·NLL''(1)
/// ```
///
/// with NLL of [`temperature_scaling`], whose arguments these are. `NLL''(1)`, the mean variance of the logits under their own
/// probabilities, is the information on `ln T` of a row of a calibrated model. The second part of `w` bounds what the fit
/// costs a model that is calibrated already: with `n` rows it loses `½·n/(n + PRIOR_ROWS)²` nats a row at most, on average .008.
/// The first part holds `T` near 1 where the rows have no information, because all answers are right and confident.
///
/// The three numbers are chosen by a simulation of 28 worlds (confident, overconfident, separable, one class, label noise; 2 to
/// 150 classes; 10 to 1,000 rows): the expected NLL of further rows is at most .008 above that of `T = 1` in all of them. From
/// a thousand rows on the result is that of [`temperature_scaling`] for practical purposes. The minimum is the one next to 1
/// on the side to which the objective falls; it is finite and positive.
///
/// # Examples
///
/// ```
/// # use lrvd_core::baselines::shrunk_temperature;
/// // Every answer is right: the likelihood alone would have a temperature of 0.
/// let fit = |rows: usize| shrunk_temperature(&[4.0, 0.0].repeat(rows), 2, &[1.0, 0.0].repeat(rows));
/// assert_eq!(fit(19)?, None);
/// assert!(fit(30)?.is_some_and(|t| (0.8..1.0).contains(&t)));
/// # Ok::<(), lrvd_core::Error>(())
/// ```
pub fn shrunk_temperature(
    logits: &[f64],
    n_classes: usize,
    shares: &[f64],
) -> Result<Option<f64>, Error> {
    let targets = targets(logits, n_classes, shares)?;
    if targets.len() < FEWEST_ROWS {
        return Ok(None);
    }
    let information = Nll::new(logits, n_classes, &targets, 1.0).curvature;
    let precision = LOG_STD_DEV.powi(-2) + PRIOR_ROWS * information;
    Ok(Some(fit(logits, n_classes, &targets, precision, REACH).temperature))
}

/// The mean logit of each row under its shares.
fn targets(logits: &[f64], n_classes: usize, shares: &[f64]) -> Result<Vec<f64>, Error> {
    at_least_one_row("logits", logits.len(), "n_classes", n_classes)?;
    check_finite("logits", logits)?;
    check_length("shares", shares.len(), logits.len())?;
    check_all_in("shares", shares, 0.0, 1.0)?;
    let rows = logits.chunks_exact(n_classes).zip(shares.chunks_exact(n_classes));
    let mean = |(row, shares): (&[f64], &[f64])| row.iter().zip(shares).map(|(z, s)| z * s).sum();
    Ok(rows.map(mean).collect())
}

/// The fit to the mean logit of each row under its shares, with a `precision` of the prior on `ln T`.
fn fit(
    logits: &[f64],
    n_classes: usize,
    targets: &[f64],
    precision: f64,
    reach: f64,
) -> TemperatureFit {
    let at = |inverse| Nll::new(logits, n_classes, targets, inverse);
    let rows = targets.len() as f64;
    let slope = |u: f64| {
        let inverse = u.exp();
        let here = at(inverse);
        let first = inverse * here.slope;
        let second = first + inverse * inverse * here.curvature;
        (rows * first + precision * u, rows * second + precision)
    };
    let (log_inverse, at_bound) = minimize(slope, reach);
    let before = at(1.0);
    let after = at(log_inverse.exp());
    TemperatureFit {
        temperature: (-log_inverse).exp(),
        nll_before: before.value,
        nll: after.value,
        at_bound,
    }
}

/// The point next to 0 where a slope, given with its derivative, changes from falling to rising; `true` if there is none up to
/// `reach`, and the point is the end.
fn minimize(slope: impl Fn(f64) -> (f64, f64), reach: f64) -> (f64, bool) {
    let start = slope(0.0).0;
    if start == 0.0 {
        return (0.0, false);
    }
    let side = -start.signum();
    // A slope that underflowed still falls.
    let falls = |slope: f64| slope * side <= 0.0;
    let mut near = 0.0_f64;
    let mut far = side;
    while falls(slope(far).0) {
        if far.abs() >= reach {
            return (far, true);
        }
        near = far;
        far = side * (2.0 * far.abs()).min(reach);
    }
    let mut u = near;
    for _ in 0..MAX_ITERATIONS {
        let (here, curvature) = slope(u);
        let newton = u - here / curvature;
        // Before the bracket is applied, which would replace a step to its end by one to its middle.
        if here == 0.0 || (newton - u).abs() <= f64::EPSILON * u.abs().max(1.0) {
            break;
        }
        *(if falls(here) { &mut near } else { &mut far }) = u;
        // NaN (no curvature in floating point) is not inside either.
        let is_inside = newton > near.min(far) && newton < near.max(far);
        u = if curvature > 0.0 && is_inside { newton } else { f64::midpoint(near, far) };
    }
    (u, false)
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
        let mean = first / total;
        let square = second / total;
        let target = target - top;
        [total.ln() - inverse * target, mean - target, (square - mean * mean).max(0.0)]
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::noise::{NoiseKey, fill_normal_f64};

    const LOGITS: [f64; 12] = [2.0, -1.0, 0.5, 0.0, 3.0, -2.0, 1.0, 1.5, -0.5, -3.0, 0.25, 4.0];
    const LABELS: [usize; 4] = [0, 1, 0, 1];
    const SHRUNK: f64 = 2.060_455_103;

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
        assert_eq!(found, fit(&LOGITS, 3, &targets, 0.0, BRACKET.1.ln()));
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
        assert!((right.temperature / BRACKET.0 - 1.0).abs() < 1e-14 && right.at_bound);
        let wrong = of_labels(&[1.0, 0.0, 0.0, 2.0], 2, &[1, 0]);
        assert!((wrong.temperature / BRACKET.1 - 1.0).abs() < 1e-14 && wrong.at_bound);
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

    /// Rows of `classes` classes with logits `scale·signal·(signal·1[label] + normal)`, calibrated for a scale of 1; of the share
    /// `noise` of the rows the label is another one. All labels are 0 if `one_class`.
    struct World {
        name: &'static str,
        classes: usize,
        signal: f64,
        scale: f64,
        noise: f64,
        one_class: bool,
    }

    impl World {
        fn draw(&self, seed: u64, rows: usize) -> (Vec<f64>, Vec<f64>) {
            let mut numbers = vec![0.0; rows * (self.classes + 3)];
            fill_normal_f64(NoiseKey::new(seed), 0, &mut numbers);
            // A uniform number from a normal one, by the fraction of a large multiple.
            let class = |z: f64| ((z * 1e4).rem_euclid(1.0) * self.classes as f64) as usize;
            let mut logits = Vec::new();
            let mut labels = Vec::new();
            for row in numbers.chunks_exact(self.classes + 3) {
                let (rest, z) = row.split_at(3);
                let label = if self.one_class { 0 } else { class(rest[0]) };
                let of = |(c, z): (usize, &f64)| {
                    let own = if c == label { self.signal } else { 0.0 };
                    self.scale * self.signal * (own + z)
                };
                logits.extend(z.iter().enumerate().map(of));
                let is_noise = (rest[1] * 1e4).rem_euclid(1.0) < self.noise;
                labels.push(if is_noise { class(rest[2]) } else { label });
            }
            (logits, one_hot(&labels, self.classes))
        }

        /// The NLL of `rows` further rows by `ln T` in steps of a hundredth from −5 to 5.
        fn further(&self, rows: usize) -> Vec<f64> {
            let (logits, shares) = self.draw(0, rows);
            let targets = targets(&logits, self.classes, &shares).unwrap();
            let nll = |k: i32| {
                Nll::new(&logits, self.classes, &targets, (-f64::from(k) / 100.0).exp()).value
            };
            (-500..=500).map(nll).collect()
        }
    }

    #[test]
    fn few_rows_cost_a_hundredth_of_a_nat_at_most_and_many_give_the_likelihoods_temperature() {
        let world = |name, classes, signal, scale, noise, one_class| World {
            name,
            classes,
            signal,
            scale,
            noise,
            one_class,
        };
        for world in [
            world("confident", 2, 3.0, 1.0, 0.0, false),
            world("easy", 12, 5.0, 1.0, 0.0, false),
            world("hard", 2, 1.0, 1.0, 0.0, false),
            world("hard", 20, 2.0, 1.0, 0.0, false),
            world("overconfident", 2, 1.5, 3.0, 0.0, false),
            world("overconfident", 10, 3.0, 2.0, 0.0, false),
            world("underconfident", 2, 3.0, 0.4, 0.0, false),
            world("label noise", 2, 5.0, 1.0, 0.02, false),
            world("separable", 2, 8.0, 1.0, 0.0, false),
            world("separable, not confident", 2, 8.0, 0.02, 0.0, false),
            world("one class", 2, 2.0, 1.0, 0.0, true),
            world("one class, overconfident", 2, 1.0, 4.0, 0.0, true),
        ] {
            let further = world.further(4000);
            let nll =
                |t: f64| further[((t.ln() * 100.0).round() as i32 + 500).clamp(0, 1000) as usize];
            for (rows, trials) in [(5, 10), (10, 10), (30, 600), (100, 250), (300, 80), (1000, 25)]
            {
                let mut excess = 0.0;
                for trial in 0..trials {
                    let (logits, shares) = world.draw(1 + trial * 10_007 + rows as u64, rows);
                    let shrunk = shrunk_temperature(&logits, world.classes, &shares).unwrap();
                    assert_eq!(shrunk.is_none(), rows < FEWEST_ROWS);
                    let shrunk = shrunk.unwrap_or(1.0);
                    assert!((1e-2..1e2).contains(&shrunk), "{} {rows}: {shrunk}", world.name);
                    excess += (nll(shrunk) - nll(1.0)) / trials as f64;
                    let fit = temperature_scaling(&logits, world.classes, &shares).unwrap();
                    if rows == 1000 && !fit.at_bound {
                        let worse = nll(shrunk) - nll(fit.temperature);
                        assert!(worse < 0.006, "{}: {worse}, {shrunk}, {fit:?}", world.name);
                    }
                }
                assert!(excess < 0.01, "{} {} {rows}: {excess}", world.name, world.classes);
                let gains = world.scale > 1.0 && rows >= 100;
                assert!(excess < -0.02 || !gains, "{} {rows}: {excess}", world.name);
            }
        }
    }

    #[test]
    fn rows_that_are_all_right_leave_the_temperature_near_one() {
        // 62 held-out rows of 12 intents, all right with a probability of .9999: the likelihood ends at its bound.
        let logits = [vec![11.6], vec![0.0; 11]].concat().repeat(62);
        let labels = one_hot(&[0; 62], 12);
        assert!(temperature_scaling(&logits, 12, &labels).unwrap().at_bound);
        let shrunk = shrunk_temperature(&logits, 12, &labels).unwrap().unwrap();
        assert!((0.95..1.0).contains(&shrunk), "{shrunk}");
        // The same where logits have no spread, and where every answer is wrong for sure.
        let flat = shrunk_temperature(&[0.3; 80], 2, &one_hot(&[1; 40], 2)).unwrap();
        assert_eq!(flat, Some(1.0));
        let wrong = shrunk_temperature(&[60.0, 0.0].repeat(40), 2, &one_hot(&[1; 40], 2));
        let wrong = wrong.unwrap().unwrap();
        assert!((10.0..1e3).contains(&wrong), "{wrong}");
    }

    /// `scipy.optimize.minimize_scalar` of the objective in `ln T`, written out with `scipy.special.logsumexp`.
    #[test]
    fn the_shrunk_temperature_is_the_minimum_of_its_objective() {
        let logits: Vec<f64> = (0..72).map(|i| 3.0 * f64::from(i * i % 17).sin()).collect();
        let labels: Vec<usize> = (0..24).map(|i| i * 5 % 3).collect();
        let found = shrunk_temperature(&logits, 3, &one_hot(&labels, 3)).unwrap().unwrap();
        assert!((found - SHRUNK).abs() < 1e-7, "{found}");
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
