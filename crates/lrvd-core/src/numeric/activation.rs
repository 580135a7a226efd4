//! The logistic function and its integral without overflow.

/// Logistic function.
///
/// # Formula
///
/// ```text
/// logistic(z) = 1 / (1 + exp(−z))
/// ```
///
/// # Numerics
///
/// Both tails keep full relative accuracy: `1 − logistic(z)` should be written `logistic(−z)`.
pub fn logistic(z: f64) -> f64 {
    if z >= 0.0 {
        1.0 / (1.0 + (-z).exp())
    } else {
        let e = z.exp();
        e / (1.0 + e)
    }
}

/// Softplus, the integral of the logistic function.
///
/// # Formula
///
/// ```text
/// softplus(z) = ln(1 + exp(z)) = max(z, 0) + ln(1 + exp(−|z|))
/// ```
///
/// # Numerics
///
/// Never overflows; for `z → −∞` it equals `exp(z)` to full relative accuracy.
pub fn softplus(z: f64) -> f64 {
    z.max(0.0) + (-z.abs()).exp().ln_1p()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logistic_is_symmetric_and_keeps_its_tails() {
        assert_eq!(logistic(0.0), 0.5);
        for z in [0.3, 2.0, 17.5] {
            assert!((logistic(z) + logistic(-z) - 1.0).abs() < 1e-15);
        }
        let tail = logistic(-60.0);
        assert!((tail / (-60.0_f64).exp() - 1.0).abs() < 1e-14);
        assert_eq!(logistic(1e6), 1.0);
        assert_eq!(logistic(-1e6), 0.0);
    }

    #[test]
    fn softplus_matches_its_definition_and_both_asymptotes() {
        assert!((softplus(0.0) - std::f64::consts::LN_2).abs() < 1e-16);
        assert!((softplus(1.5) - (1.0 + 1.5_f64.exp()).ln()).abs() < 1e-15);
        assert_eq!(softplus(800.0), 800.0);
        assert!((softplus(-60.0) / (-60.0_f64).exp() - 1.0).abs() < 1e-14);
        assert_eq!(softplus(f64::NEG_INFINITY), 0.0);
        assert_eq!(softplus(f64::INFINITY), f64::INFINITY);
    }
}
