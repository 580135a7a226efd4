//! Probabilities from Gaussian logits.

use super::curvature::CurvatureBlock;
use crate::error::{Error, check_at_least, check_finite, check_length, check_range};
use crate::linalg::Cholesky;
use crate::metrics::{log_softmax, mean_probability, softmax};

/// Added to the diagonal of a covariance before its root is taken, as the published code does; also
/// serves the degenerate directions of a covariance whose rows sum to 0.
const JITTER: f64 = 1e-6;

/// The covariance of one example's logits, gathered block by block.
#[derive(Debug, Clone, PartialEq)]
pub struct LogitCovariance {
    n_classes: usize,
    values: Vec<f64>,
}

impl LogitCovariance {
    /// Zero.
    pub fn new(n_classes: usize) -> Self {
        Self { n_classes, values: vec![0.0; n_classes * n_classes] }
    }

    /// Adds one LoRA matrix's share, `J_W P_W⁻¹ J_Wᵀ`.
    ///
    /// `jacobian [n_classes, d_output, d_input]` holds the gradient of every logit by the matrix; it is
    /// not kept.
    pub fn add(
        &mut self,
        block: &CurvatureBlock,
        jacobian: &[f64],
        prior_precision: f64,
    ) -> Result<(), Error> {
        let share = block.covariance(jacobian, self.n_classes, prior_precision)?;
        for (sum, share) in self.values.iter_mut().zip(share) {
            *sum += share;
        }
        Ok(())
    }

    /// The covariance, `[n_classes, n_classes]`, row-major.
    pub fn values(&self) -> &[f64] {
        &self.values
    }
}

/// Average softmax of Gaussian logits.
///
/// ```text
/// p = 1/n·Σ_t softmax(f + L·z_t),     L·Lᵀ = Σ + 1e-6·I
/// ```
///
/// # Shapes
///
/// | Name         | Shape                    | Unit            |
/// |--------------|--------------------------|-----------------|
/// | `logits`     | `[n_classes]`            | nats            |
/// | `covariance` | `[n_classes, n_classes]` | nats²           |
/// | `normals`    | `[n_draws, n_classes]`   | standard normal |
/// | *returns*    | `[n_classes]`            | probability     |
///
/// # Errors
///
/// No draws, or a covariance that is not positive definite even with the jitter.
pub fn monte_carlo_softmax(
    logits: &[f64],
    covariance: &[f64],
    normals: &[f64],
) -> Result<Vec<f64>, Error> {
    let n_classes = check(logits, covariance)?;
    let mut jittered = covariance.to_vec();
    for value in jittered.iter_mut().step_by(n_classes + 1) {
        *value += JITTER;
    }
    let root = Cholesky::new("covariance", &jittered, n_classes)?;
    let n_draws = normals.len() / n_classes;
    check_length("normals", normals.len(), n_draws * n_classes)?;
    let draws: Vec<f64> = normals
        .chunks_exact(n_classes)
        .flat_map(|z| root.lower_times(z).into_iter().zip(logits).map(|(v, f)| f + v))
        .collect();
    if draws.is_empty() {
        return Err(Error::length("normals", 0, "at least 1"));
    }
    mean_probability(&log_softmax(&draws, n_classes)?, n_draws, n_classes)
}

/// Softmax of logits shrunk by their own variance.
///
/// ```text
/// p = softmax(f_c / √(1 + π/8·Σ_cc))
/// ```
///
/// `logits` and the result are `[n_classes]`, `covariance` is `[n_classes, n_classes]`.
///
/// Source: `MacKay` 1992; for several classes: Gibbs 1998.
pub fn probit_softmax(logits: &[f64], covariance: &[f64]) -> Result<Vec<f64>, Error> {
    let n_classes = check(logits, covariance)?;
    let mut shrunk = Vec::with_capacity(n_classes);
    for (c, &logit) in logits.iter().enumerate() {
        let variance = covariance[c * (n_classes + 1)];
        check_range("variance", variance, 0.0..)?;
        shrunk.push(logit / (1.0 + std::f64::consts::PI / 8.0 * variance).sqrt());
    }
    softmax(&shrunk, n_classes)
}

/// Mean of the Dirichlet whose Laplace approximation in logit space is this Gaussian.
///
/// First the part of the Gaussian that softmax ignores is conditioned away (`1` the vector of ones):
///
/// ```text
/// f' = f − Σ1·(1ᵀf)/(1ᵀΣ1),     Σ' = Σ − Σ1 1ᵀΣ/(1ᵀΣ1)
/// a_c = (1 − 2/C + exp(f'_c)/C²·Σ_k exp(−f'_k)) / Σ'_cc,     p = a/Σ a
/// ```
///
/// # Errors
///
/// The covariance leaves nothing to condition on, or no variance.
///
/// `exp(f'_c)·Σ exp(−f'_k)` is computed as `Σ exp(f'_c − f'_k)`; it overflows for logits 700 apart.
///
/// Source: Hobbhahn et al. 2022, arXiv:2003.01227.
pub fn laplace_bridge(logits: &[f64], covariance: &[f64]) -> Result<Vec<f64>, Error> {
    let n_classes = check(logits, covariance)?;
    let undefined = |reason| Error::undefined("laplace_bridge", format!("is undefined: {reason}"));
    let row_sums: Vec<f64> = covariance.chunks(n_classes).map(|row| row.iter().sum()).collect();
    let total: f64 = row_sums.iter().sum();
    if !(total > 0.0 && total.is_finite()) {
        return Err(undefined("the sum of the covariance is not positive"));
    }
    let shift = logits.iter().sum::<f64>() / total;
    let centred: Vec<f64> = logits.iter().zip(&row_sums).map(|(f, s)| f - s * shift).collect();
    let classes = n_classes as f64;
    let mut strengths = Vec::with_capacity(n_classes);
    for (c, &f) in centred.iter().enumerate() {
        let variance = covariance[c * (n_classes + 1)] - row_sums[c] * row_sums[c] / total;
        if !(variance > 0.0 && variance.is_finite()) {
            return Err(undefined("a class has no variance"));
        }
        let ratios: f64 = centred.iter().map(|g| (f - g).exp()).sum();
        strengths.push((1.0 - 2.0 / classes + ratios / (classes * classes)) / variance);
    }
    let total: f64 = strengths.iter().sum();
    if !total.is_finite() {
        return Err(undefined("logits too far apart"));
    }
    Ok(strengths.into_iter().map(|a| a / total).collect())
}

/// Number of classes, after checking shapes and logits.
fn check(logits: &[f64], covariance: &[f64]) -> Result<usize, Error> {
    let n_classes = logits.len();
    check_at_least("logits", n_classes, 1)?;
    check_finite("logits", logits)?;
    check_length("covariance", covariance.len(), n_classes * n_classes)?;
    Ok(n_classes)
}
