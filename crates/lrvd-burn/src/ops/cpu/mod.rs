//! Common parts of the CPU forms: tensors as slices of `f32`, tasks over threads, sums, and special functions.
//!
//! Burn's CPU backend runs elementwise operations on one thread and calls the C library once per
//! element. The implementations here work on plain slices, in loops the compiler can vectorise, for
//! the vector units found at run time, spread over rayon's threads in chunks whose borders depend on
//! the shape alone. Results are therefore the same bits for every number of threads and every width.

#![expect(clippy::inline_always, reason = "loops vectorise only with the functions inside")]

mod heads;
#[cfg(feature = "int8")]
mod integers;
mod panels;
mod product;
mod skinny;
mod special;
mod strips;
mod thin;

use std::ops::AddAssign;

use burn::tensor::{Element, Shape, TensorData};
use burn_flex::FlexTensor;
use lrvd_core::noise::{self, NoiseKey};
use rayon::prelude::*;

/// Names that every CPU form uses.
pub(crate) mod prelude {
    pub(crate) use burn::backend::{Flex, TensorMetadata};
    pub(crate) use burn_flex::FlexTensor;

    pub(crate) use super::heads::{Heads, softmax_gradient_rows, softmax_rows};
    #[cfg(feature = "int8")]
    pub(crate) use super::integers::Integers;
    pub(crate) use super::panels::{Matrix, Panels, lanes};
    pub(crate) use super::product::{Low, Product, pack_wide, panel_width, product};
    pub(crate) use super::skinny::transposed_product;
    pub(crate) use super::special::{exp, ln, ln_1p, normal};
    pub(crate) use super::strips::{FEW, StripBase};
    pub(crate) use super::thin::{THIN, ThinLow, ThinProduct, Weight};
    pub(crate) use super::{
        TASK, contiguous, fill_normal, in_place, rows_per_task, run, slice, slice_mut, sum,
        sum_pairs, sum_rows, tensor, wide, zeros,
    };
    pub(crate) use crate::ops::op::{Fused, Operands, Upstream};
}

/// Elements of a task: some ten microseconds of arithmetic, and a few of them fit a core's cache.
pub(crate) const TASK: usize = 8192;

/// Whole rows of `width` elements that make up one task; depends on nothing but the shape.
pub(crate) fn rows_per_task(width: usize) -> usize {
    (TASK / width.max(1)).max(1)
}

/// The results of `task` in the items' order. A single item runs on the calling thread: waking a worker costs more.
pub(crate) fn run<T: Send, R: Send>(items: Vec<T>, task: impl Fn(T) -> R + Sync + Send) -> Vec<R> {
    if items.len() <= 1 {
        items.into_iter().map(task).collect()
    } else {
        items.into_par_iter().map(task).collect()
    }
}

/// The tensor with its elements in row-major order and nothing else in its buffer's range.
pub(crate) fn contiguous(tensor: FlexTensor) -> FlexTensor {
    if tensor.is_contiguous() {
        return tensor;
    }
    // The binding drops the old handle, so that the copy is the only owner of its elements.
    let copy = tensor.to_contiguous();
    drop(tensor);
    copy
}

/// Elements of a contiguous tensor.
pub(crate) fn slice(tensor: &FlexTensor) -> &[f32] {
    tensor.as_slice().expect("a contiguous tensor of single precision")
}

/// Elements of a contiguous tensor, copied first if another tensor shares them.
pub(crate) fn slice_mut(tensor: &mut FlexTensor) -> &mut [f32] {
    let (start, end) = tensor.layout().contiguous_offsets().expect("made contiguous by the caller");
    &mut tensor.storage_mut()[start..end]
}

/// A tensor that takes over `values`.
pub(crate) fn tensor<E: Element>(values: Vec<E>, shape: impl Into<Shape>) -> FlexTensor {
    FlexTensor::from_data(TensorData::new(values, shape.into()))
}

/// Elements that one thread writes at a time into fresh memory: arrays are copied whole.
const BLOCK: usize = 256;

/// A vector of zeros, written by all threads if it is long.
pub(crate) fn zeros(len: usize) -> Vec<f32> {
    let blocks = rayon::iter::repeat_n([0.0; BLOCK], len.div_ceil(BLOCK));
    let mut zeros = blocks.with_min_len(TASK / BLOCK).collect::<Vec<_>>().into_flattened();
    zeros.truncate(len);
    zeros
}

/// A copy, written by all threads if it is long.
fn copy(values: &[f32]) -> Vec<f32> {
    let (blocks, rest) = values.as_chunks::<BLOCK>();
    let mut copy = Vec::with_capacity(blocks.len() + 1);
    blocks.par_iter().copied().with_min_len(TASK / BLOCK).collect_into_vec(&mut copy);
    let mut copy = copy.into_flattened();
    copy.extend_from_slice(rest);
    copy
}

/// `x` with every chunk of `size` elements replaced by `task`, which gets the number of the chunk's first element; a
/// copy if another tensor shares the buffer.
pub(crate) fn in_place(
    x: FlexTensor,
    size: usize,
    task: impl Fn(usize, &mut [f32]) + Sync + Send,
) -> FlexTensor {
    let mut x = contiguous(x);
    if !x.is_unique() {
        let shape = x.layout().shape().clone();
        x = tensor(copy(slice(&x)), shape);
    }
    let chunks = slice_mut(&mut x).chunks_mut(size).enumerate().collect();
    run(chunks, |(i, chunk)| task(i * size, chunk));
    x
}

/// Standard-normal elements `first..` of `key`: [`noise::fill_normal`] compiled for the vector units of the machine; the
/// same bits.
pub(crate) fn fill_normal(key: NoiseKey, first: usize, out: &mut [f32]) {
    struct Fill<'a>(NoiseKey, u64, &'a mut [f32]);
    impl pulp::NullaryFnOnce for Fill<'_> {
        type Output = ();

        #[inline(always)]
        fn call(self) {
            noise::fill_normal(self.0, self.1, self.2);
        }
    }
    pulp::Arch::new().dispatch(Fill(key, first as u64, out));
}

/// Independent partial results of a reduction: two vectors of the widest units, to hide the latency of one. With
/// fewer the compiler unrolls the loop over them before it looks for vectors, and finds none.
const LANES: usize = 32;

/// Reduces `values` by `combine` in [`LANES`] interleaved parts, so that the loop vectorises.
#[inline(always)]
fn reduce(values: &[f32], start: f32, combine: impl Fn(f32, f32) -> f32) -> f32 {
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
fn fold(mut lanes: [f32; LANES], combine: impl Fn(f32, f32) -> f32) -> f32 {
    let mut half = LANES / 2;
    while half > 0 {
        for i in 0..half {
            lanes[i] = combine(lanes[i], lanes[i + half]);
        }
        half /= 2;
    }
    lanes[0]
}

#[inline(always)]
pub(crate) fn sum(values: &[f32]) -> f32 {
    reduce(values, 0.0, |a, b| a + b)
}

/// Sum over two slices of `term(x, y)`.
#[inline(always)]
pub(crate) fn sum_pairs(x: &[f32], y: &[f32], term: impl Fn(f32, f32) -> f32) -> f32 {
    let mut lanes = [0.0; LANES];
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
pub(crate) fn sum_rows<T: Copy + Default + AddAssign>(parts: &[Vec<T>], width: usize) -> Vec<T> {
    let mut total = vec![T::default(); width];
    for part in parts {
        for (sum, &value) in total.iter_mut().zip(part) {
            *sum += value;
        }
    }
    total
}

/// Declares functions whose bodies are compiled for every vector width, the widest of the machine chosen at run time.
///
/// Code is compiled for another width only as part of the body: what its loops call must be marked
/// `#[inline(always)]`, closures of more than a few operations cannot. The results are the same bits for every width:
/// products and sums are never contracted, and reductions have a fixed number of lanes.
macro_rules! wide {
    ($(
        $(#[$attribute:meta])*
        $visibility:vis fn $name:ident<'a>($($argument:ident: $type:ty),+ $(,)?)
            $(-> $result:ty)? $body:block
    )+) => {$(
        $(#[$attribute])*
        $visibility fn $name<'a>($($argument: $type),+) $(-> $result)? {
            struct Task<'a> {
                $($argument: $type,)+
            }
            impl<'a> pulp::NullaryFnOnce for Task<'a> {
                type Output = $crate::ops::cpu::wide!(@result $($result)?);

                #[inline(always)]
                fn call(self) -> Self::Output {
                    let Self { $($argument),+ } = self;
                    $body
                }
            }
            pulp::Arch::new().dispatch(Task { $($argument),+ })
        }
    )+};
    (@result) => { () };
    (@result $result:ty) => { $result };
}
pub(crate) use wide;

#[cfg(test)]
mod tests {
    use super::special::normal;
    use super::sum;

    #[inline(always)]
    fn narrow(x: &[f32], out: &mut [f32]) -> f32 {
        for (out, &x) in out.iter_mut().zip(x) {
            let (distribution, density) = normal(x);
            *out = x * distribution + density;
        }
        sum(out)
    }

    super::wide! {
        fn broad<'a>(x: &'a [f32], out: &'a mut [f32]) -> f32 {
            narrow(x, out)
        }
    }

    #[test]
    fn wide_vectors_give_the_same_bits() {
        let x: Vec<f32> = (0..1003).map(|i| (i as f32 - 500.0) * 0.013).collect();
        let (mut one, mut other) = (vec![0.0; x.len()], vec![0.0; x.len()]);
        let total = narrow(&x, &mut one);
        assert_eq!(total.to_bits(), broad(&x, &mut other).to_bits());
        assert_eq!(one, other);
    }
}
