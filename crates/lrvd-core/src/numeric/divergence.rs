//! The cost of a wrong width, whatever its magnitude.

/// KL of `N(0, ratio²)` from `N(0, 1)`.
///
/// # Formula
///
/// ```text
/// ½·(ratio² − 1) − ln ratio
/// ```
///
/// # Numerics
///
/// Near 1, where the terms cancel, `ratio² − 1` goes through `ln_1p`; elsewhere the logarithm is
/// taken of the ratio itself, so that a ratio far below `√ε` keeps its digits. 0 costs `+inf`.
pub fn width_divergence(ratio: f64) -> f64 {
    let excess = ratio * ratio - 1.0;
    if excess.abs() < 0.5 { 0.5 * (excess - excess.ln_1p()) } else { 0.5 * excess - ratio.ln() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_agree_where_they_meet_and_keep_their_digits_where_they_do_not() {
        for ratio in [0.5_f64.sqrt(), 1.5_f64.sqrt(), 0.8, 1.1] {
            let direct = 0.5 * (ratio * ratio - 1.0) - ratio.ln();
            assert!((width_divergence(ratio) - direct).abs() < 1e-15, "{ratio}");
        }
        assert_eq!(width_divergence(1.0), 0.0);
        assert!((width_divergence(1.0 + 1e-6) / 1e-12 - 1.0).abs() < 1e-3);
        // ½(10^-24 − 1) + 12·ln 10: one ulp of 1 is all that `ratio² − 1` keeps of the ratio.
        let wanted = -0.5 + 12.0 * std::f64::consts::LN_10;
        assert!((width_divergence(1e-12) / wanted - 1.0).abs() < 1e-15);
        assert_eq!(width_divergence(0.0), f64::INFINITY);
    }
}
