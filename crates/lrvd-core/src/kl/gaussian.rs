//! The cost of a Gaussian weight under a Gaussian prior of fixed width.

use crate::error::{Error, check_length, check_range};
use crate::factor::FactorView;
use crate::numeric::{compensated_sum, width_divergence};

/// KL of one Gaussian from a zero-mean Gaussian, with its derivatives.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GaussianKl {
    /// Nats.
    pub value: f64,
    /// Derivative with respect to the posterior mean.
    pub by_mean: f64,
    /// Derivative with respect to the posterior standard deviation.
    pub by_std_dev: f64,
    /// Derivative with respect to the posterior log-variance.
    pub by_log_variance: f64,
}

/// KL of `N(mean, std_dev²)` from `N(0, prior_std_dev²)`.
///
/// # Formula
///
/// ```text
/// KL = ln(prior/std_dev) + (std_dev² + mean²) / (2·prior²) − ½
/// ```
///
/// # Numerics
///
/// Written as `½(t − 1 − ln t) + mean²/(2·prior²)` with `t = (std_dev/prior)²`. A zero standard
/// deviation costs `+inf`.
///
/// # Invariants
///
/// Not negative; 0 only where posterior and prior agree.
pub fn gaussian_kl(mean: f64, std_dev: f64, prior_std_dev: f64) -> GaussianKl {
    let ratio = std_dev / prior_std_dev;
    let excess = ratio * ratio - 1.0;
    let scaled_mean = mean / prior_std_dev;
    GaussianKl {
        value: width_divergence(ratio) + 0.5 * scaled_mean * scaled_mean,
        by_mean: scaled_mean / prior_std_dev,
        by_std_dev: ratio / prior_std_dev - 1.0 / std_dev,
        by_log_variance: 0.5 * excess,
    }
}

/// KL of one factor with a standard deviation per entry, and its gradient.
#[derive(Debug, Clone, PartialEq)]
pub struct GaussianFactorKl {
    /// `[rank]`, nats.
    pub per_rank: Vec<f64>,
    /// Gradient of the total with respect to the means, `[rank, width]`.
    pub by_mean: Vec<f64>,
    /// Gradient of the total with respect to the standard deviations, `[rank, width]`.
    pub by_std_dev: Vec<f64>,
}

impl GaussianFactorKl {
    /// The sum over ranks, nats.
    pub fn total(&self) -> f64 {
        compensated_sum(self.per_rank.iter().copied())
    }
}

/// Closed-form Gaussian KL of a factor, the prior of the `BLoB` baseline.
///
/// # Formula
///
/// ```text
/// KL = Σ_{k,i} gaussian_kl(mean[k,i], std_dev[k,i], prior_std_dev)
/// ```
///
/// With `p(vec W) = N(vec W0, prior²·c²·[I ⊗ B Bᵀ])` and B of full column rank this is also the KL
/// of the composed weight, which is why noise on A alone suffices there.
///
/// # Shapes
///
/// | Name        | Shape           | Unit   |
/// |-------------|-----------------|--------|
/// | `mean`      | `[rank, width]` | weight |
/// | `std_dev`   | `[rank, width]` | weight |
///
/// # Errors
///
/// [`ShapeError::Length`](crate::ShapeError::Length) if there is not one standard deviation per
/// mean; [`ParameterError::OutOfRange`](crate::ParameterError::OutOfRange) if a width is not
/// positive and finite.
///
/// # References
///
/// Wang et al. 2024, `BLoB`, arXiv:2406.11675.
pub fn kl_gaussian(
    mean: FactorView<'_>,
    std_dev: &[f64],
    prior_std_dev: f64,
) -> Result<GaussianFactorKl, Error> {
    check_length("std_dev", std_dev.len(), mean.values().len())?;
    check_range("prior_std_dev", prior_std_dev, f64::MIN_POSITIVE, f64::MAX)?;
    for &value in std_dev {
        check_range("std_dev", value, f64::MIN_POSITIVE, f64::MAX)?;
    }
    let entries: Vec<GaussianKl> = mean
        .values()
        .iter()
        .zip(std_dev)
        .map(|(&m, &s)| gaussian_kl(m, s, prior_std_dev))
        .collect();
    let width = mean.width();
    Ok(GaussianFactorKl {
        per_rank: (0..mean.rank())
            .map(|k| compensated_sum(entries[k * width..(k + 1) * width].iter().map(|e| e.value)))
            .collect(),
        by_mean: entries.iter().map(|e| e.by_mean).collect(),
        by_std_dev: entries.iter().map(|e| e.by_std_dev).collect(),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn unequal_widths_show_the_direction() {
        // ln(2/0.5) + (0.25 + 1) / 8 − 1/2, the posterior being N(1, 0.5²) and the prior N(0, 2²).
        let kl = gaussian_kl(1.0, 0.5, 2.0);
        assert!((kl.value - (4.0_f64.ln() + 1.25 / 8.0 - 0.5)).abs() < 1e-15);
        // The other direction would be ln(0.5/2) + (4 + 1) / 0.5 − 1/2 = 8.11.
        assert!((kl.value - 1.042_544_361_119_890_6).abs() < 1e-12);
        assert!((kl.by_log_variance - 0.5 * 0.5 * kl.by_std_dev).abs() < 1e-15);
    }

    #[test]
    fn agreement_costs_nothing_and_near_agreement_keeps_its_digits() {
        assert_eq!(gaussian_kl(0.0, 0.2, 0.2).value, 0.0);
        // −½ − ln 1e-12, far below the width at which 1 + (t − 1) loses t.
        let narrow = gaussian_kl(0.0, 1e-12, 1.0).value;
        assert!((narrow - 27.131021115928547).abs() < 1e-12, "{narrow}");
        let near = gaussian_kl(0.0, 1.0 + 1e-6, 1.0).value;
        assert!((near / 1e-12 - 1.0).abs() < 1e-3, "{near}");
    }

    #[test]
    fn ranks_are_summed_apart_and_bad_widths_refused() {
        let mean = FactorView::new("a", &[0.1, -0.2, 0.3, 0.0, 0.5, -0.1], 2, 3).unwrap();
        let std_dev = [0.1, 0.2, 0.3, 0.05, 0.15, 0.25];
        let kl = kl_gaussian(mean, &std_dev, 0.2).unwrap();
        let second: f64 = [(0.0, 0.05), (0.5, 0.15), (-0.1, 0.25)]
            .iter()
            .map(|&(m, s)| gaussian_kl(m, s, 0.2).value)
            .sum();
        assert!((kl.per_rank[1] - second).abs() < 1e-14);
        assert!((kl.total() - kl.per_rank[0] - second).abs() < 1e-14);
        assert!(kl_gaussian(mean, &std_dev[..5], 0.2).is_err());
        assert!(kl_gaussian(mean, &std_dev, 0.0).is_err());
        assert!(kl_gaussian(mean, &[0.0; 6], 0.2).is_err());
        let none = FactorView::new("a", &[], 0, 3).unwrap();
        assert_eq!(kl_gaussian(none, &[], 0.2).unwrap().total(), 0.0);
    }
}
