//! Bayes by backprop and BLoB: Gaussian weights with a standard deviation each.
//!
//! BLoB has noise on A alone. Its posterior of the composed weight `W = W0 + scaling·B·A` is then a Gaussian within the column
//! space of `B`, one block per input column:
//!
//! ```text
//! cov(W[:, j]) = scaling²·B diag(sigma[:, j]²) Bᵀ            posterior
//! cov(W[:, j]) = scaling²·prior²·B Bᵀ                        the prior that makes the KLs equal
//! ```
//!
//! With `B` of full column rank, the KL between the two on that subspace is the KL of `A` from `N(0, prior²)` per entry, in
//! which neither `B` nor `scaling` appears, so that no gradient of it reaches `B`.
//!
//! Source: Blundell et al. 2015, arXiv:1505.05424; Wang et al. 2024, BLoB, arXiv:2406.11675, theorems 3.1 and 3.2.

use crate::error::{Error, above, check_range};

/// `rho` at which Bayes by backprop starts here: `sigma = 0.0025`, small against the weights.
pub const INITIAL_RHO: f64 = -6.0;
/// Width of the Gaussian prior here, that of BLoB and C-LoRA.
pub const PRIOR_STD_DEV: f64 = 0.2;

/// Combination of the divergences of single weights.
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
        check_range("weight", weight, 0.0..=1.0)?;
        check_range("first_std_dev", first_std_dev, above(0.0))?;
        check_range("second_std_dev", second_std_dev, above(0.0))?;
        Ok(Self { weight, first_std_dev, second_std_dev })
    }

    /// `weight`, and the widths of the first and of the second component.
    pub const fn parts(&self) -> [f64; 3] {
        [self.weight, self.first_std_dev, self.second_std_dev]
    }
}

/// An initial `rho` with `sigma = rho²`, from a uniform number in `[0, 1]`: `U(limit/√2, limit)`.
pub fn initial_rho(uniform: f64, limit: f64) -> f64 {
    let low = std::f64::consts::FRAC_1_SQRT_2;
    limit * (low + (1.0 - low) * uniform)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn weights_starts_and_mixtures() {
        assert_eq!([0, 3].map(|n| ElementReduction::Mean.weight(n)), [1.0, 1.0 / 3.0]);
        assert_eq!(initial_rho(1.0, 0.05), 0.05);
        assert!((initial_rho(0.0, 0.05).powi(2) - 0.00125).abs() < 1e-17);
        assert_eq!(ScaleMixture::new(0.5, 1.0, 0.1).unwrap().parts(), [0.5, 1.0, 0.1]);
        for (weight, first, second) in [(f64::NAN, 1.0, 1.0), (0.5, 0.0, 1.0), (0.5, 1.0, -1.0)] {
            assert!(ScaleMixture::new(weight, first, second).is_err());
        }
    }
}
