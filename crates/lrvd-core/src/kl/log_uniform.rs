//! The cost of one weight under the log-uniform prior, given its noise-to-signal ratio.

use crate::numeric::{logistic, softplus};

/// First fit constant of Molchanov et al. 2017.
pub const K1: f64 = 0.63576;
/// Second fit constant of Molchanov et al. 2017.
pub const K2: f64 = 1.87320;
/// Third fit constant of Molchanov et al. 2017.
pub const K3: f64 = 1.48695;

/// KL of one Gaussian weight from the log-uniform prior, by the three-constant fit.
///
/// # Formula
///
/// ```text
/// KL(a) = k1·logistic(−k2 − k3·a) + ½·softplus(−a),   a = log_alpha = ln(σ²/μ²)
/// ```
///
/// The paper calls minus this quantity "KL" and maximises.
///
/// # Numerics
///
/// No cancellation at either end. The fit is within 0.0094 nats of the integral, worst near
/// `a = −3.5`.
///
/// # Invariants
///
/// Not negative; falls in `a`; `k1 − a/2` for `a → −∞` and 0 for `a → +∞`.
///
/// # References
///
/// Molchanov et al. 2017, arXiv:1701.05369, equation 14.
///
/// # Examples
///
/// ```
/// # use lrvd_core::kl::kl_fit;
/// assert!((kl_fit(0.0) - 0.431_238_950_990).abs() < 1e-12);
/// ```
pub fn kl_fit(log_alpha: f64) -> f64 {
    K1 * logistic(-K2 - K3 * log_alpha) + 0.5 * softplus(-log_alpha)
}

/// The derivative of [`kl_fit`].
///
/// # Formula
///
/// ```text
/// dKL/da = −k1·k3·s·(1 − s) − ½·logistic(−a),   s = logistic(k2 + k3·a)
/// ```
///
/// # Invariants
///
/// Negative everywhere; smallest at `a = −1.550`, where it is −0.63812.
pub fn kl_fit_slope(log_alpha: f64) -> f64 {
    let z = K2 + K3 * log_alpha;
    -(K1 * K3 * logistic(z) * logistic(-z) + 0.5 * logistic(-log_alpha))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The specification's table: `log_alpha`, KL, slope. Its generator printed twelve decimals.
    const TABLE: [(f64, f64, f64); 15] = [
        (-20.0, 10.635_760_001_030, -0.499_999_998_970),
        (-12.0, 6.635_762_998_387, -0.499_997_037_515),
        (-8.0, 4.635_899_480_334, -0.499_874_289_042),
        (-6.0, 3.636_446_030_199, -0.499_583_493_651),
        (-4.0, 2.634_208_314_062, -0.506_544_075_353),
        (-2.0, 1.540_532_741_238, -0.617_465_340_248),
        (-1.0, 0.913_872_285_016, -0.593_265_073_703),
        (0.0, 0.431_238_950_990, -0.359_127_728_320),
        (1.0, 0.177_969_719_539, -0.165_135_560_294),
        (2.0, 0.068_416_546_037, -0.066_908_274_514),
        (3.0, 0.025_420_043_312, -0.025_384_821_467),
        (4.0, 0.009_329_941_450, -0.009_372_091_705),
        (5.0, 0.003_415_332_631, -0.003_432_152_825),
        (8.0, 0.000_168_369_347, -0.000_168_665_612),
        (12.0, 0.000_003_073_836, -0.000_003_074_674),
    ];

    #[test]
    fn matches_the_specified_table() {
        for (a, kl, slope) in TABLE {
            assert!((kl_fit(a) - kl).abs() < 6e-13, "KL({a}) = {}", kl_fit(a));
            assert!((kl_fit_slope(a) - slope).abs() < 6e-13, "slope({a}) = {}", kl_fit_slope(a));
        }
    }

    #[test]
    fn the_steepest_point_and_both_limits() {
        assert!((kl_fit_slope(-1.550) + 0.638_12).abs() < 1e-5);
        assert!(
            kl_fit_slope(-1.6) > kl_fit_slope(-1.55) && kl_fit_slope(-1.5) > kl_fit_slope(-1.55)
        );
        assert!((kl_fit(-300.0) - (K1 + 150.0)).abs() < 1e-12);
        assert_eq!(kl_fit(f64::INFINITY), 0.0);
        assert_eq!(kl_fit(f64::NEG_INFINITY), f64::INFINITY);
        // ½·exp(−a) + k1·exp(−k2 − k3·a), where the plain formula has lost all digits.
        let a = 50.0_f64;
        let tail = 0.5 * (-a).exp() + K1 * (-K2 - K3 * a).exp();
        assert!((kl_fit(a) / tail - 1.0).abs() < 1e-12);
    }
}
