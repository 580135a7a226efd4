//! The element types the CPU implementations are written for.

#![expect(clippy::inline_always, reason = "loops vectorise only with the functions inside")]

use std::iter::Sum;
use std::ops::{Add, AddAssign, Div, Mul, Neg, Sub};

use burn::tensor::{Shape, TensorData};
use burn_flex::FlexTensor;
use lrvd_core::noise::{NoiseKey, fill_normal, fill_normal_f64};

use super::special::{exp_f32, ln_1p_f32, ln_f32, normal_f32, normal_f64};

/// `f32`, with fast approximations, or `f64`, with accurate functions.
pub(crate) trait Real:
    Copy
    + Default
    + PartialOrd
    + Send
    + Sync
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
    + AddAssign
    + Sum
    + 'static
{
    const ZERO: Self;
    const ONE: Self;

    /// Nearest value to `x`.
    fn of(x: f64) -> Self;
    fn wide(self) -> f64;
    /// Overflow and underflow saturate at finite, non-zero numbers in `f32`.
    fn exp(self) -> Self;
    /// For positive normal numbers.
    fn ln(self) -> Self;
    /// For numbers from 0.
    fn ln_1p(self) -> Self;
    fn sqrt(self) -> Self;
    /// Standard normal distribution function and density.
    fn normal(self) -> (Self, Self);
    /// Standard-normal elements `first..` of `key`.
    fn fill_normal(key: NoiseKey, first: u64, out: &mut [Self]);

    /// Elements of a contiguous tensor.
    fn slice(tensor: &FlexTensor) -> &[Self];
    /// Elements of a contiguous tensor, copied first if another tensor shares them.
    fn slice_mut(tensor: &mut FlexTensor) -> &mut [Self];
    /// A tensor that takes over `values`.
    fn tensor(values: Vec<Self>, shape: Shape) -> FlexTensor;
}

macro_rules! real {
    ($float:ty, $exp:expr, $ln:expr, $ln_1p:expr, $normal:expr, $fill_normal:expr) => {
        impl Real for $float {
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;

            #[inline(always)]
            fn of(x: f64) -> Self {
                x as Self
            }
            #[inline(always)]
            fn wide(self) -> f64 {
                f64::from(self)
            }
            #[inline(always)]
            fn exp(self) -> Self {
                $exp(self)
            }
            #[inline(always)]
            fn ln(self) -> Self {
                $ln(self)
            }
            #[inline(always)]
            fn ln_1p(self) -> Self {
                $ln_1p(self)
            }
            #[inline(always)]
            fn sqrt(self) -> Self {
                self.sqrt()
            }
            #[inline(always)]
            fn normal(self) -> (Self, Self) {
                $normal(self)
            }
            fn fill_normal(key: NoiseKey, first: u64, out: &mut [Self]) {
                $fill_normal(key, first, out);
            }
            fn slice(tensor: &FlexTensor) -> &[Self] {
                tensor.as_slice::<Self>().expect("a contiguous tensor of this element type")
            }
            fn slice_mut(tensor: &mut FlexTensor) -> &mut [Self] {
                let range =
                    tensor.layout().contiguous_offsets().expect("made contiguous by the caller");
                &mut tensor.storage_mut::<Self>()[range.0..range.1]
            }
            fn tensor(values: Vec<Self>, shape: Shape) -> FlexTensor {
                FlexTensor::from_data(TensorData::new(values, shape))
            }
        }
    };
}

/// [`fill_normal`] compiled for the vector units of the machine; the same bits.
fn fill_normal_wide(key: NoiseKey, first: u64, out: &mut [f32]) {
    struct Fill<'a>(NoiseKey, u64, &'a mut [f32]);
    impl pulp::NullaryFnOnce for Fill<'_> {
        type Output = ();

        #[inline(always)]
        fn call(self) {
            fill_normal(self.0, self.1, self.2);
        }
    }
    pulp::Arch::new().dispatch(Fill(key, first, out));
}

real!(f32, exp_f32, ln_f32, ln_1p_f32, normal_f32, fill_normal_wide);
real!(f64, f64::exp, f64::ln, f64::ln_1p, normal_f64, fill_normal_f64);

/// Independent partial results of a reduction: two vectors of the widest units, to hide the latency of one. With
/// fewer the compiler unrolls the loop over them before it looks for vectors, and finds none.
const LANES: usize = 32;

/// Reduces `values` by `combine` in [`LANES`] interleaved parts, so that the loop vectorises.
#[inline(always)]
fn reduce<E: Real>(values: &[E], start: E, combine: impl Fn(E, E) -> E) -> E {
    let mut lanes = [start; LANES];
    let (blocks, rest) = values.as_chunks::<LANES>();
    for block in blocks {
        for (lane, &value) in lanes.iter_mut().zip(block) {
            *lane = combine(*lane, value);
        }
    }
    for (lane, &value) in lanes.iter_mut().zip(rest) {
        *lane = combine(*lane, value);
    }
    fold(lanes, combine)
}

/// Combines the parts by halves: five steps of vectors instead of a chain as long as the parts.
#[inline(always)]
fn fold<E: Real>(mut lanes: [E; LANES], combine: impl Fn(E, E) -> E) -> E {
    let mut half = LANES / 2;
    while half > 0 {
        for i in 0..half {
            lanes[i] = combine(lanes[i], lanes[i + half]);
        }
        half /= 2;
    }
    lanes[0]
}

/// Sum of a slice.
#[inline(always)]
pub(crate) fn sum<E: Real>(values: &[E]) -> E {
    reduce(values, E::ZERO, |a, b| a + b)
}

/// Largest value of a slice, at least `start`.
#[inline(always)]
pub(crate) fn max<E: Real>(values: &[E], start: E) -> E {
    reduce(values, start, |a, b| if b > a { b } else { a })
}

/// Sum over two slices of `term(x, y)`.
#[inline(always)]
pub(crate) fn sum_pairs<E: Real>(x: &[E], y: &[E], term: impl Fn(E, E) -> E) -> E {
    let mut lanes = [E::ZERO; LANES];
    let (x_blocks, x_rest) = x.as_chunks::<LANES>();
    let (y_blocks, y_rest) = y.as_chunks::<LANES>();
    for (x_block, y_block) in x_blocks.iter().zip(y_blocks) {
        for i in 0..LANES {
            lanes[i] += term(x_block[i], y_block[i]);
        }
    }
    for ((lane, &x), &y) in lanes.iter_mut().zip(x_rest).zip(y_rest) {
        *lane += term(x, y);
    }
    fold(lanes, |a, b| a + b)
}

/// Column sums of the rows in `parts`, added in order: `width` numbers.
pub(crate) fn sum_rows<E: Real>(parts: &[Vec<E>], width: usize) -> Vec<E> {
    let mut total = vec![E::ZERO; width];
    for part in parts {
        for (sum, &value) in total.iter_mut().zip(part) {
            *sum += value;
        }
    }
    total
}
