//! The divergence from the log-uniform prior exactly, without the fit.

use crate::numeric::dawson::{TAIL_SQUARE, tail_terms};

/// Euler's constant, the limit of the harmonic series minus the logarithm.
const EULER_GAMMA: f64 = 0.577_215_664_901_532_9;

/// Exact KL of one Gaussian weight from the log-uniform prior, zero at infinite noise.
///
/// # Formula
///
/// ```text
/// KL(a) = 2 ∫₀^√u dawson(t) dt,        u = exp(−a)/2
///       = exp(−u) Σ_n uⁿ/n! Σ_{m≤n} 1/(2m−1)
/// ```
///
/// The second line says: the mean of `1 + 1/3 + … + 1/(2N−1)` over a Poisson count `N` with mean
/// `u`, half the squared signal-to-noise ratio. All terms have one sign.
///
/// # Numerics
///
/// Relative error below 1e-13. Beyond `u = 40` the tail series
/// `−a/2 + ½(γ + ln 2) − Σ_n (2n−1)!!/(2n (2u)ⁿ)` takes over, which cannot overflow.
///
/// # Invariants
///
/// Not negative; falls in `a`; `−a/2 + 0.635181` for `a → −∞`.
///
/// # References
///
/// Derived from the integral of Kingma et al. 2015, arXiv:1506.02557.
pub fn kl_exact(log_alpha: f64) -> f64 {
    let u = 0.5 * (-log_alpha).exp();
    if u <= TAIL_SQUARE {
        poisson_mean(u)
    } else {
        let constant = 0.5 * (EULER_GAMMA + std::f64::consts::LN_2);
        -0.5 * log_alpha + constant - tail_terms(u, |n| 0.5 / n)
    }
}

/// `exp(−u) Σ_n uⁿ/n! h(n)` with `h(n) = Σ_{m≤n} 1/(2m−1)`.
fn poisson_mean(u: f64) -> f64 {
    let mut term = 1.0;
    let mut harmonic = 0.0;
    let mut sum = 0.0;
    let mut n = 0.0;
    loop {
        n += 1.0;
        term *= u / n;
        harmonic += 1.0 / (2.0 * n - 1.0);
        let next = term * harmonic;
        sum += next;
        // Terms rise until n = u and then fall faster than geometrically.
        if n > u && next <= f64::EPSILON * 1e-3 * sum {
            return (-u).exp() * sum;
        }
    }
}

/// The derivative of [`kl_exact`].
///
/// # Formula
///
/// ```text
/// dKL/da = −√u · dawson(√u),   u = exp(−a)/2
/// ```
///
/// # Invariants
///
/// Negative everywhere; smallest near `a = −1.51`, where it is −0.642372; −½ for `a → −∞`.
pub fn kl_exact_slope(log_alpha: f64) -> f64 {
    let u = 0.5 * (-log_alpha).exp();
    if u.is_infinite() {
        return -0.5;
    }
    let z = u.sqrt();
    -z * crate::numeric::dawson(z)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From mpmath 1.3.0 with 40 digits: `log_alpha`, the integral `2 ∫ dawson` by quadrature (by its
    /// tail series below −6), and `−z · dawson(z)`.
    const TABLE: [(f64, f64, f64); 24] = [
        (-700.0, 350.635_181_422_730_74, -0.5),
        (-40.0, 20.635_181_422_730_74, -0.5),
        (-20.0, 10.635_181_421_700_162, -0.500_000_001_030_576_8),
        (-12.0, 6.635_178_350_596_249, -0.500_003_072_162_805_4),
        (-8.0, 4.635_013_606_920_862, -0.500_167_900_400_515_3),
        (-6.0, 3.633_937_399_903_655_5, -0.501_248_708_659_117_6),
        (-5.0, 3.131_777_606_075_274_4, -0.503_439_482_968_046_2),
        (-4.5, 2.879_530_721_963_716_7, -0.505_750_786_155_975_1),
        (-4.4, 2.828_924_748_449_962, -0.506_379_995_007_814_9),
        (-4.3, 2.778_252_324_013_586_3, -0.507_081_210_050_189_5),
        (-4.0, 2.625_754_932_334_187_3, -0.509_714_239_112_855_7),
        (-3.5, 2.369_315_628_880_927_6, -0.516_735_741_553_352_6),
        (-2.0, 1.544_154_644_760_897, -0.611_234_277_806_839_9),
        (-1.0, 0.914_531_309_684_719_3, -0.599_703_749_532_966_6),
        (0.0, 0.426_685_604_296_044_8, -0.362_389_229_503_538_2),
        (1.0, 0.173_193_859_243_286_84, -0.162_959_640_780_038_63),
        (2.0, 0.066_168_485_463_564_32, -0.064_696_086_496_960_01),
        (3.0, 0.024_688_335_440_298_92, -0.024_484_493_384_259_717),
        (4.0, 0.009_129_932_360_648_725, -0.009_102_113_278_668_743),
        (5.0, 0.003_365_193_568_524_913, -0.003_361_417_031_518_662_5),
        (8.0, 0.000_167_721_936_439_473_64, -0.000_167_712_559_347_120_58),
        (12.0, 3.072_103_030_721_228_6e-6, -3.072_099_884_780_929_4e-6),
        (30.0, 4.678_811_484_420_014e-14, -4.678_811_484_419_941_6e-14),
        (100.0, 1.860_037_988_010_486e-44, -1.860_037_988_010_418e-44),
    ];

    #[test]
    fn matches_forty_digit_values() {
        for (a, kl, slope) in TABLE {
            let (found, found_slope) = (kl_exact(a), kl_exact_slope(a));
            assert!((found / kl - 1.0).abs() < 1e-13, "KL({a}) = {found}, wanted {kl}");
            assert!((found_slope / slope - 1.0).abs() < 1e-13, "slope({a}) = {found_slope}");
        }
    }

    #[test]
    fn the_steepest_point_and_the_limits() {
        assert!((kl_exact_slope(-1.51) + 0.642_372).abs() < 1e-6);
        assert_eq!(kl_exact(f64::INFINITY), 0.0);
        assert_eq!(kl_exact(f64::NEG_INFINITY), f64::INFINITY);
        assert!((kl_exact(-2000.0) - (1000.0 + 0.635_181_422_730_739)).abs() < 1e-9);
        assert_eq!(kl_exact_slope(-2000.0), -0.5);
        assert_eq!(kl_exact_slope(f64::INFINITY), 0.0);
        assert!(kl_exact(f64::NAN).is_nan() && kl_exact_slope(f64::NAN).is_nan());
    }

    #[test]
    fn both_branches_meet() {
        let edge = -(2.0 * TAIL_SQUARE).ln();
        let gap = kl_exact(edge + 1e-13) - kl_exact(edge - 1e-13);
        assert!(gap.abs() < 1e-12, "{gap}");
    }
}
