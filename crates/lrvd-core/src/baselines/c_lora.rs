//! C-LoRA: an adapter whose uncertainty depends on its input.
//!
//! Between the two factors is an `r x r` Gaussian matrix. A small network computes its mean and its standard deviations
//! from the down-projected token:
//!
//! ```text
//! z = A·x                                                         [rank]
//! o = w2·relu(w1·z + b1) + b2                                     [2·rank²]
//! mean = o[..rank²],   std_dev = logistic(o[rank²..])²            both [rank, rank], row-major
//! E = mean + std_dev ∘ noise,   out = scaling · B·E·z
//! ```
//!
//! Source: Rahmati et al. 2025, C-LoRA, arXiv:2505.17773, and its code.

use crate::error::{Error, check_length, check_range};
use crate::special::{compensated_sum, softplus};

/// Width of the hidden layer in the published code.
pub const HIDDEN: usize = 64;
/// Width of the prior on every entry of `E`.
pub const PRIOR_STD_DEV: f64 = 0.2;

/// Divergence of one token's `E` from `N(0, prior_std_dev²)` on every entry, nats.
///
/// With `std_dev = logistic(raw_std_dev)²`:
///
/// ```text
/// KL = Σ_ij ln(prior/std_dev) + (std_dev² + mean²)/(2·prior²) − ½
/// ```
///
/// Direction: posterior from prior. The published objective adds the **sum** over all tokens of all modules, padding
/// included, times `π_i·10⁻⁶/65`.
///
/// `mean` and `raw_std_dev` are the two halves of `o`, `[rank²]`.
///
/// `ln std_dev = −2·softplus(−raw_std_dev)`, so a standard deviation that underflows has a finite divergence.
pub fn context_kl(mean: &[f64], raw_std_dev: &[f64], prior_std_dev: f64) -> Result<f64, Error> {
    check_length("raw_std_dev", raw_std_dev.len(), mean.len())?;
    check_range("prior_std_dev", prior_std_dev, f64::MIN_POSITIVE, f64::MAX)?;
    let entry = |(&mean, &raw_std_dev): (&f64, &f64)| {
        let log_ratio = -2.0 * softplus(-raw_std_dev) - prior_std_dev.ln();
        let scaled_mean = mean / prior_std_dev;
        0.5 * (2.0 * log_ratio).exp_m1() - log_ratio + 0.5 * scaled_mean * scaled_mean
    };
    Ok(compensated_sum(mean.iter().zip(raw_std_dev).map(entry)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_underflowing_scale_has_a_finite_divergence() {
        // logistic(−800)² underflows; its logarithm is −1600.
        let kl = context_kl(&[0.0], &[-800.0], 0.2).unwrap();
        assert!((kl - (1600.0 + 0.2_f64.ln() - 0.5)).abs() < 1e-12, "{kl}");
        assert!(context_kl(&[0.0], &[], 0.2).is_err() && context_kl(&[0.0], &[0.0], 0.0).is_err());
    }
}
