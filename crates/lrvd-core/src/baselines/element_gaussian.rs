//! Bayes by backprop: Gaussian weights with a standard deviation each, and their divergence.

use crate::error::{Error, check_length, check_range};
use crate::kl::gaussian_kl;
use crate::numeric::{compensated_sum, softplus};

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
/// `mean` and `rho` are flat and of equal length.
///
/// Source: Blundell et al. 2015, arXiv:1505.05424; on A alone: Wang et al. 2024, arXiv:2406.11675.
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

    /// One draw, `w = mean + sigma ∘ eps`.
    pub fn sample(&self, eps: &[f64]) -> Result<Vec<f64>, Error> {
        check_length("eps", eps.len(), self.mean.len())?;
        Ok(self.drawn(eps).collect())
    }

    /// Divergence from `N(0, prior_std_dev²)` on every weight, nats.
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
        let std_dev: Vec<f64> = self.rho.iter().map(|&r| self.map.value(r)).collect();
        for &value in &std_dev {
            check_range("std_dev", value, f64::MIN_POSITIVE, f64::MAX)?;
        }
        Ok(std_dev)
    }
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

    /// The probability of the first component.
    pub const fn weight(&self) -> f64 {
        self.weight
    }

    /// The width of the first component.
    pub const fn first_std_dev(&self) -> f64 {
        self.first_std_dev
    }

    /// The width of the second component.
    pub const fn second_std_dev(&self) -> f64 {
        self.second_std_dev
    }

    /// `ln p(w)`, through the larger of the two components.
    pub fn log_density(&self, w: f64) -> f64 {
        let [first, second] = self.log_shares(w);
        let (high, low) = if first >= second { (first, second) } else { (second, first) };
        high + (low - high).exp().ln_1p()
    }

    fn log_shares(&self, w: f64) -> [f64; 2] {
        let log_normal = |std_dev: f64| {
            let z = w / std_dev;
            -0.5 * z * z - std_dev.ln() - 0.5 * std::f64::consts::TAU.ln()
        };
        [
            self.weight.ln() + log_normal(self.first_std_dev),
            (-self.weight).ln_1p() + log_normal(self.second_std_dev),
        ]
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
    use crate::testing::assert_near;

    const MEAN: [f64; 3] = [0.1, -0.4, 0.0];
    const RHO: [f64; 3] = [-3.0, 0.3, -0.9];

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
    fn wrong_shapes_and_widths_are_errors() {
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

    #[test]
    fn what_is_no_mixture_is_an_error() {
        for (weight, first, second) in [(f64::NAN, 1.0, 1.0), (0.5, 0.0, 1.0), (0.5, 1.0, -1.0)] {
            assert!(ScaleMixture::new(weight, first, second).is_err());
        }
    }
}
