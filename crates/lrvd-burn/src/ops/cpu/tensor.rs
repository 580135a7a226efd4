//! Elementwise loops over tensors of the CPU backend.

use burn::backend::TensorMetadata;
use burn_flex::FlexTensor;
use rayon::prelude::*;

use super::parallel::TASK;
use super::real::Real;
use super::wide::wide;

/// Elements computed into one array on the stack.
const BLOCK: usize = 256;

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

/// A function of one number, marked `#[inline(always)]`.
pub(crate) trait Unary<E> {
    fn of(x: E) -> E;
}

/// A function of two numbers, marked `#[inline(always)]`.
pub(crate) trait Binary<E> {
    fn of(x: E, y: E) -> E;
}

wide! {
    fn map_in_place<'a, E, F: Unary<E>>(values: &'a mut [E]) {
        for value in values {
            *value = F::of(*value);
        }
    }

    fn map_block<'a, E, F: Unary<E>>(x: &'a [E; BLOCK]) -> [E; BLOCK] {
        let mut out = [E::ZERO; BLOCK];
        for (out, &x) in out.iter_mut().zip(x) {
            *out = F::of(x);
        }
        out
    }

    fn zip_in_place<'a, E, F: Binary<E>>(x: &'a mut [E], y: &'a [E]) {
        for (x, &y) in x.iter_mut().zip(y) {
            *x = F::of(*x, y);
        }
    }

    fn zip_block<'a, E, F: Binary<E>>(x: &'a [E; BLOCK], y: &'a [E; BLOCK]) -> [E; BLOCK] {
        let mut out = [E::ZERO; BLOCK];
        for ((out, &x), &y) in out.iter_mut().zip(x).zip(y) {
            *out = F::of(x, y);
        }
        out
    }
}

/// `F` of every element, in place when no other tensor shares the buffer.
pub(crate) fn map<E: Real, F: Unary<E>>(x: FlexTensor) -> FlexTensor {
    let mut x = contiguous(x);
    if x.is_unique() {
        let values = E::slice_mut(&mut x);
        let task = |chunk: &mut [E]| map_in_place::<E, F>(chunk);
        if values.len() <= TASK {
            task(values);
        } else {
            values.par_chunks_mut(TASK).for_each(task);
        }
        return x;
    }
    let (blocks, rest) = E::slice(&x).as_chunks::<BLOCK>();
    let block = |i: usize| map_block::<E, F>(&blocks[i]);
    let values = collect(blocks.len(), rest.len(), block, |i| F::of(rest[i]));
    E::tensor(values, x.shape())
}

/// `F` of the elements of `x` and `y` in pairs, written over `x` when no other tensor shares it.
///
/// Both have the same shape.
pub(crate) fn zip<E: Real, F: Binary<E>>(x: FlexTensor, y: FlexTensor) -> FlexTensor {
    let (mut x, y) = (contiguous(x), contiguous(y));
    let y_values = E::slice(&y);
    if x.is_unique() {
        let x_values = E::slice_mut(&mut x);
        let task = |(x, y): (&mut [E], &[E])| zip_in_place::<E, F>(x, y);
        if x_values.len() <= TASK {
            task((x_values, y_values));
        } else {
            x_values.par_chunks_mut(TASK).zip(y_values.par_chunks(TASK)).for_each(task);
        }
        return x;
    }
    let (x_blocks, x_rest) = E::slice(&x).as_chunks::<BLOCK>();
    let (y_blocks, y_rest) = y_values.as_chunks::<BLOCK>();
    let block = |i: usize| zip_block::<E, F>(&x_blocks[i], &y_blocks[i]);
    let values = collect(x_blocks.len(), x_rest.len(), block, |i| F::of(x_rest[i], y_rest[i]));
    E::tensor(values, x.shape())
}

/// A vector of zeros, written by all threads if it is long.
pub(crate) fn zeros<E: Real>(len: usize) -> Vec<E> {
    collect(len / BLOCK, len % BLOCK, |_| [E::ZERO; BLOCK], |_| E::ZERO)
}

/// A vector of `blocks` whole blocks and `rest` more elements.
///
/// Blocks are arrays so that rayon can write them straight into fresh memory: a buffer filled with
/// zeros first would cost a further pass on one thread.
fn collect<E: Real>(
    blocks: usize,
    rest: usize,
    block: impl Fn(usize) -> [E; BLOCK] + Sync + Send,
    element: impl Fn(usize) -> E,
) -> Vec<E> {
    let mut arrays: Vec<[E; BLOCK]> = Vec::with_capacity(blocks + 1);
    if blocks * BLOCK <= TASK {
        arrays.extend((0..blocks).map(block));
    } else {
        (0..blocks)
            .into_par_iter()
            .with_min_len(TASK / BLOCK)
            .map(block)
            .collect_into_vec(&mut arrays);
    }
    let mut values = arrays.into_flattened();
    values.extend((0..rest).map(element));
    values
}
