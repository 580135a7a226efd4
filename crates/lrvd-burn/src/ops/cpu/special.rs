//! Special functions in a form the compiler can vectorise, and their accurate twins.
//!
//! The `f32` functions use multiplication, addition, division and integer operations only: no call,
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
pub(super) fn exp_f32(x: f32) -> f32 {
    /// Where `2^n` would leave the normal numbers.
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
fn split_f32(x: f32) -> (f32, f32) {
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
fn ln_near_one_f32(f: f32) -> f32 {
    let s = f / (2.0 + f);
    let z = s * s;
    let q = 0.298_713_86;
    let q = q * z + 0.399_775_6;
    let q = q * z + 0.666_667_76;
    2.0 * s + s * z * q
}

/// `ln(x)` for positive normal `x`.
#[inline(always)]
pub(super) fn ln_f32(x: f32) -> f32 {
    let (exponent, m) = split_f32(x);
    exponent * LN_2 + ln_near_one_f32(m - 1.0)
}

/// `ln(1 + x)` for `x >= 0`, with full relative accuracy near 0.
#[inline(always)]
pub(super) fn ln_1p_f32(x: f32) -> f32 {
    let (exponent, m) = split_f32(1.0 + x);
    // With exponent 0 the summand is `x` itself, free of the rounding of `1 + x`.
    let f = if exponent == 0.0 { x } else { m - 1.0 };
    exponent * LN_2 + ln_near_one_f32(f)
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
pub(super) fn normal_f32(x: f32) -> (f32, f32) {
    const INV_SQRT_TAU: f32 = 0.398_942_3;
    let u = x.abs();
    let e = exp_f32(-0.5 * (u * u));
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

/// Normal distribution function and density at `x`, to the precision of `f64`.
///
/// As [`normal_f32`], with `t = 4 / (4 + u)` and a Chebyshev series in `2t - 1` behind it, whose first omitted term is below `1e-17`.
pub(super) fn normal_f64(x: f64) -> (f64, f64) {
    const INV_SQRT_TAU: f64 = 0.398_942_280_401_432_7;
    let u = x.abs();
    let e = (-0.5 * u * u).exp();
    let t = 4.0 / (4.0 + u);
    // Clenshaw's recurrence.
    let y = 2.0 * t - 1.0;
    let (mut b1, mut b2) = (0.0, 0.0);
    for &c in MILLS[1..].iter().rev() {
        (b1, b2) = (2.0 * y * b1 - b2 + c, b1);
    }
    let tail = e * t * (y * b1 - b2 + MILLS[0]);
    (if x > 0.0 { 1.0 - tail } else { tail }, e * INV_SQRT_TAU)
}

/// Chebyshev coefficients of `Phi(-u) exp(u²/2) / t`, `u = 4 (1 - t) / t`, in `2t - 1`.
///
/// Computed with 40 digits at 60 Chebyshev nodes from the complementary error function.
const MILLS: [f64; 24] = [
    0.242_612_801_141_519_14,
    0.187_927_204_209_892_63,
    0.055_548_388_918_812_76,
    0.012_129_438_315_111_522,
    0.001_731_480_124_060_620_1,
    8.014_961_859_953_749e-5,
    -2.513_684_790_802_669_6e-5,
    -4.725_842_254_926_741e-6,
    2.525_892_213_686_577_4e-7,
    1.536_333_687_349_456e-7,
    -8.452_550_300_172_844e-10,
    -5.171_627_015_435_735e-9,
    -2.820_650_908_113_649e-11,
    1.943_503_807_096_784e-10,
    -2.485_356_047_819_912e-12,
    -7.936_207_374_661_821e-12,
    4.606_201_711_146_626e-13,
    3.282_154_116_889_912e-13,
    -4.353_840_666_594_439e-14,
    -1.226_818_504_016_989e-14,
    3.232_846_047_102_02e-15,
    3.045_166_095_452_182_8e-16,
    -2.013_036_877_410_073_2e-16,
    7.151_219_948_141_993e-18,
];

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
        assert!(worst(-87.0, 88.0, exp_f32, f64::exp) < 2.0e-7);
        assert!(worst(1.0e-8, 0.9, ln_f32, f64::ln) < 2.0e-7);
        assert!(worst(1.1, 1.0e6, ln_f32, f64::ln) < 2.0e-7);
        assert!(worst(1.0e-6, 3.0, ln_1p_f32, f64::ln_1p) < 2.5e-7);
        assert!(worst(1.0, 1.0e9, ln_1p_f32, f64::ln_1p) < 2.0e-7);
    }

    #[test]
    fn exponential_at_the_ends() {
        assert_eq!(exp_f32(0.0), 1.0);
        assert!(exp_f32(f32::NEG_INFINITY) < 1.3e-38);
        assert!(exp_f32(1000.0).is_finite());
        assert!(exp_f32(f32::NAN).is_nan());
    }

    /// Phi at -8, -5, -3, -2, -1, -0.5, 0 to 20 digits (mpmath, 50-digit working precision).
    const PHI: [(f64, f64); 7] = [
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
            let (below, _) = normal_f64(x);
            let (above, _) = normal_f64(-x);
            assert!((below / phi - 1.0).abs() < 4e-15, "{x}: {below}");
            assert!((above - (1.0 - phi)).abs() < 2e-16 || x == 0.0, "{x}: {above}");
            let (single, _) = normal_f32(x as f32);
            assert!((f64::from(single) / phi - 1.0).abs() < 3e-6, "{x}: {single}");
        }
    }

    #[test]
    fn single_precision_follows_double_precision() {
        for i in -140_000..=140_000 {
            let x = i as f32 * 1e-4;
            let ((p, d), (p64, d64)) = (normal_f32(x), normal_f64(f64::from(x)));
            assert!((f64::from(p) - p64).abs() < 1.5e-7, "{x}: {p} against {p64}");
            assert!((f64::from(d) - d64).abs() < 1e-7, "{x}: {d} against {d64}");
        }
    }
}
