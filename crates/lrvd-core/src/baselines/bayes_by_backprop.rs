//! Bayes by backprop: Gaussian weights with a standard deviation each, and their divergence.

use crate::error::{Error, check_length, check_range};
use crate::kl::gaussian_kl;
use crate::metrics::log_sum_exp;
use crate::special::{compensated_sum, softplus};

/// `rho` at which Bayes by backprop starts here: `sigma = 0.0025`, small beside the weights.
pub const INITIAL_RHO: f64 = -6.0;
/// Width of the Gaussian prior here, that of BLoB.
pub const PRIOR_STD_DEV: f64 = 0.2;

/// How the divergences of single weights are combined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum ElementReduction {
    /// The sum: the divergence of the factorised posterior.
    #[default]
    Sum,
    /// The mean over elements, as Bayesian-Torch computes it. 0 for no elements.
    Mean,
}

impl ElementReduction {
    /// The factor of every element's share.
    pub fn weight(self, n_elements: usize) -> f64 {
        match self {
            Self::Sum => 1.0,
            Self::Mean => 1.0 / n_elements.max(1) as f64,
        }
    }
}

/// Divergence of the factorised Gaussian `Π N(w_j; mean_j, std_dev_j²)` from `N(0, prior_std_dev²)` on every weight, nats.
///
/// ```text
/// KL = Σ_j  ln(prior/sigma_j) + (sigma_j² + mean_j²)/(2·prior²) − ½
/// ```
///
/// Direction: posterior from prior.
///
/// Source: Blundell et al. 2015, arXiv:1505.05424; on A alone: Wang et al. 2024, arXiv:2406.11675.
///
/// # Examples
///
/// ```
/// # use lrvd_core::baselines::bayes_by_backprop::{ElementReduction, element_kl};
/// // N(1, 0.5²) from N(0, 2²): ln 4 + (0.25 + 1)/8 − 1/2.
/// let kl = element_kl(&[1.0], &[0.5], 2.0, ElementReduction::Sum)?;
/// assert!((kl - 1.042_544_361_119_890_6).abs() < 1e-12);
/// # Ok::<(), lrvd_core::Error>(())
/// ```
pub fn element_kl(
    mean: &[f64],
    std_dev: &[f64],
    prior_std_dev: f64,
    reduction: ElementReduction,
) -> Result<f64, Error> {
    check_range("prior_std_dev", prior_std_dev, f64::MIN_POSITIVE, f64::MAX)?;
    check_std_dev(mean, std_dev)?;
    let entries = mean.iter().zip(std_dev);
    let entries = entries.map(|(&mean, &s)| gaussian_kl(mean, s, prior_std_dev));
    Ok(reduction.weight(mean.len()) * compensated_sum(entries))
}

/// Estimate of the same Gaussian's divergence from a scale mixture with one draw, nats.
///
/// ```text
/// w = mean + sigma ∘ eps
/// K = Σ_j ln q(w_j) − ln p(w_j),     ln q(w_j) = −½·eps_j² − ln sigma_j − ½·ln 2π
/// ```
///
/// Its expectation over `eps` is the divergence; a single value may be negative.
pub fn sampled_element_kl(
    mean: &[f64],
    std_dev: &[f64],
    eps: &[f64],
    prior: &ScaleMixture,
    reduction: ElementReduction,
) -> Result<f64, Error> {
    check_length("eps", eps.len(), mean.len())?;
    check_std_dev(mean, std_dev)?;
    let half_log_tau = 0.5 * std::f64::consts::TAU.ln();
    let entries = mean
        .iter()
        .zip(std_dev)
        .zip(eps)
        .map(|((m, s), e)| -0.5 * e * e - s.ln() - half_log_tau - prior.log_density(m + s * e));
    Ok(reduction.weight(mean.len()) * compensated_sum(entries))
}

fn check_std_dev(mean: &[f64], std_dev: &[f64]) -> Result<(), Error> {
    check_length("std_dev", std_dev.len(), mean.len())?;
    std_dev.iter().try_for_each(|&s| check_range("std_dev", s, f64::MIN_POSITIVE, f64::MAX))
}

/// A mixture of two zero-mean Gaussians, a wide and a narrow one.
///
/// ```text
/// p(w) = weight·N(w; 0, first²) + (1 − weight)·N(w; 0, second²)
/// ```
///
/// Source: Blundell et al. 2015, arXiv:1505.05424, section 3.3. They search `weight` in {¼, ½, ¾}, `first`
/// in {e^0, e^−1, e^−2} and `second` in {e^−6, e^−7, e^−8}.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ScaleMixture {
    weight: f64,
    first_std_dev: f64,
    second_std_dev: f64,
}

impl ScaleMixture {
    /// A checked mixture.
    pub fn new(weight: f64, first_std_dev: f64, second_std_dev: f64) -> Result<Self, Error> {
        check_range("weight", weight, 0.0, 1.0)?;
        check_range("first_std_dev", first_std_dev, f64::MIN_POSITIVE, f64::MAX)?;
        check_range("second_std_dev", second_std_dev, f64::MIN_POSITIVE, f64::MAX)?;
        Ok(Self { weight, first_std_dev, second_std_dev })
    }

    /// `weight`, and the widths of the first and of the second component.
    pub const fn parts(&self) -> [f64; 3] {
        [self.weight, self.first_std_dev, self.second_std_dev]
    }

    /// `ln p(w)`, through the larger of the two components; `−inf` where `w²` overflows.
    pub fn log_density(&self, w: f64) -> f64 {
        let log_normal = |std_dev: f64| {
            let z = w / std_dev;
            -0.5 * z * z - std_dev.ln() - 0.5 * std::f64::consts::TAU.ln()
        };
        let first = self.weight.ln() + log_normal(self.first_std_dev);
        let second = (-self.weight).ln_1p() + log_normal(self.second_std_dev);
        log_sum_exp([first, second].into_iter())
    }
}

/// How an unconstrained parameter `rho` becomes a standard deviation `sigma`.
///
/// ```text
/// softplus:  sigma = ln(1 + exp(rho))
/// square:    sigma = rho²
/// ```
///
/// Sources: Blundell et al. 2015, arXiv:1505.05424 (softplus); Wang et al. 2024, arXiv:2406.11675 (square, there called `G`),
/// whose slope vanishes with the standard deviation, so small noise moves slowly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StdMap {
    /// `ln(1 + exp(rho))`, the choice of Bayes by backprop.
    Softplus,
    /// `rho²`, the choice of BLoB and C-LoRA's scales.
    Square,
}

impl StdMap {
    /// Both maps.
    pub const ALL: [Self; 2] = [Self::Softplus, Self::Square];

    /// The standard deviation of `rho`.
    pub fn value(self, rho: f64) -> f64 {
        match self {
            Self::Softplus => softplus(rho),
            Self::Square => rho * rho,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const MEAN: [f64; 3] = [0.1, -0.4, 0.0];
    const STD_DEV: [f64; 3] = [0.05, 0.8, 0.3];

    #[test]
    fn the_mean_is_the_sum_over_the_count() {
        let sum = element_kl(&MEAN, &STD_DEV, 1.0, ElementReduction::Sum).unwrap();
        let mean = element_kl(&MEAN, &STD_DEV, 1.0, ElementReduction::Mean).unwrap();
        assert!((3.0 * mean - sum).abs() < 1e-14);
        assert_eq!(element_kl(&[], &[], 1.0, ElementReduction::Mean), Ok(0.0));
    }

    #[test]
    fn wrong_shapes_widths_and_mixtures_are_errors() {
        let sum = ElementReduction::Sum;
        let prior = ScaleMixture::new(0.5, 1.0, 0.1).unwrap();
        for (std_dev, eps) in [(&STD_DEV[..2], 3), (&[0.0; 3], 3), (&[f64::NAN; 3], 3)] {
            assert!(element_kl(&MEAN, std_dev, 0.2, sum).is_err());
            assert!(sampled_element_kl(&MEAN, std_dev, &vec![0.0; eps], &prior, sum).is_err());
        }
        assert!(element_kl(&MEAN, &STD_DEV, 0.0, sum).is_err());
        assert!(sampled_element_kl(&MEAN, &STD_DEV, &[0.0; 2], &prior, sum).is_err());
        for (weight, first, second) in [(f64::NAN, 1.0, 1.0), (0.5, 0.0, 1.0), (0.5, 1.0, -1.0)] {
            assert!(ScaleMixture::new(weight, first, second).is_err());
        }
    }

    #[test]
    fn one_component_is_a_gaussian_and_tails_stay_finite() {
        for prior in [ScaleMixture::new(1.0, 0.5, 1e-3), ScaleMixture::new(0.0, 1e-3, 0.5)] {
            let prior = prior.unwrap();
            let expected = -0.5 * 4.0 - 0.5_f64.ln() - 0.5 * std::f64::consts::TAU.ln();
            assert!((prior.log_density(1.0) - expected).abs() < 1e-14);
        }
        let prior = ScaleMixture::new(0.5, 1.0, 1e-3).unwrap();
        assert!(prior.log_density(1e3).is_finite());
    }
}
