//! The divergence of a Gaussian weight from a Gaussian prior of fixed width.

use crate::numeric::width_divergence;

/// KL of `N(mean, std_dev²)` from `N(0, prior_std_dev²)`, nats.
///
/// ```text
/// KL = ln(prior/std_dev) + (std_dev² + mean²) / (2·prior²) − ½
/// ```
///
/// Summed over A with noise on A alone and `p(vec W) = N(vec W0, prior²·c²·[I ⊗ B Bᵀ])`, B of full column rank, this is
/// also the KL of the composed weight: `BLoB`'s prior.
///
/// # Numerics
///
/// Written as `½(t − 1 − ln t) + mean²/(2·prior²)` with `t = (std_dev/prior)²`. A zero standard
/// deviation costs `+inf`.
///
/// # Invariants
///
/// Not negative; 0 only where posterior and prior agree.
///
/// Source: Wang et al. 2024, `BLoB`, arXiv:2406.11675.
pub fn gaussian_kl(mean: f64, std_dev: f64, prior_std_dev: f64) -> f64 {
    let scaled_mean = mean / prior_std_dev;
    width_divergence(std_dev / prior_std_dev) + 0.5 * scaled_mean * scaled_mean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unequal_widths_show_the_direction() {
        // ln(2/0.5) + (0.25 + 1) / 8 − 1/2, the posterior being N(1, 0.5²) and the prior N(0, 2²).
        let kl = gaussian_kl(1.0, 0.5, 2.0);
        assert!((kl - (4.0_f64.ln() + 1.25 / 8.0 - 0.5)).abs() < 1e-15);
        // The other direction would be ln(0.5/2) + (4 + 1) / 0.5 − 1/2 = 8.11.
        assert!((kl - 1.042_544_361_119_890_6).abs() < 1e-12);
    }
}
