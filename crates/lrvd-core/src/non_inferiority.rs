//! Non-inferiority of smaller models to a whole one: a bound of the mean difference on the same rows, and tests in a fixed sequence.

use crate::error::{Error, check_at_least, check_length};

/// Mean difference of the losses of two models on the same rows, with a one-sided bound.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PairedDifference {
    /// Mean over the rows.
    pub mean: f64,
    /// Upper end of the one-sided 95 % interval of the mean over all rows of the kind, for a hundred rows or more.
    ///
    /// ```text
    /// d_0 = max(0, d_1, ..., d_n)                                    one more row as bad as the worst
    /// x̄ + s/√m · (t + max(0, γ)·(1 + 2t²)/(6√m))                     mean, deviation and skewness of d_0, ..., d_n
    /// ```
    ///
    /// with `m = n + 1` and the 95 % quantile `t` of Student's distribution with `n` degrees of freedom. The term in `γ` is
    /// Johnson's correction for skewness: where few rows carry the loss, mean and deviation are too small in the same samples.
    /// Losses that no row of the sample shows are outside of any such bound; `docs/math/pruning.md` has the coverage.
    ///
    /// Source: Johnson: Modified t tests and confidence intervals for asymmetrical populations, 1978; the added row is ours.
    pub upper: f64,
}

impl PairedDifference {
    /// `losses` less `others`, row by row. Rows that are hard for both add nothing to the error.
    ///
    /// # Errors
    ///
    /// There are no rows, or not as many of the others.
    pub fn new(losses: &[f64], others: &[f64]) -> Result<Self, Error> {
        check_at_least("losses", losses.len(), 1)?;
        check_length("others", others.len(), losses.len())?;
        let mut rows: Vec<f64> = losses.iter().zip(others).map(|(x, y)| x - y).collect();
        let mean = rows.iter().sum::<f64>() / rows.len() as f64;
        rows.push(rows.iter().copied().fold(0.0, f64::max));
        let m = rows.len() as f64;
        let center = rows.iter().sum::<f64>() / m;
        let moment = |k: i32| rows.iter().map(|d| (d - center).powi(k)).sum::<f64>() / m;
        let deviation = moment(2).sqrt();
        let skewness = if deviation > 0.0 { moment(3) / deviation.powi(3) } else { 0.0 };
        let error = deviation / (m - 1.0).sqrt();
        let t = student_95(m - 1.0);
        let correction = skewness.max(0.0) * (1.0 + 2.0 * t * t) / (6.0 * m.sqrt());
        Ok(Self { mean, upper: center + error * (t + correction) })
    }
}

/// The 95 % quantile of Student's distribution, by the expansion in `1/degrees`: within 5e-5 from 30 degrees of freedom on.
fn student_95(degrees: f64) -> f64 {
    const Z: f64 = 1.644_853_626_951_472_7;
    let first = (Z.powi(3) + Z) / 4.0;
    let second = (5.0 * Z.powi(5) + 16.0 * Z.powi(3) + 3.0 * Z) / 96.0;
    Z + first / degrees + second / degrees.powi(2)
}

/// Number of tests that pass before the first failure: a test passes if its bound is at most `margin`.
///
/// If the order of the tests is fixed beforehand and each has level 5 %, the probability that a test passes whose true difference
/// is beyond the margin is at most 5 % in all: for that, the first such test of the sequence would have to pass. Tests after the
/// first failure are not computed.
///
/// # Errors
///
/// Errors of the bounds.
///
/// Source: Maurer, Hothorn and Lehmacher, 1995; Westfall and Krishen: Optimally weighted, fixed sequence and gatekeeper multiple
/// testing procedures, 2001.
///
/// # Examples
///
/// ```
/// # use lrvd_core::non_inferiority::passed_in_sequence;
/// let bounds = [0.001, 0.008, 0.02, 0.004].map(Ok::<f64, ()>);
/// assert_eq!(passed_in_sequence(0.01, bounds), Ok(2));
/// ```
pub fn passed_in_sequence<E>(
    margin: f64,
    bounds: impl IntoIterator<Item = Result<f64, E>>,
) -> Result<usize, E> {
    let mut passed = 0;
    for bound in bounds {
        let is_within = bound? <= margin;
        if !is_within {
            break;
        }
        passed += 1;
    }
    Ok(passed)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::noise::{Generator, NoiseKey, Stream};

    #[test]
    fn a_difference_is_paired_by_rows() {
        let others = [1.0; 8];
        let losses = [1.5, 1.0, 0.875, 1.125, 1.0, 1.25, 0.75, 1.125];
        let apart = PairedDifference::new(&losses, &others).unwrap();
        // By numpy 2.4.6, with the expansion of t.
        assert_eq!(apart.mean, 0.078_125);
        assert!((apart.upper - 0.294_826_515_897).abs() < 1e-11, "{apart:?}");
        // Rows that are hard for both add no error.
        let apart = PairedDifference::new(&[9.5, 0.5], &[9.0, 0.0]).unwrap();
        assert_eq!((apart.mean, apart.upper), (0.5, 0.5));
        assert!(PairedDifference::new(&[0.5], &[]).is_err());
        // scipy 1.17.1: stats.t.ppf(.95, [30, 99, 999]).
        for (degrees, t) in [(30.0, 1.697_261), (99.0, 1.660_391), (999.0, 1.646_380)] {
            assert!((student_95(degrees) - t).abs() < 5e-5, "{degrees}");
        }
    }

    /// A draw of mean 0 and deviation 1.
    type Draw = fn(&mut Generator) -> f64;

    fn students_3(draws: &mut Generator) -> f64 {
        let squares: f64 = (0..3).map(|_| draws.normal().powi(2)).sum();
        draws.normal() / squares.sqrt()
    }

    /// Right-skewed, skewness 6.2.
    fn log_normal(draws: &mut Generator) -> f64 {
        let e = std::f64::consts::E;
        (draws.normal().exp() - e.sqrt()) / (e * (e - 1.0)).sqrt()
    }

    /// One row in twenty loses five deviations of the others.
    fn rare_losses(draws: &mut Generator) -> f64 {
        let rare = if draws.uniform() < 0.05 { 5.0 } else { 0.0 };
        (draws.normal() + rare - 0.25) / (1.0 + 25.0 * 0.05 * 0.95_f64).sqrt()
    }

    const DISTRIBUTIONS: [(&str, Draw); 4] = [
        ("normal", Generator::normal),
        ("t with 3 degrees of freedom", students_3),
        ("lognormal", log_normal),
        ("rare losses", rare_losses),
    ];

    /// Share of `trials` in which a size whose true loss is just beyond the margin is kept, where sizes within the margin come
    /// first, and larger losses after it; and the share in which the first size of all, which loses nothing, is kept.
    fn kept(n: usize, trials: usize, draw: Draw, draws: &mut Generator) -> [f64; 2] {
        let margin = 6.0 / (n as f64).sqrt();
        let (mut beyond, mut first) = (0, 0);
        for _ in 0..trials {
            let noise: Vec<f64> = (0..n).map(|_| draw(draws)).collect();
            let sizes =
                [(0.0, 1.0), (0.3, 0.6), (0.5, 0.8), (1.0 + 1e-9, 1.0), (0.9, 1.2), (2.0, 1.5)];
            let bounds = sizes.iter().enumerate().map(|(place, (loss, scale))| {
                // Other rows have the noise of each size, which is as good as new.
                let row = |i: usize| loss * margin + scale * noise[(i + 7 * place) % n];
                let whole = vec![0.0; n];
                let part: Vec<f64> = (0..n).map(row).collect();
                Ok(PairedDifference::new(&part, &whole)?.upper)
            });
            let passed = passed_in_sequence::<Error>(margin, bounds).unwrap();
            beyond += usize::from(passed > 3);
            first += usize::from(passed > 0);
        }
        [beyond, first].map(|count| count as f64 / trials as f64)
    }

    #[test]
    fn a_size_just_beyond_the_margin_is_kept_in_at_most_a_twentieth_of_the_trials() {
        let mut draws = Generator::new(NoiseKey::new(43).on_stream(Stream::DATA));
        for (name, draw) in DISTRIBUTIONS {
            for (n, trials) in [(100, 2000), (200, 1000), (1000, 400)] {
                let [beyond, first] = kept(n, trials, draw, &mut draws);
                // Two standard errors of the simulation.
                let most = 0.05 + 2.0 * (0.05 * 0.95 / trials as f64).sqrt();
                assert!(beyond <= most, "{name}, {n} rows: {beyond}");
                assert!(first > 0.9, "{name}, {n} rows: {first}");
            }
        }
    }
}
