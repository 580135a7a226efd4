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
/// assert!((kl.value - 1.042_544_361_119_890_6).abs() < 1e-12);
/// # Ok::<(), lrvd_core::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ElementGaussian<'a> {
    mean: &'a [f64],
    rho: &'a [f64],
    map: StdMap,
}

/// A divergence (or an estimate of one) with its gradient.
#[derive(Debug, Clone, PartialEq)]
pub struct ElementKl {
    /// Nats.
    pub value: f64,
    /// With respect to the means.
    pub by_mean: Vec<f64>,
    /// With respect to `rho`.
    pub by_rho: Vec<f64>,
}

/// The gradient of a loss with respect to the posterior's parameters.
#[derive(Debug, Clone, PartialEq)]
pub struct ElementGradient {
    /// With respect to the means.
    pub by_mean: Vec<f64>,
    /// With respect to `rho`.
    pub by_rho: Vec<f64>,
}

impl<'a> ElementGaussian<'a> {
    /// Puts the posterior together.
    ///
    /// # Errors
    ///
    /// [`ShapeError::Length`](crate::ShapeError::Length) if there is not one `rho` per mean.
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
    ///
    /// # Errors
    ///
    /// [`ShapeError::Length`](crate::ShapeError::Length) if there is not one `eps` per weight.
    pub fn sample(&self, eps: &[f64]) -> Result<Vec<f64>, Error> {
        check_length("eps", eps.len(), self.mean.len())?;
        Ok(self.drawn(eps).collect())
    }

    /// The gradient of a loss through [`sample`](Self::sample), from its gradient by the drawn weights.
    ///
    /// # Formula
    ///
    /// ```text
    /// d/d mean = by_weight        d/d rho = by_weight ∘ eps ∘ sigma'(rho)
    /// ```
    ///
    /// # Errors
    ///
    /// [`ShapeError::Length`](crate::ShapeError::Length) if a slice does not have one value per
    /// weight.
    pub fn pull_back(&self, by_weight: &[f64], eps: &[f64]) -> Result<ElementGradient, Error> {
        check_length("by_weight", by_weight.len(), self.mean.len())?;
        check_length("eps", eps.len(), self.mean.len())?;
        let by_rho = by_weight.iter().zip(eps).zip(self.rho);
        Ok(ElementGradient {
            by_mean: by_weight.to_vec(),
            by_rho: by_rho.map(|((g, e), &r)| g * e * self.map.derivative(r)).collect(),
        })
    }

    /// Divergence from `N(0, prior_std_dev²)` on every weight, with its gradient.
    ///
    /// # Formula
    ///
    /// ```text
    /// KL = Σ_j  ln(prior/sigma_j) + (sigma_j² + mean_j²)/(2·prior²) − ½
    /// dKL/d mean = mean/prior²        dKL/d rho = (sigma/prior² − 1/sigma)·sigma'(rho)
    /// ```
    ///
    /// Direction: posterior from prior.
    ///
    /// # Errors
    ///
    /// [`ParameterError::OutOfRange`](crate::ParameterError::OutOfRange) if a width is not positive
    /// and finite (a `rho` of 0 under [`StdMap::Square`], or one that is NaN).
    pub fn kl(&self, prior_std_dev: f64, reduction: ElementReduction) -> Result<ElementKl, Error> {
        check_range("prior_std_dev", prior_std_dev, f64::MIN_POSITIVE, f64::MAX)?;
        let entries = self
            .mean
            .iter()
            .zip(self.positive_std_dev()?)
            .map(|(&mean, std_dev)| gaussian_kl(mean, std_dev, prior_std_dev))
            .collect::<Vec<_>>();
        let weight = reduction.weight(entries.len());
        let slopes = self.rho.iter().map(|&r| self.map.derivative(r));
        Ok(ElementKl {
            value: weight * compensated_sum(entries.iter().map(|e| e.value)),
            by_mean: entries.iter().map(|e| weight * e.by_mean).collect(),
            by_rho: entries.iter().zip(slopes).map(|(e, s)| weight * e.by_std_dev * s).collect(),
        })
    }

    /// Estimate of the divergence from a scale mixture with one draw, with its gradient.
    ///
    /// # Formula
    ///
    /// ```text
    /// w = mean + sigma ∘ eps
    /// K = Σ_j ln q(w_j) − ln p(w_j),     ln q(w_j) = −½·eps_j² − ln sigma_j − ½·ln 2π
    /// dK/d mean = −(ln p)'(w)            dK/d rho = (−1/sigma − (ln p)'(w)·eps)·sigma'(rho)
    /// ```
    ///
    /// Its expectation over `eps` is the divergence; a single value may be negative. The gradient is
    /// the total one, at fixed `eps`.
    ///
    /// # Errors
    ///
    /// [`ShapeError::Length`](crate::ShapeError::Length) if there is not one `eps` per weight;
    /// [`ParameterError::OutOfRange`](crate::ParameterError::OutOfRange) if a standard deviation is
    /// not positive and finite.
    pub fn sampled_kl(
        &self,
        prior: &ScaleMixture,
        eps: &[f64],
        reduction: ElementReduction,
    ) -> Result<ElementKl, Error> {
        check_length("eps", eps.len(), self.mean.len())?;
        let std_dev = self.positive_std_dev()?;
        let weight = reduction.weight(self.mean.len());
        let half_log_tau = 0.5 * std::f64::consts::TAU.ln();
        let mut values = Vec::with_capacity(eps.len());
        let (mut by_mean, mut by_rho) = (Vec::new(), Vec::new());
        for (((w, &e), &s), &r) in self.drawn(eps).zip(eps).zip(&std_dev).zip(self.rho) {
            let slope = prior.log_density_slope(w);
            values.push(-0.5 * e * e - s.ln() - half_log_tau - prior.log_density(w));
            by_mean.push(-weight * slope);
            by_rho.push(weight * (-1.0 / s - slope * e) * self.map.derivative(r));
        }
        Ok(ElementKl { value: weight * compensated_sum(values), by_mean, by_rho })
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
    use crate::factor::FactorView;
    use crate::kl::kl_gaussian;

    const MEAN: [f64; 3] = [0.1, -0.4, 0.0];
    const RHO: [f64; 3] = [-3.0, 0.3, -0.9];

    #[test]
    fn the_closed_form_is_the_one_of_the_kl_module() {
        for map in StdMap::ALL {
            let q = ElementGaussian::new(&MEAN, &RHO, map).unwrap();
            let view = FactorView::new("mean", &MEAN, 1, 3).unwrap();
            let wanted = kl_gaussian(view, &q.std_dev(), 0.2).unwrap();
            let found = q.kl(0.2, ElementReduction::Sum).unwrap();
            assert!((found.value - wanted.total()).abs() < 1e-12 * wanted.total());
            assert_eq!(found.by_mean, wanted.by_mean);
            for ((f, w), &rho) in found.by_rho.iter().zip(&wanted.by_std_dev).zip(&RHO) {
                assert_eq!(*f, w * map.derivative(rho));
            }
        }
    }

    #[test]
    fn a_very_narrow_posterior_keeps_a_finite_cost() {
        // ln(0.2/sigma) − ½ with sigma = exp(−40): 40 + ln 0.2 − ½.
        let q = ElementGaussian::new(&[0.0], &[-40.0], StdMap::Softplus).unwrap();
        let kl = q.kl(0.2, ElementReduction::Sum).unwrap();
        assert!((kl.value - (40.0 + 0.2_f64.ln() - 0.5)).abs() < 1e-13, "{}", kl.value);
        // sigma/prior² − 1/sigma times sigma: −1.
        assert!((kl.by_rho[0] + 1.0).abs() < 1e-14);
    }

    #[test]
    fn the_mean_is_the_sum_over_the_count() {
        let q = ElementGaussian::new(&MEAN, &RHO, StdMap::Softplus).unwrap();
        let sum = q.kl(1.0, ElementReduction::Sum).unwrap();
        let mean = q.kl(1.0, ElementReduction::Mean).unwrap();
        assert!((3.0 * mean.value - sum.value).abs() < 1e-14);
        assert!((3.0 * mean.by_rho[1] - sum.by_rho[1]).abs() < 1e-14);
        let none = ElementGaussian::new(&[], &[], StdMap::Softplus).unwrap();
        assert_eq!(none.kl(1.0, ElementReduction::Mean).unwrap().value, 0.0);
    }

    #[test]
    fn draws_and_their_pull_back() {
        let q = ElementGaussian::new(&MEAN, &RHO, StdMap::Square).unwrap();
        let eps = [1.0, -2.0, 0.5];
        // 0.1 + 9, −0.4 − 2·0.09, 0.81/2.
        let wanted = [9.1, -0.58, 0.405];
        for (f, w) in q.sample(&eps).unwrap().iter().zip(wanted) {
            assert!((f - w).abs() < 1e-15, "{f}");
        }
        let gradient = q.pull_back(&[1.0, 10.0, 100.0], &eps).unwrap();
        assert_eq!(gradient.by_mean, [1.0, 10.0, 100.0]);
        // g·eps·2·rho.
        for (f, w) in gradient.by_rho.iter().zip([-6.0, -12.0, -90.0]) {
            assert!((f - w).abs() < 1e-13, "{f}");
        }
    }

    #[test]
    fn wrong_shapes_and_widths_are_refused() {
        assert!(ElementGaussian::new(&MEAN, &RHO[..2], StdMap::Square).is_err());
        let q = ElementGaussian::new(&MEAN, &RHO, StdMap::Square).unwrap();
        assert!(q.sample(&[0.0; 2]).is_err() && q.sample(&[0.0; 4]).is_err());
        assert!(q.pull_back(&[0.0; 2], &[0.0; 3]).is_err());
        assert!(q.kl(0.0, ElementReduction::Sum).is_err());
        let flat = ElementGaussian::new(&MEAN, &[0.0; 3], StdMap::Square).unwrap();
        assert!(flat.kl(0.2, ElementReduction::Sum).is_err());
        let prior = ScaleMixture::new(0.5, 1.0, 0.1).unwrap();
        assert!(flat.sampled_kl(&prior, &[0.0; 3], ElementReduction::Sum).is_err());
        assert!(q.sampled_kl(&prior, &[0.0; 2], ElementReduction::Sum).is_err());
    }
}
