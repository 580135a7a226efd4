//! Confidence of a choice or a score, as one number.

use crate::error::{Error, check_all_in, check_at_least};

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
    let mode = super::argmax_rows(probabilities, probabilities.len())?[0] as f64;
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

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
