//! Elementwise loops over tensors of the CPU backend.

use burn::backend::TensorMetadata;
use burn_flex::FlexTensor;
use rayon::prelude::*;

use super::parallel::TASK;
use super::real::Real;

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

/// `f` of every element, in place when no other tensor shares the buffer.
pub(crate) fn map<E: Real>(x: FlexTensor, f: impl Fn(E) -> E + Sync + Send) -> FlexTensor {
    let mut x = contiguous(x);
    if x.is_unique() {
        let values = E::slice_mut(&mut x);
        let task = |chunk: &mut [E]| {
            for value in chunk {
                *value = f(*value);
            }
        };
        if values.len() <= TASK {
            task(values);
        } else {
            values.par_chunks_mut(TASK).for_each(task);
        }
        return x;
    }
    let (blocks, rest) = E::slice(&x).as_chunks::<BLOCK>();
    let block = |i: usize| {
        let mut out = [E::ZERO; BLOCK];
        for (out, &x) in out.iter_mut().zip(&blocks[i]) {
            *out = f(x);
        }
        out
    };
    let values = collect(blocks.len(), rest.len(), block, |i| f(rest[i]));
    E::tensor(values, x.shape())
}

/// `f` of the elements of `x` and `y` in pairs, written over `x` when no other tensor shares it.
///
/// Both have the same shape.
pub(crate) fn zip<E: Real>(
    x: FlexTensor,
    y: FlexTensor,
    f: impl Fn(E, E) -> E + Sync + Send,
) -> FlexTensor {
    let (mut x, y) = (contiguous(x), contiguous(y));
    let y_values = E::slice(&y);
    if x.is_unique() {
        let x_values = E::slice_mut(&mut x);
        let task = |(x_chunk, y_chunk): (&mut [E], &[E])| {
            for (x, &y) in x_chunk.iter_mut().zip(y_chunk) {
                *x = f(*x, y);
            }
        };
        if x_values.len() <= TASK {
            task((x_values, y_values));
        } else {
            x_values.par_chunks_mut(TASK).zip(y_values.par_chunks(TASK)).for_each(task);
        }
        return x;
    }
    let (x_blocks, x_rest) = E::slice(&x).as_chunks::<BLOCK>();
    let (y_blocks, y_rest) = y_values.as_chunks::<BLOCK>();
    let block = |i: usize| {
        let mut out = [E::ZERO; BLOCK];
        for ((out, &x), &y) in out.iter_mut().zip(&x_blocks[i]).zip(&y_blocks[i]) {
            *out = f(x, y);
        }
        out
    };
    let values = collect(x_blocks.len(), x_rest.len(), block, |i| f(x_rest[i], y_rest[i]));
    E::tensor(values, x.shape())
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
