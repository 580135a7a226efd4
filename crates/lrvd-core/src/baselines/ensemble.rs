//! Several trained adapters that answer as one.

use super::error::BaselineError;
use crate::error::check_range;
use crate::metrics::{MetricError, log_softmax, mean_probability, softmax};

/// What is averaged over the members.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum EnsembleAverage {
    /// Probabilities: the mixture of the members' predictions.
    #[default]
    Probabilities,
    /// Logits, as the code published with BLoB does: a geometric mean, more confident where members
    /// agree on a class that each doubts.
    Logits,
}

/// Members' predictions combined into probabilities.
///
/// # Formula
///
/// ```text
/// probabilities:  p = exp( logsumexp_m log_softmax(z_m) − ln M )        logits:  p = softmax( 1/M·Σ_m z_m )
/// ```
///
/// # Shapes
///
/// | Name      | Shape                                 | Unit        |
/// |-----------|---------------------------------------|-------------|
/// | `logits`  | `[n_members, n, n_classes]`           | nats        |
/// | *returns* | `[n, n_classes]`                      | probability |
///
/// # Errors
///
/// [`BaselineError`] for shapes that do not fit, no members or a logit that is not finite.
///
/// # References
///
/// Lakshminarayanan et al. 2017, arXiv:1612.01474; on adapters: Wang et al. 2023, arXiv:2310.00035, and
/// (trained in one pass) `Mühlematter` et al. 2024, arXiv:2405.14438.
///
/// # Examples
///
/// ```
/// # use lrvd_core::baselines::{EnsembleAverage, combine_members};
/// let logits = [2.0, 0.0, -1.0, 0.0];
/// let p = combine_members(&logits, 2, 2, EnsembleAverage::Probabilities)?;
/// assert!((p[0] - 0.574_869).abs() < 1e-6);
/// let p = combine_members(&logits, 2, 2, EnsembleAverage::Logits)?;
/// assert!((p[0] - 0.622_459).abs() < 1e-6);
/// # Ok::<(), lrvd_core::baselines::BaselineError>(())
/// ```
pub fn combine_members(
    logits: &[f64],
    n_members: usize,
    n_classes: usize,
    average: EnsembleAverage,
) -> Result<Vec<f64>, BaselineError> {
    check_range("n_members", n_members as f64, 1.0, f64::MAX)?;
    let log_probabilities = log_softmax(logits, n_classes)?;
    if average == EnsembleAverage::Probabilities {
        return Ok(mean_probability(&log_probabilities, n_members, n_classes)?);
    }
    let size = n_members * n_classes;
    if !logits.len().is_multiple_of(size) {
        let size_name = "n_members x n_classes";
        return Err(
            MetricError::Rows { name: "logits", size_name, size, found: logits.len() }.into()
        );
    }
    // Log-probabilities differ from logits by a constant per row, which the last softmax removes.
    let width = logits.len() / n_members;
    let mut sum = vec![0.0; width];
    for member in log_probabilities.chunks_exact(width) {
        for (sum, value) in sum.iter_mut().zip(member) {
            *sum += value / n_members as f64;
        }
    }
    Ok(softmax(&sum, n_classes)?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn members_stay_with_their_examples() {
        // Two members, two examples; the second example's members are mirror images.
        let logits = [2.0, 0.0, 1.0, -1.0, -1.0, 0.0, -1.0, 1.0];
        let p = combine_members(&logits, 2, 2, EnsembleAverage::Probabilities).unwrap();
        let sigmoid = |z: f64| 1.0 / (1.0 + (-z).exp());
        let first = 0.5 * (sigmoid(2.0) + sigmoid(-1.0));
        for (f, w) in p.iter().zip([first, 1.0 - first, 0.5, 0.5]) {
            assert!((f - w).abs() < 1e-15);
        }
        let p = combine_members(&logits, 2, 2, EnsembleAverage::Logits).unwrap();
        for (f, w) in p.iter().zip([sigmoid(0.5), 1.0 - sigmoid(0.5), 0.5, 0.5]) {
            assert!((f - w).abs() < 1e-15);
        }
    }

    #[test]
    fn one_member_is_itself_and_large_logits_do_not_overflow() {
        for average in [EnsembleAverage::Probabilities, EnsembleAverage::Logits] {
            let p = combine_members(&[1.0, 3.0, 0.5], 1, 3, average).unwrap();
            for (f, w) in p.iter().zip(softmax(&[1.0, 3.0, 0.5], 3).unwrap()) {
                assert!((f - w).abs() < 1e-15);
            }
            let p = combine_members(&[1e4, 0.0, 0.0, 1e4], 2, 2, average).unwrap();
            assert!(p.iter().all(|p| (p - 0.5).abs() < 1e-12), "{p:?}");
        }
    }

    #[test]
    fn wrong_shapes_are_refused() {
        for average in [EnsembleAverage::Probabilities, EnsembleAverage::Logits] {
            assert!(combine_members(&[0.0; 6], 2, 2, average).is_err());
            assert!(combine_members(&[0.0; 4], 0, 2, average).is_err());
            assert!(combine_members(&[], 1, 2, average).is_err());
            assert!(combine_members(&[f64::NAN, 0.0], 1, 2, average).is_err());
        }
    }
}
