//! Probabilities from logits, averaged over Monte Carlo draws, with their uncertainty and confidence.

use crate::error::{
    Error, at_least_one_row, check_all_in, check_at_least, check_finite, check_range,
};

/// Largest distance of a row's sum from 1. Wide enough for a softmax in `f32` over tens of thousands of classes,
/// narrow enough to catch logits, percentages and dropped columns.
pub const ROW_SUM_TOLERANCE: f64 = 1e-4;

/// Logarithm of the softmax of every row: `z_c − ln Σ_k exp z_k`, computed relative to the row's largest logit.
pub fn log_softmax(logits: &[f64], n_classes: usize) -> Result<Vec<f64>, Error> {
    at_least_one_row("logits", logits.len(), "n_classes", n_classes)?;
    check_finite("logits", logits)?;
    let mut out = logits.to_vec();
    for row in out.chunks_exact_mut(n_classes) {
        let largest = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        // Differences first: a large logit would leave no digits of the sum.
        for value in &mut *row {
            *value -= largest;
        }
        let total = log_sum_exp(row.iter().copied());
        for value in row {
            *value -= total;
        }
    }
    Ok(out)
}

/// Softmax of every row.
pub fn softmax(logits: &[f64], n_classes: usize) -> Result<Vec<f64>, Error> {
    Ok(log_softmax(logits, n_classes)?.into_iter().map(f64::exp).collect())
}

/// Average of the draws' probabilities.
///
/// ```text
/// ln p̂[n,c] = logsumexp_t log_probabilities[t,n,c] − ln n_draws
/// ```
///
/// Probabilities are averaged, not logits.
/// `log_probabilities` is `[n_draws, n, n_classes]`, row-major, in nats, the result `[n, n_classes]`.
///
/// # Errors
///
/// A NaN, a log-probability above 0 (by more than [`ROW_SUM_TOLERANCE`]), or a row that is not a distribution. A
/// log-probability of `−inf` is a probability of 0.
///
/// # Examples
///
/// ```
/// use lrvd_core::metrics::{log_softmax, mean_probability};
///
/// // Two draws for one example.
/// let log_probabilities = log_softmax(&[2.0, 0.0, -1.0, 0.0], 2)?;
/// let p = mean_probability(&log_probabilities, 2, 2)?;
/// assert!((p[0] - 0.574_869).abs() < 1e-6 && (p[1] - 0.425_131).abs() < 1e-6);
/// # Ok::<(), lrvd_core::Error>(())
/// ```
pub fn mean_probability(
    log_probabilities: &[f64],
    n_draws: usize,
    n_classes: usize,
) -> Result<Vec<f64>, Error> {
    let width = draw_width(log_probabilities, n_draws, n_classes)?;
    Ok(log_mean(log_probabilities, n_draws, width).into_iter().map(f64::exp).collect())
}

/// Uncertainty of every example, and the part of it that is about the model itself.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Uncertainty {
    /// Entropy of the averaged prediction: total uncertainty, in nats.
    pub predictive_entropy: Vec<f64>,
    /// Average entropy of the draws: what is left if the weights were known, in nats.
    pub expected_entropy: Vec<f64>,
    /// Their difference: disagreement among the draws, in nats.
    pub mutual_information: Vec<f64>,
}

/// Splits the predictive entropy of every example.
///
/// ```text
/// H[p̂] = E_t H[p_t] + I,      I ≥ 0,   0 for a single draw
/// ```
///
/// `log_probabilities` is `[n_draws, n, n_classes]`, row-major, in nats; the results are `[n]`.
///
/// Rounding may leave the difference some `1e-16` below 0 when the draws agree; it is raised to 0.
///
/// Source: Depeweg et al. 2018, arXiv:1710.07283; Houlsby et al. 2011, arXiv:1112.5745.
pub fn uncertainty(
    log_probabilities: &[f64],
    n_draws: usize,
    n_classes: usize,
) -> Result<Uncertainty, Error> {
    let width = draw_width(log_probabilities, n_draws, n_classes)?;
    let log_mean = log_mean(log_probabilities, n_draws, width);
    let predictive_entropy: Vec<f64> =
        log_mean.chunks_exact(n_classes).map(entropy_of_logs).collect();
    let mut expected_entropy = vec![0.0; predictive_entropy.len()];
    for draw in log_probabilities.chunks_exact(width) {
        for (sum, row) in expected_entropy.iter_mut().zip(draw.chunks_exact(n_classes)) {
            *sum += entropy_of_logs(row);
        }
    }
    for sum in &mut expected_entropy {
        *sum /= n_draws as f64;
    }
    let pairs = predictive_entropy.iter().zip(&expected_entropy);
    let mutual_information = pairs.map(|(total, expected)| (total - expected).max(0.0)).collect();
    Ok(Uncertainty { predictive_entropy, expected_entropy, mutual_information })
}

/// Free energy of every row at temperature 1, averaged over draws: larger for inputs unlike the training texts.
///
/// ```text
/// E[n] = −(1/n_draws) Σ_t ln Σ_c exp logits[t,n,c]
/// ```
///
/// `logits` is `[n_draws, n, n_classes]`, row-major; the result is `[n]`.
///
/// Source: Liu et al. 2020, arXiv:2010.03759.
pub fn free_energy(logits: &[f64], n_draws: usize, n_classes: usize) -> Result<Vec<f64>, Error> {
    let n = check_draws("logits", logits.len(), n_draws, n_classes)?;
    check_finite("logits", logits)?;
    let mut energy = vec![0.0; n];
    for (row, values) in logits.chunks_exact(n_classes).enumerate() {
        energy[row % n] -= log_sum_exp(values.iter().copied()) / n_draws as f64;
    }
    Ok(energy)
}

/// The largest entry of every row of `[n, n_classes]` scores (logits or probabilities); ties go to the lowest.
pub fn argmax_rows(scores: &[f64], n_classes: usize) -> Result<Vec<usize>, Error> {
    at_least_one_row("scores", scores.len(), "n_classes", n_classes)?;
    check_finite("scores", scores)?;
    Ok(scores.chunks_exact(n_classes).map(argmax).collect())
}

/// Confidence of a choice among `n` options: how far the largest probability is above that of a guess.
///
/// ```text
/// (p_max − 1/n) / (1 − 1/n)                       0 of a uniform row, 1 of a certain one
/// ```
///
/// `probabilities` is one row of at least two.
pub fn choice_confidence(probabilities: &[f64]) -> Result<f64, Error> {
    let n = check_row(probabilities)?;
    let most = probabilities.iter().copied().fold(0.0, f64::max);
    Ok(((most - 1.0 / n) / (1.0 - 1.0 / n)).clamp(0.0, 1.0))
}

/// Confidence of a score on levels `0..n`: how close its probabilities are to their mode, against a uniform row's
/// distance from its centre.
///
/// ```text
/// max(0, 1 − Σ_i p_i·|i − mode| / u),      u = 1/n·Σ_i |i − (n − 1)/2|
/// ```
///
/// The mode is the first of the most probable levels. `probabilities` is one row of at least two.
pub fn score_confidence(probabilities: &[f64]) -> Result<f64, Error> {
    let n = check_row(probabilities)?;
    let mode = argmax_rows(probabilities, probabilities.len())?[0] as f64;
    let levels = || (0..probabilities.len()).map(|level| level as f64);
    let spread: f64 = levels().zip(probabilities).map(|(i, p)| p * (i - mode).abs()).sum();
    let uniform = levels().map(|i| (i - (n - 1.0) / 2.0).abs()).sum::<f64>() / n;
    Ok((1.0 - spread / uniform).clamp(0.0, 1.0))
}

/// Expected level `Σ_i i·p_i` of one row.
pub fn expected_level(probabilities: &[f64]) -> f64 {
    probabilities.iter().enumerate().map(|(level, p)| level as f64 * p).sum()
}

fn check_row(probabilities: &[f64]) -> Result<f64, Error> {
    check_at_least("probabilities", probabilities.len(), 2)?;
    check_all_in("probabilities", probabilities, 0.0, 1.0)?;
    Ok(probabilities.len() as f64)
}

pub(super) fn argmax(row: &[f64]) -> usize {
    (1..row.len()).fold(0, |best, c| if row[c] > row[best] { c } else { best })
}

/// Values of one draw, after checking shapes and rows.
fn draw_width(log_probabilities: &[f64], n_draws: usize, n_classes: usize) -> Result<usize, Error> {
    const NAME: &str = "log_probabilities";
    let n = check_draws(NAME, log_probabilities.len(), n_draws, n_classes)?;
    check_all_in(NAME, log_probabilities, f64::NEG_INFINITY, ROW_SUM_TOLERANCE)?;
    for (row, values) in log_probabilities.chunks_exact(n_classes).enumerate() {
        check_row_sum(NAME, row, values.iter().map(|value| value.exp()).sum())?;
    }
    Ok(n * n_classes)
}

/// The number of rows of each draw in `len` values, `[n_draws, n, n_classes]`.
fn check_draws(name: &str, len: usize, n_draws: usize, n_classes: usize) -> Result<usize, Error> {
    check_range("n_draws", n_draws, 1..)?;
    let rows = at_least_one_row(name, len, "n_classes", n_classes)?;
    if !rows.is_multiple_of(n_draws) {
        let expected = format!("a multiple of `n_draws x n_classes` = {}", n_draws * n_classes);
        return Err(Error::length(name, len, expected));
    }
    Ok(rows / n_draws)
}

pub(super) fn check_row_sum(name: &str, row: usize, sum: f64) -> Result<(), Error> {
    if (sum - 1.0).abs() > ROW_SUM_TOLERANCE {
        let expected = format!("1 within {ROW_SUM_TOLERANCE}");
        return Err(Error::entry(format!("row sum of {name}"), row, sum, expected));
    }
    Ok(())
}

/// Log of the mean over draws of `width` values each.
fn log_mean(log_probabilities: &[f64], n_draws: usize, width: usize) -> Vec<f64> {
    let log_draws = (n_draws as f64).ln();
    (0..width)
        .map(|i| {
            let draws = log_probabilities.iter().skip(i).step_by(width).copied();
            log_sum_exp(draws) - log_draws
        })
        .collect()
}

/// `ln Σ exp`, relative to the largest value; `−inf` if all values are.
fn log_sum_exp(values: impl Iterator<Item = f64> + Clone) -> f64 {
    let largest = values.clone().fold(f64::NEG_INFINITY, f64::max);
    if largest == f64::NEG_INFINITY {
        return largest;
    }
    largest + values.map(|value| (value - largest).exp()).sum::<f64>().ln()
}

fn entropy_of_logs(row: &[f64]) -> f64 {
    let terms = row.iter().filter(|&&log_p| log_p > f64::NEG_INFINITY);
    // `0 −` instead of a sign, so that a certain prediction has entropy 0 and not −0.
    0.0 - terms.map(|log_p| log_p.exp() * log_p).sum::<f64>()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::testing::assert_near;

    const LN_2: f64 = std::f64::consts::LN_2;

    #[test]
    fn softmax_survives_large_logits() {
        let log_probabilities = log_softmax(&[1000.0, 0.0, -1e308, 1e308], 2).unwrap();
        assert_eq!(log_probabilities[..2], [0.0, -1000.0]);
        assert_eq!(log_probabilities[3], 0.0);
        assert!(log_softmax(&[f64::NAN, 0.0], 2).is_err());
        assert!(log_softmax(&[f64::INFINITY, 0.0], 2).is_err());
    }

    #[test]
    fn disagreement_is_mutual_information() {
        // Example 0: draws certain of different classes. Example 1: both draws undecided.
        let half = 0.5f64.ln();
        let never = f64::NEG_INFINITY;
        let log_probabilities = [0.0, never, half, half, never, 0.0, half, half];
        let split = uncertainty(&log_probabilities, 2, 2).unwrap();
        assert_near(&split.predictive_entropy, &[LN_2, LN_2], 1e-15);
        assert_near(&split.expected_entropy, &[0.0, LN_2], 1e-15);
        assert_near(&split.mutual_information, &[LN_2, 0.0], 1e-15);
        // A certain answer has entropy 0, not −0.
        let certain = uncertainty(&[0.0, never], 1, 2).unwrap().predictive_entropy[0];
        assert!(certain == 0.0 && certain.is_sign_positive());
    }

    #[test]
    fn energies_are_averaged_over_draws() {
        // ln(e + e⁻² + e^½), ln(e³ + 2), ln 3, ln(2e² + e⁻¹); two draws of two rows.
        let logits = [1.0, -2.0, 0.5, 3.0, 0.0, 0.0, 0.0, 0.0, 0.0, 2.0, 2.0, -1.0];
        let expected = [-1.301_604_595_505_196_7, -2.906_329_437_543_831_8];
        assert_near(&free_energy(&logits, 2, 3).unwrap(), &expected, 1e-15);
        assert!(free_energy(&logits, 3, 3).is_err());
        let large = free_energy(&[1000.0, 0.0], 1, 2).unwrap();
        assert_eq!(large, [-1000.0]);
    }

    #[test]
    fn ties_go_to_the_lowest_class() {
        assert_eq!(argmax_rows(&[1.0, 1.0, 0.0, -2.0, 3.0, 3.0], 3).unwrap(), [0, 1]);
        assert!(matches!(argmax_rows(&[1.0, f64::NAN], 2), Err(Error::Entry { .. })));
    }

    #[test]
    fn mistakes_are_named() {
        let half = 0.5f64.ln();
        let error_of = |p: &[f64], t, c| mean_probability(p, t, c).unwrap_err();
        let name = "log_probabilities";
        for (error, message) in [
            (error_of(&[half; 2], 0, 2), "`n_draws` is 0, expected at least 1"),
            (error_of(&[half; 2], 1, 0), "`n_classes` is 0, expected at least 1"),
            (
                error_of(&[half; 6], 2, 2),
                &format!("`{name}` has length 6, expected a multiple of `n_draws x n_classes` = 4"),
            ),
            (
                error_of(&[half, 0.1], 1, 2),
                &format!("`{name}` is 0.1 at index 1, expected -inf..=0.0001"),
            ),
            (
                error_of(&[half, f64::NAN], 1, 2),
                &format!("`{name}` is NaN at index 1, expected -inf..=0.0001"),
            ),
        ] {
            assert_eq!(error.to_string(), message);
        }
        let sum = error_of(&[half, -0.1], 1, 2).to_string();
        assert!(sum.starts_with("`row sum of log_probabilities` is 1.4"), "{sum}");
        assert!(sum.ends_with("at index 0, expected 1 within 0.0001"), "{sum}");
    }

    /// Values of `choice_confidence` and `score_confidence` of the Python package jevcompat 0.1.1.
    #[test]
    fn confidences_are_those_of_the_published_checker() {
        for (row, choice, score) in [
            (&[0.88, 0.12][..], 0.76, 0.76),
            (&[0.5, 0.3, 0.2], 0.25, 0.0),
            (&[0.25; 4], 0.0, 0.0),
            (&[0.0, 1.0, 0.0], 1.0, 1.0),
            (&[0.1, 0.49, 0.41], 0.235, 0.235),
            (&[0.05, 0.05, 0.1, 0.2, 0.6], 0.5, 0.375),
            (&[0.3, 0.2, 0.2, 0.3], 0.066_666_666_666_666_65, 0.0),
        ] {
            assert!((choice_confidence(row).unwrap() - choice).abs() < 1e-12, "{row:?}");
            assert!((score_confidence(row).unwrap() - score).abs() < 1e-12, "{row:?}");
        }
        assert!((expected_level(&[0.1, 0.49, 0.41]) - 1.31).abs() < 1e-12);
        assert!(choice_confidence(&[1.0]).is_err() && score_confidence(&[0.5, 1.5]).is_err());
    }
}
