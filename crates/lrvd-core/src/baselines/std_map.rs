//! The unconstrained parameter that stands for a standard deviation.

use crate::error::{Error, check_range};
use crate::numeric::softplus;

/// How an unconstrained parameter `rho` becomes a standard deviation `sigma`.
///
/// # Formula
///
/// ```text
/// softplus:  sigma = ln(1 + exp(rho))
/// square:    sigma = rho²
/// ```
///
/// # References
///
/// Softplus: Blundell et al. 2015, arXiv:1505.05424. Square (there called `G`): Wang et al. 2024,
/// arXiv:2406.11675; its slope vanishes with the standard deviation, so small noise moves slowly.
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

    /// The parameter of a standard deviation; of the two for [`StdMap::Square`] the positive one.
    ///
    /// # Formula
    ///
    /// ```text
    /// softplus:  rho = ln(exp(sigma) - 1) = sigma + ln(1 - exp(-sigma))       square:  rho = √sigma
    /// ```
    ///
    /// # Errors
    ///
    /// `std_dev` is negative, infinite or NaN; 0 under softplus.
    pub fn inverse(self, std_dev: f64) -> Result<f64, Error> {
        match self {
            Self::Softplus => {
                check_range("std_dev", std_dev, f64::MIN_POSITIVE, f64::MAX)?;
                Ok(std_dev + (-(-std_dev).exp_m1()).ln())
            }
            Self::Square => {
                check_range("std_dev", std_dev, 0.0, f64::MAX)?;
                Ok(std_dev.sqrt())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn published_starting_values() {
        // ln(1 + e^-3) and ln(1 + e^-6), by series e^-x - e^-2x/2 + e^-3x/3.
        assert!((StdMap::Softplus.value(-3.0) - 0.048_587_351_573_742_06).abs() < 1e-16);
        assert!((StdMap::Softplus.value(-6.0) - 0.002_475_685_137_730_449_5).abs() < 1e-17);
        // BLoB: G in [0.05/√2, 0.05] gives sigma in [0.00125, 0.0025].
        assert!((StdMap::Square.value(0.05 / 2.0_f64.sqrt()) - 0.00125).abs() < 1e-17);
        assert!((StdMap::Square.value(0.05) - 0.0025).abs() < 1e-17);
    }

    #[test]
    fn the_inverse_undoes_the_map_over_all_magnitudes() {
        for map in StdMap::ALL {
            for std_dev in [1e-300, 1e-12, 2.5e-3, 0.2, 1.0, 30.0, 800.0] {
                let back = map.value(map.inverse(std_dev).unwrap());
                // exp(rho) loses |rho| ulps.
                assert!((back / std_dev - 1.0).abs() < 1e-12, "{map:?} {std_dev}: {back}");
            }
            for wrong in [-1e-9, f64::NAN, f64::INFINITY] {
                assert!(map.inverse(wrong).is_err(), "{map:?} {wrong}");
            }
        }
        assert!(StdMap::Softplus.inverse(0.0).is_err());
        assert_eq!(StdMap::Square.inverse(0.0), Ok(0.0));
    }
}
