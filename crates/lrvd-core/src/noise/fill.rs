//! Uniform and standard-normal numbers in slices.

#![expect(
    clippy::inline_always,
    reason = "callers compile the loops for the vector units of their machine"
)]

use super::NoiseKey;
use super::philox::{BATCH, LANES, philox, philox_batch};

/// Spacing of the uniform grid, `2^-24`: every grid point is an exact `f32`.
const GRID: f32 = 1.0 / 16_777_216.0;

/// Pairs of normals in a batch of blocks.
const PAIRS: usize = 2 * BATCH;
/// Numbers in a batch of blocks.
const NUMBERS: usize = LANES * BATCH;

/// Fills `out` with uniform numbers in `[0, 1)`: elements `first_element..` of `key`.
///
/// ```text
/// out[i] = (word >> 8) · 2^-24,   word = lane e mod 4 of block e div 4,   e = first_element + i
/// ```
///
/// Exact: the same bits on every machine, however the range is cut.
pub fn fill_uniform(key: NoiseKey, first_element: u64, out: &mut [f32]) {
    fill_batches::<Uniform>(key, first_element, out);
}

/// Fills `out` with standard-normal numbers: elements `first_element..` of `key`.
///
/// Words `(x0, x1)` and `(x2, x3)` of a block make one Box-Muller pair each:
///
/// ```text
/// u = ((x0 >> 8) + 1) · 2^-24  in (0, 1]        v = (x1 >> 8) · 2^-24  in [0, 1)
/// z0 = √(−2·ln u)·cos(2π·v)                     z1 = √(−2·ln u)·sin(2π·v)
/// ```
///
/// `ln`, `cos` and `sin` are polynomials in plain multiplications and additions, so the bits are the
/// same on every CPU and do not depend on how the range is cut into calls or threads. The largest distance to
/// [`fill_normal_f64`] is below `1e-6` (pinned by a test). The largest value is `√(48·ln 2) = 5.768`: the
/// missing tail has probability `8e-9`, well below what a training run can see.
///
/// Source: Box, Muller 1958. The generator: [`philox`].
#[inline(always)]
pub fn fill_normal(key: NoiseKey, first_element: u64, out: &mut [f32]) {
    fill_batches::<Normal>(key, first_element, out);
}

/// Fills `out` with the normals of [`fill_normal`], evaluated in `f64` from the same words.
pub fn fill_normal_f64(key: NoiseKey, first_element: u64, out: &mut [f64]) {
    let philox_key = key.philox_key();
    let mut block = u64::MAX;
    let mut normals = [0.0; LANES];
    for (element, number) in (first_element..).zip(out) {
        if element / LANES as u64 != block {
            block = element / LANES as u64;
            let [x0, x1, x2, x3] = philox(key.philox_counter(block as u32), philox_key);
            let (first, second) = (normal_pair(x0, x1), normal_pair(x2, x3));
            normals = [first.0, first.1, second.0, second.1];
        }
        *number = normals[(element % LANES as u64) as usize];
    }
}

/// Numbers from the words of a batch of blocks. A trait, because a closure is not compiled for the vector units of its
/// caller.
trait Distribution {
    fn numbers(words: &[[u32; BATCH]; LANES], numbers: &mut [f32; NUMBERS]);
}

struct Uniform;

impl Distribution for Uniform {
    #[inline(always)]
    fn numbers(words: &[[u32; BATCH]; LANES], numbers: &mut [f32; NUMBERS]) {
        for i in 0..BATCH {
            for lane in 0..LANES {
                numbers[LANES * i + lane] = unit(words[lane][i]);
            }
        }
    }
}

struct Normal;

impl Distribution for Normal {
    #[inline(always)]
    fn numbers([x0, x1, x2, x3]: &[[u32; BATCH]; LANES], numbers: &mut [f32; NUMBERS]) {
        let [mut even, mut odd] = [[0.0f32; PAIRS]; 2];
        let (even_first, even_second) = even.split_at_mut(BATCH);
        let (odd_first, odd_second) = odd.split_at_mut(BATCH);
        box_muller(x0, x1, even_first, odd_first);
        box_muller(x2, x3, even_second, odd_second);
        for i in 0..BATCH {
            numbers[LANES * i] = even_first[i];
            numbers[LANES * i + 1] = odd_first[i];
            numbers[LANES * i + 2] = even_second[i];
            numbers[LANES * i + 3] = odd_second[i];
        }
    }
}

/// Writes whole batches of blocks and copies the requested part of the first and last one.
///
/// Elements are computed in batches that start at whole blocks; since every lane is computed by the same
/// elementwise operations, an element's value does not depend on its place in the batch.
#[inline(always)]
fn fill_batches<D: Distribution>(key: NoiseKey, first_element: u64, out: &mut [f32]) {
    let skipped = (first_element % LANES as u64) as usize;
    let mut block = (first_element / LANES as u64) as u32;
    let mut numbers = [0.0f32; NUMBERS];
    let (head, rest) =
        out.split_at_mut(if skipped == 0 { 0 } else { out.len().min(NUMBERS - skipped) });
    if !head.is_empty() {
        D::numbers(&philox_batch(key, block), &mut numbers);
        head.copy_from_slice(&numbers[skipped..skipped + head.len()]);
        block = block.wrapping_add(BATCH as u32);
    }
    let mut whole = rest.chunks_exact_mut(NUMBERS);
    for chunk in &mut whole {
        D::numbers(&philox_batch(key, block), &mut numbers);
        chunk.copy_from_slice(&numbers);
        block = block.wrapping_add(BATCH as u32);
    }
    let tail = whole.into_remainder();
    if !tail.is_empty() {
        D::numbers(&philox_batch(key, block), &mut numbers);
        tail.copy_from_slice(&numbers[..tail.len()]);
    }
}

/// A word's upper 24 bits as a number in `[0, 1)`. Through `i32`, for which every target has a vector conversion.
#[inline(always)]
fn unit(word: u32) -> f32 {
    (word >> 8) as i32 as f32 * GRID
}

/// The defining formula of one pair, in `f64`.
fn normal_pair(x0: u32, x1: u32) -> (f64, f64) {
    let u = f64::from((x0 >> 8) + 1) * f64::from(GRID);
    let v = f64::from(x1 >> 8) * f64::from(GRID);
    let radius = (-2.0 * u.ln()).sqrt();
    let (sin, cos) = (std::f64::consts::TAU * v).sin_cos();
    (radius * cos, radius * sin)
}

/// One batch of pairs. Every step is elementwise on plain arrays, which is what lets it vectorise.
#[inline(always)]
fn box_muller(x0: &[u32; BATCH], x1: &[u32; BATCH], even: &mut [f32], odd: &mut [f32]) {
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
    use crate::noise::{Stream, module_id};
    use proptest::prelude::*;
    use statrs::distribution::{ContinuousCDF as _, Normal};

    fn key() -> NoiseKey {
        NoiseKey::new(20_240_607).at_step(12).for_module(module_id("layer.3.value"))
    }

    #[test]
    fn uniform_numbers_are_the_words_on_a_grid() {
        let mut numbers = [0.0f32; 37];
        fill_uniform(key(), 6, &mut numbers);
        for (i, &number) in numbers.iter().enumerate() {
            let element = i as u32 + 6;
            let word =
                philox(key().philox_counter(element / 4), key().philox_key())[element as usize % 4];
            assert_eq!(f64::from(number), f64::from(word >> 8) / 16_777_216.0);
        }
    }

    #[test]
    fn f32_normals_are_the_f64_ones_to_one_millionth() {
        const N: usize = 400_003;
        let (mut single, mut double) = (vec![0.0f32; N], vec![0.0f64; N]);
        fill_normal(key(), 3, &mut single);
        fill_normal_f64(key(), 3, &mut double);
        let worst =
            single.iter().zip(&double).map(|(&s, &d)| (f64::from(s) - d).abs()).fold(0.0, f64::max);
        assert!(worst < 1e-6, "largest distance {worst:e}");
    }

    /// Largest distance of the empirical distribution from `cdf`, times `√n`.
    fn kolmogorov(mut sample: Vec<f64>, cdf: impl Fn(f64) -> f64) -> f64 {
        sample.sort_by(f64::total_cmp);
        let n = sample.len() as f64;
        let distance = sample.iter().enumerate().fold(0.0f64, |worst, (i, &x)| {
            let p = cdf(x);
            worst.max((p - i as f64 / n).abs()).max(((i + 1) as f64 / n - p).abs())
        });
        distance * n.sqrt()
    }

    #[test]
    fn distributions_pass_kolmogorov_smirnov() {
        // n = 100 000; √n·D > 2.5 has probability 2·exp(−2·2.5²) = 7e-6 under the hypothesis.
        const N: usize = 100_000;
        let mut sample = vec![0.0f32; N];
        fill_normal(key(), 0, &mut sample);
        let normal = Normal::standard();
        let sorted = sample.iter().map(|&x| f64::from(x)).collect();
        let distance = kolmogorov(sorted, |x| normal.cdf(x));
        assert!(distance < 2.5, "normal: {distance}");
        fill_uniform(key(), 0, &mut sample);
        let distance = kolmogorov(sample.iter().map(|&x| f64::from(x)).collect(), |x| x);
        assert!(distance < 2.5, "uniform: {distance}");
    }

    #[test]
    fn keys_that_differ_in_one_field_are_uncorrelated() {
        // The mean product of independent normals has sd 1/√n: bound 5/√n at n = 200 000.
        const N: usize = 200_000;
        let base = key();
        let others = [
            base.on_stream(Stream::WEIGHT_B),
            base.with_use(1),
            base.at_step(13),
            base.for_module(base.module + 1),
            NoiseKey { seed: base.seed + 1, ..base },
            NoiseKey { seed: base.seed + (1 << 32), ..base },
        ];
        let (mut x, mut y) = (vec![0.0f32; N], vec![0.0f32; N]);
        fill_normal(base, 0, &mut x);
        for other in others {
            fill_normal(other, 0, &mut y);
            let product = x.iter().zip(&y).map(|(&x, &y)| f64::from(x) * f64::from(y)).sum::<f64>();
            assert!((product / N as f64).abs() < 5.0 / (N as f64).sqrt(), "{other:?}: {product}");
        }
        // Neighbours within one key: lags 1 to 4 cover pair partner, pair and block.
        for lag in 1..=4 {
            let product =
                x.iter().zip(&x[lag..]).map(|(&x, &y)| f64::from(x) * f64::from(y)).sum::<f64>();
            assert!((product / N as f64).abs() < 5.0 / (N as f64).sqrt(), "lag {lag}: {product}");
        }
    }

    proptest! {
        #[test]
        fn the_value_of_an_element_does_not_depend_on_the_cut(
            first in 0u64..1000, length in 0usize..300, cuts in prop::collection::vec(0usize..300, 0..4)
        ) {
            let (mut whole, mut pieces) = (vec![0.0f32; length], vec![0.0f32; length]);
            fill_normal(key(), first, &mut whole);
            let mut cuts: Vec<_> = cuts.into_iter().map(|c| c.min(length)).chain([0, length]).collect();
            cuts.sort_unstable();
            for pair in cuts.windows(2) {
                fill_normal(key(), first + pair[0] as u64, &mut pieces[pair[0]..pair[1]]);
            }
            prop_assert_eq!(&whole, &pieces);
            let mut long = vec![0.0f32; first as usize + length];
            fill_normal(key(), 0, &mut long);
            prop_assert_eq!(&whole[..], &long[first as usize..]);
        }
    }

    #[test]
    fn far_elements_wrap_with_the_block_index() {
        // Block 2^32 is block 0 again; the run crosses the boundary.
        let (mut across, mut start) = ([0.0f32; 12], [0.0f32; 8]);
        fill_normal(key(), (1 << 34) - 4, &mut across);
        fill_normal(key(), 0, &mut start);
        assert_eq!(across[4..], start);
        let mut double = [0.0f64; 12];
        fill_normal_f64(key(), (1 << 34) - 4, &mut double);
        assert!(across.iter().zip(&double).all(|(&s, &d)| (f64::from(s) - d).abs() < 1e-6));
    }
}
