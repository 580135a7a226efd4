//! A prior that holds most weights near zero and lets a few be large.

use crate::error::{Error, check_range};

/// A mixture of two zero-mean Gaussians, a wide and a narrow one.
///
/// # Formula
///
/// ```text
/// p(w) = weight·N(w; 0, first²) + (1 − weight)·N(w; 0, second²)
/// ```
///
/// # References
///
/// Blundell et al. 2015, arXiv:1505.05424, section 3.3. They search `weight` in {¼, ½, ¾}, `first`
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_density_is_the_sum_of_both() {
        let prior = ScaleMixture::new(0.25, 1.0, 0.1).unwrap();
        let normal =
            |w: f64, s: f64| (-0.5 * (w / s).powi(2)).exp() / (s * std::f64::consts::TAU.sqrt());
        for w in [-0.7_f64, 0.0, 0.05, 0.3] {
            let expected = 0.25 * normal(w, 1.0) + 0.75 * normal(w, 0.1);
            assert!((prior.log_density(w) - expected.ln()).abs() < 1e-14, "{w}");
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

    #[test]
    fn what_is_no_mixture_is_refused() {
        for (weight, first, second) in [
            (-0.1, 1.0, 1.0),
            (1.1, 1.0, 1.0),
            (f64::NAN, 1.0, 1.0),
            (0.5, 0.0, 1.0),
            (0.5, 1.0, -1.0),
        ] {
            assert!(ScaleMixture::new(weight, first, second).is_err());
        }
    }
}
