//! Weights with a standard deviation each, and what they cost.

use super::scale_mixture::ScaleMixture;
use super::std_map::StdMap;
use crate::error::{Error, check_length, check_range};
use crate::kl::gaussian_kl;
use crate::numeric::compensated_sum;

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

/// A factorised Gaussian over a slice of weights, `q(w) = Π N(w_j; mean_j, sigma(rho_j)²)`.
///
/// # Shapes
///
/// | Name   | Shape                               | Unit                  |
/// |--------|-------------------------------------|-----------------------|
/// | `mean` | any, flat                           | weight                |
/// | `rho`  | the same                            | as the map            |
///
/// # References
///
/// Blundell et al. 2015, arXiv:1505.05424; on A alone: Wang et al. 2024, arXiv:2406.11675.
///
/// # Examples
///
/// ```
/// # use lrvd_core::baselines::{ElementGaussian, ElementReduction, StdMap};
/// // N(1, 0.5²) from N(0, 2²): ln 4 + (0.25 + 1)/8 − 1/2.
/// let rho = [0.5_f64.sqrt()];
/// let q = ElementGaussian::new(&[1.0], &rho, StdMap::Square)?;
/// let kl = q.kl(2.0, ElementReduction::Sum)?;
/// assert!((kl - 1.042_544_361_119_890_6).abs() < 1e-12);
/// # Ok::<(), lrvd_core::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ElementGaussian<'a> {
    mean: &'a [f64],
    rho: &'a [f64],
    map: StdMap,
}

impl<'a> ElementGaussian<'a> {
    /// Puts the posterior together.
    pub fn new(mean: &'a [f64], rho: &'a [f64], map: StdMap) -> Result<Self, Error> {
        check_length("rho", rho.len(), mean.len())?;
        Ok(Self { mean, rho, map })
    }

    /// The means.
    pub fn mean(&self) -> &'a [f64] {
        self.mean
    }

    /// The unconstrained parameters of the standard deviations.
    pub fn rho(&self) -> &'a [f64] {
        self.rho
    }

    /// How `rho` becomes a standard deviation.
    pub fn map(&self) -> StdMap {
        self.map
    }

    /// The standard deviations.
    pub fn std_dev(&self) -> Vec<f64> {
        self.rho.iter().map(|&r| self.map.value(r)).collect()
    }

    /// One draw, `w = mean + sigma ∘ eps`.
    pub fn sample(&self, eps: &[f64]) -> Result<Vec<f64>, Error> {
        check_length("eps", eps.len(), self.mean.len())?;
        Ok(self.drawn(eps).collect())
    }

    /// Divergence from `N(0, prior_std_dev²)` on every weight, nats.
    ///
    /// # Formula
    ///
    /// ```text
    /// KL = Σ_j  ln(prior/sigma_j) + (sigma_j² + mean_j²)/(2·prior²) − ½
    /// ```
    ///
    /// Direction: posterior from prior.
    ///
    /// # Errors
    ///
    /// A width is not positive and finite (a `rho` of 0 under [`StdMap::Square`], or one that is NaN).
    pub fn kl(&self, prior_std_dev: f64, reduction: ElementReduction) -> Result<f64, Error> {
        check_range("prior_std_dev", prior_std_dev, f64::MIN_POSITIVE, f64::MAX)?;
        let std_dev = self.positive_std_dev()?;
        let entries = self.mean.iter().zip(&std_dev);
        let entries = entries.map(|(&mean, &s)| gaussian_kl(mean, s, prior_std_dev));
        Ok(reduction.weight(self.mean.len()) * compensated_sum(entries))
    }

    /// Estimate of the divergence from a scale mixture with one draw, nats.
    ///
    /// # Formula
    ///
    /// ```text
    /// w = mean + sigma ∘ eps
    /// K = Σ_j ln q(w_j) − ln p(w_j),     ln q(w_j) = −½·eps_j² − ln sigma_j − ½·ln 2π
    /// ```
    ///
    /// Its expectation over `eps` is the divergence; a single value may be negative.
    ///
    /// # Errors
    ///
    /// A standard deviation is not positive and finite.
    pub fn sampled_kl(
        &self,
        prior: &ScaleMixture,
        eps: &[f64],
        reduction: ElementReduction,
    ) -> Result<f64, Error> {
        check_length("eps", eps.len(), self.mean.len())?;
        let std_dev = self.positive_std_dev()?;
        let half_log_tau = 0.5 * std::f64::consts::TAU.ln();
        let entries = self.drawn(eps).zip(eps).zip(&std_dev);
        let entries =
            entries.map(|((w, e), s)| -0.5 * e * e - s.ln() - half_log_tau - prior.log_density(w));
        Ok(reduction.weight(self.mean.len()) * compensated_sum(entries))
    }

    fn drawn(&self, eps: &[f64]) -> impl Iterator<Item = f64> {
        let scale = self.rho.iter().map(|&r| self.map.value(r));
        self.mean.iter().zip(scale).zip(eps).map(|((m, s), e)| m + s * e)
    }

    fn positive_std_dev(&self) -> Result<Vec<f64>, Error> {
        let std_dev = self.std_dev();
        for &value in &std_dev {
            check_range("std_dev", value, f64::MIN_POSITIVE, f64::MAX)?;
        }
        Ok(std_dev)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::testing::assert_near;

    const MEAN: [f64; 3] = [0.1, -0.4, 0.0];
    const RHO: [f64; 3] = [-3.0, 0.3, -0.9];

    #[test]
    fn a_very_narrow_posterior_keeps_a_finite_cost() {
        // ln(0.2/sigma) − ½ with sigma = exp(−40): 40 + ln 0.2 − ½.
        let q = ElementGaussian::new(&[0.0], &[-40.0], StdMap::Softplus).unwrap();
        let kl = q.kl(0.2, ElementReduction::Sum).unwrap();
        assert!((kl - (40.0 + 0.2_f64.ln() - 0.5)).abs() < 1e-13, "{kl}");
    }

    #[test]
    fn the_mean_is_the_sum_over_the_count() {
        let q = ElementGaussian::new(&MEAN, &RHO, StdMap::Softplus).unwrap();
        let sum = q.kl(1.0, ElementReduction::Sum).unwrap();
        let mean = q.kl(1.0, ElementReduction::Mean).unwrap();
        assert!((3.0 * mean - sum).abs() < 1e-14);
        let none = ElementGaussian::new(&[], &[], StdMap::Softplus).unwrap();
        assert_eq!(none.kl(1.0, ElementReduction::Mean).unwrap(), 0.0);
    }

    #[test]
    fn draws_by_hand() {
        let q = ElementGaussian::new(&MEAN, &RHO, StdMap::Square).unwrap();
        // 0.1 + 9, −0.4 − 2·0.09, 0.81/2.
        let expected = [9.1, -0.58, 0.405];
        assert_near(&q.sample(&[1.0, -2.0, 0.5]).unwrap(), &expected, 1e-15);
    }

    #[test]
    fn wrong_shapes_and_widths_are_refused() {
        assert!(ElementGaussian::new(&MEAN, &RHO[..2], StdMap::Square).is_err());
        let q = ElementGaussian::new(&MEAN, &RHO, StdMap::Square).unwrap();
        assert!(q.sample(&[0.0; 2]).is_err() && q.sample(&[0.0; 4]).is_err());
        assert!(q.kl(0.0, ElementReduction::Sum).is_err());
        let flat = ElementGaussian::new(&MEAN, &[0.0; 3], StdMap::Square).unwrap();
        assert!(flat.kl(0.2, ElementReduction::Sum).is_err());
        let prior = ScaleMixture::new(0.5, 1.0, 0.1).unwrap();
        assert!(flat.sampled_kl(&prior, &[0.0; 3], ElementReduction::Sum).is_err());
        assert!(q.sampled_kl(&prior, &[0.0; 2], ElementReduction::Sum).is_err());
    }
}
