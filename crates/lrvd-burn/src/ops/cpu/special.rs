//! Special functions in a form the compiler can vectorise.
//!
//! They use multiplication, addition, division and integer operations only: no call,
//! no branch, no fused multiply-add. They give the same bits on every CPU.

#![expect(clippy::inline_always, reason = "loops vectorise only with the functions inside")]

use std::f32::consts::{LN_2, LOG2_E};

/// `1.5 * 2^23`: adding it rounds an `f32` below `2^22` to an integer in the low mantissa bits.
const ROUNDER: f32 = 12_582_912.0;

/// `exp(x)`, within 2 units in the last place; below -87.3 it stays at the smallest normal number.
///
/// `x = n ln 2 + r` with `|r| <= ln 2 / 2`, then a polynomial of degree 6 whose relative error is
/// below `4e-9`. NaN stays NaN.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    /// Ends of the range in which `2^n` is a normal number.
    const LOW: f32 = -87.3;
    const HIGH: f32 = 88.3;
    /// `ln 2` cut to 12 bits, so that `n` times it is exact, and the rest.
    const LN_2_HEAD: f32 = 0.693_115_23;
    const LN_2_REST: f32 = 3.194_618_5e-5;
    let x = if x < LOW { LOW } else { x };
    let x = if x > HIGH { HIGH } else { x };
    let rounded = x * LOG2_E + ROUNDER;
    let n = rounded - ROUNDER;
    let r = (x - n * LN_2_HEAD) - n * LN_2_REST;
    let q = 0.001_381_454;
    let q = q * r + 0.008_368_717;
    let q = q * r + 0.041_668_39;
    let q = q * r + 0.166_665_21;
    let q = q * r + 0.499_999_94;
    let power = f32::from_bits(rounded.to_bits().wrapping_add(127) << 23);
    (1.0 + (r + r * r * q)) * power
}

/// Exponent and mantissa of `x = 2^exponent * m` with `m` in `[sqrt(1/2), sqrt(2))`; `x > 0` normal.
#[inline(always)]
fn split(x: f32) -> (f32, f32) {
    /// Bits of `sqrt(1/2)`: subtracting them moves the exponent's border to `sqrt(2)`.
    const SQRT_HALF: i32 = 0x3f35_04f3;
    // Wrapping, though nothing wraps: overflow checks of debug builds would stop vectorisation.
    let bits = (x.to_bits() as i32).wrapping_sub(SQRT_HALF);
    let m = f32::from_bits((bits & 0x007f_ffff).wrapping_add(SQRT_HALF) as u32);
    ((bits >> 23) as f32, m)
}

/// `ln(1 + f)` for `1 + f` in `[sqrt(1/2), sqrt(2)]`: `2 artanh(s)` with `s = f / (2 + f)`.
///
/// The polynomial in `s^2` replaces the series; its relative error is below `1e-9`.
#[inline(always)]
fn ln_near_one(f: f32) -> f32 {
    let s = f / (2.0 + f);
    let z = s * s;
    let q = 0.298_713_86;
    let q = q * z + 0.399_775_6;
    let q = q * z + 0.666_667_76;
    2.0 * s + s * z * q
}

/// `ln(x)` for positive normal `x`.
#[inline(always)]
pub(crate) fn ln(x: f32) -> f32 {
    let (exponent, m) = split(x);
    exponent * LN_2 + ln_near_one(m - 1.0)
}

/// `ln(1 + x)` for `x >= 0`, with full relative accuracy near 0.
#[inline(always)]
pub(crate) fn ln_1p(x: f32) -> f32 {
    let (exponent, m) = split(1.0 + x);
    // With exponent 0 the summand is `x` itself, free of the rounding of `1 + x`.
    let f = if exponent == 0.0 { x } else { m - 1.0 };
    exponent * LN_2 + ln_near_one(f)
}

/// Normal distribution function and density at `x`.
///
/// # Formula
///
/// ```text
/// Phi(-u) = exp(-u²/2) · t · (1/2 + y·R(y)),   t = 1 / (1 + 0.34 u),   y = 1 - t,   u = |x|
/// ```
///
/// `R` is a polynomial of degree 7, fitted to the Mills ratio with a relative error below `2.6e-8`
/// on `0 <= u <= 13.3`, where `f32` ends. The tail keeps its relative accuracy: with `erf` it would
/// be the difference of two numbers near 1.
#[inline(always)]
pub(crate) fn normal(x: f32) -> (f32, f32) {
    const INV_SQRT_TAU: f32 = 0.398_942_3;
    let u = x.abs();
    let e = exp(-0.5 * (u * u));
    let v = 0.34 * u;
    let t = 1.0 / (1.0 + v);
    let y = v * t;
    let p = -0.026_511_211;
    let p = p * y + 0.070_775_4;
    let p = p * y - 0.029_816_97;
    let p = p * y - 0.028_810_537;
    let p = p * y - 0.077_293_17;
    let p = p * y + 0.084_734_89;
    let p = p * y + 0.315_900_24;
    let p = p * y - 0.673_359_9;
    let tail = e * (t * (0.5 + y * p));
    (if x > 0.0 { 1.0 - tail } else { tail }, e * INV_SQRT_TAU)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Largest relative distance of `f` from `exact` over `n` points of `low..high`.
    fn worst(low: f64, high: f64, f: fn(f32) -> f32, exact: fn(f64) -> f64) -> f64 {
        let n = 200_000;
        (0..=n)
            .map(|i| (low + (high - low) * f64::from(i) / f64::from(n)) as f32)
            .map(|x| (f64::from(f(x)) / exact(f64::from(x)) - 1.0).abs())
            .fold(0.0, f64::max)
    }

    #[test]
    fn exponential_and_logarithm_are_within_two_units_in_the_last_place() {
        assert!(worst(-87.0, 88.0, exp, f64::exp) < 2.0e-7);
        assert!(worst(1.0e-8, 0.9, ln, f64::ln) < 2.0e-7);
        assert!(worst(1.1, 1.0e6, ln, f64::ln) < 2.0e-7);
        assert!(worst(1.0e-6, 3.0, ln_1p, f64::ln_1p) < 2.5e-7);
        assert!(worst(1.0, 1.0e9, ln_1p, f64::ln_1p) < 2.0e-7);
    }

    #[test]
    fn exponential_at_the_ends() {
        assert_eq!(exp(0.0), 1.0);
        assert!(exp(f32::NEG_INFINITY) < 1.3e-38);
        assert!(exp(1000.0).is_finite());
        assert!(exp(f32::NAN).is_nan());
    }

    /// Phi at -8, -5, -3, -2, -1, -0.5, 0 to 20 digits (mpmath, 50-digit working precision).
    const PHI: [(f32, f64); 7] = [
        (-8.0, 6.220_960_574_271_784_124e-16),
        (-5.0, 2.866_515_718_791_939_117e-7),
        (-3.0, 0.001_349_898_031_630_094_526_7),
        (-2.0, 0.022_750_131_948_179_207_2),
        (-1.0, 0.158_655_253_931_457_051_41),
        (-0.5, 0.308_537_538_725_986_896_36),
        (0.0, 0.5),
    ];

    #[test]
    fn normal_distribution_function_keeps_its_tail() {
        for (x, phi) in PHI {
            let (below, _) = normal(x);
            assert!((f64::from(below) / phi - 1.0).abs() < 3e-6, "{x}: {below}");
            let (above, _) = normal(-x);
            assert!((f64::from(above) - (1.0 - phi)).abs() < 1.5e-7, "{x}: {above}");
        }
    }
}
