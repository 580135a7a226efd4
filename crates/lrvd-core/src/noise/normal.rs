//! The Box-Muller pair, once in `f64` as defined and once in `f32` for speed.

#![expect(
    clippy::inline_always,
    reason = "callers compile the loops for the vector units of their machine"
)]

use super::philox::BATCH;

/// Spacing of the uniform grid, `2^-24`: every grid point is an exact `f32`.
pub(super) const GRID: f32 = 1.0 / 16_777_216.0;

/// The defining formula of one pair, in `f64`.
pub(super) fn normal_pair(x0: u32, x1: u32) -> (f64, f64) {
    let u = f64::from((x0 >> 8) + 1) * f64::from(GRID);
    let v = f64::from(x1 >> 8) * f64::from(GRID);
    let radius = (-2.0 * u.ln()).sqrt();
    let (sin, cos) = (std::f64::consts::TAU * v).sin_cos();
    (radius * cos, radius * sin)
}

/// One batch of pairs. Every step is elementwise on plain arrays, which is what lets it vectorise.
#[inline(always)]
pub(super) fn box_muller(x0: &[u32; BATCH], x1: &[u32; BATCH], even: &mut [f32], odd: &mut [f32]) {
    let (Ok(even), Ok(odd)) =
        (<&mut [f32; BATCH]>::try_from(even), <&mut [f32; BATCH]>::try_from(odd))
    else {
        unreachable!("both halves of a pair array hold one batch")
    };
    for i in 0..BATCH {
        let radius = (-2.0 * ln_of_grid_point((x0[i] >> 8) + 1)).sqrt();
        let (cos, sin) = cos_sin_of_turn(x1[i] >> 8);
        even[i] = radius * cos;
        odd[i] = radius * sin;
    }
}

/// `ln(k·2^-24)` for `1 ≤ k ≤ 2^24`.
///
/// `k = m·2^e` with `m` in `[√½, √2)`, then `ln m = 2·artanh s`, `s = (m−1)/(m+1)`, by its series up to `s^9`;
/// the first omitted term is below `7e-10`. Near `k = 2^24` the result keeps its *relative* accuracy, which
/// the square root that follows needs.
#[inline(always)]
fn ln_of_grid_point(k: u32) -> f32 {
    /// Bits of `√½`: subtracting them moves the boundary between two exponents to `√2`.
    const SQRT_HALF_BITS: i32 = 0x3f35_04f3;
    let bits = (k as i32 as f32).to_bits() as i32 - SQRT_HALF_BITS;
    let exponent = (bits >> 23) - 24;
    let m = f32::from_bits(((bits & 0x007f_ffff) + SQRT_HALF_BITS) as u32);
    let s = (m - 1.0) / (m + 1.0);
    let s2 = s * s;
    let series = s2 * (2.0 / 3.0 + s2 * (2.0 / 5.0 + s2 * (2.0 / 7.0 + s2 * (2.0 / 9.0))));
    exponent as f32 * std::f32::consts::LN_2 + (2.0 * s + s * series)
}

/// `(cos, sin)` of `j·2^-24` turns, `0 ≤ j < 2^24`.
///
/// The nearest quarter turn is split off in integers, without error; the rest is in `[−π/4, π/4]`, where
/// the Taylor series up to `x^9` and `x^8` are within `2.5e-8`.
#[inline(always)]
fn cos_sin_of_turn(j: u32) -> (f32, f32) {
    const QUARTER: u32 = 1 << 22;
    let quarter = (j + QUARTER / 2) >> 22;
    let x = (j as i32 - (quarter << 22) as i32) as f32 * (std::f32::consts::TAU * GRID);
    let x2 = x * x;
    let sin_tail = -1.0 / 6.0 + x2 * (1.0 / 120.0 + x2 * (-1.0 / 5040.0 + x2 * (1.0 / 362_880.0)));
    let cos_tail = 1.0 / 24.0 + x2 * (-1.0 / 720.0 + x2 * (1.0 / 40_320.0));
    let sin = (x + x * (x2 * sin_tail)).to_bits();
    let cos = (1.0 + x2 * (-0.5 + x2 * cos_tail)).to_bits();
    // Odd quarters exchange the two; signs follow the quadrant. All in bits, without a branch.
    let exchange = (quarter & 1).wrapping_neg() & (sin ^ cos);
    let cos_sign = (quarter.wrapping_add(1) & 2) << 30;
    let sin_sign = (quarter & 2) << 30;
    (f32::from_bits((cos ^ exchange) ^ cos_sign), f32::from_bits((sin ^ exchange) ^ sin_sign))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logarithm_and_circle_hold_on_their_whole_grids() {
        // Every 61st grid point (a prime, so every quadrant boundary neighbourhood is visited) and all edges.
        let edges =
            (0..8).map(|eighth| eighth << 21).chain([1, 2, 3, (1 << 21) - 1, (1 << 24) - 1]);
        let (mut worst_radius, mut worst_circle) = (0.0f64, 0.0f64);
        for j in edges.chain((0..1u32 << 24).step_by(61)) {
            let exact = (-2.0 * (f64::from(j + 1) / 16_777_216.0).ln()).sqrt();
            let radius = f64::from((-2.0 * ln_of_grid_point(j + 1)).sqrt());
            worst_radius = worst_radius.max((radius - exact).abs());
            let (cos, sin) = cos_sin_of_turn(j);
            let angle = std::f64::consts::TAU * f64::from(j) / 16_777_216.0;
            worst_circle = worst_circle.max((f64::from(cos) - angle.cos()).abs());
            worst_circle = worst_circle.max((f64::from(sin) - angle.sin()).abs());
        }
        assert!(worst_radius < 6e-7, "radius off by {worst_radius:e}");
        assert!(worst_circle < 1.5e-7, "circle off by {worst_circle:e}");
    }
}
