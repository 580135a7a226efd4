//! Heads of attention beside each other, and the softmax of one head's scores.

#![expect(clippy::inline_always, reason = "loops vectorise only with the functions inside")]

use std::ops::Range;

use burn::tensor::Shape;
use burn_flex::FlexTensor;

use super::panels::Matrix;
use super::{reduce, sum, sum_pairs, tensor, wide};
use crate::ops::cpu::special::exp;
use crate::ops::window::Window;

/// Parts of a tensor `[1 | B, lines, groups · width]`, one for each example and each of its `count` heads.
#[derive(Clone, Copy)]
pub(crate) struct Heads {
    pub(crate) count: usize,
    /// Groups of heads that share a part.
    pub(crate) groups: usize,
    /// `true` if all examples share their parts too.
    pub(crate) shared: bool,
    pub(crate) lines: usize,
    pub(crate) width: usize,
}

impl Heads {
    /// Start of the part of `task`; tasks are counted by example, then by head.
    fn start(self, task: usize) -> usize {
        let Self { count, groups, shared, lines, width } = self;
        let example = if shared { 0 } else { task / count };
        (example * lines * groups + task % count / (count / groups)) * width
    }

    /// The part `[lines, width]` of `task`.
    pub(crate) fn part(self, tensor: &[f32], task: usize) -> Matrix<'_> {
        let stride = self.groups * self.width;
        let values = &tensor[self.start(task).min(tensor.len())..];
        Matrix { values, rows: self.lines, columns: self.width, strides: [stride, 1] }
    }

    /// The tensor of `shape` from the part of every task; parts of one place are summed in order.
    pub(crate) fn join<'a>(
        self,
        parts: impl Iterator<Item = &'a [f32]>,
        shape: impl Into<Shape>,
    ) -> FlexTensor {
        let shape = shape.into();
        let mut values = vec![0.0; shape.num_elements()];
        if values.is_empty() {
            return tensor(values, shape);
        }
        for (task, part) in parts.enumerate() {
            let rows = values[self.start(task)..].chunks_mut(self.groups * self.width);
            for (out, row) in rows.zip(part.chunks_exact(self.width)) {
                for (out, &x) in out.iter_mut().zip(row) {
                    *out += x;
                }
            }
        }
        tensor(values, shape)
    }
}

wide! {
    /// Softmax of `scale · row` over the keys whose mask is not 0, row by row; row `i` is query `first + i`, and sees its
    /// `window` of the keys.
    pub(crate) fn softmax_rows<'a>(
        scores: &'a mut [f32],
        keys: usize,
        mask: Option<&'a [f32]>,
        window: Window,
        first: usize,
        scale: f32,
    ) {
        for (i, row) in scores.chunks_exact_mut(keys).enumerate() {
            softmax(row, mask, window.columns(first + i, first + i, keys), scale);
        }
    }

    /// Turns the gradient of the probabilities `p` into that of the scores before their scale.
    pub(crate) fn softmax_gradient_rows<'a>(
        grad: &'a mut [f32],
        p: &'a [f32],
        keys: usize,
        scale: f32,
    ) {
        for (row, p) in grad.chunks_exact_mut(keys).zip(p.chunks_exact(keys)) {
            let mean = sum_pairs(row, p, |grad, p| grad * p);
            for (grad, &p) in row.iter_mut().zip(p) {
                *grad = p * (*grad - mean) * scale;
            }
        }
    }
}

/// Probabilities of the `seen` keys that are not masked, 0 elsewhere.
#[inline(always)]
fn softmax(row: &mut [f32], mask: Option<&[f32]>, seen: Range<usize>, scale: f32) {
    let lowest = f32::NEG_INFINITY;
    for score in row.iter_mut() {
        *score *= scale;
    }
    if let Some(mask) = mask {
        // Masked scores leave the row before the maximum is taken.
        for (score, &live) in row.iter_mut().zip(mask) {
            *score = if live == 0.0 { lowest } else { *score };
        }
    }
    row[..seen.start].fill(lowest);
    row[seen.end..].fill(lowest);
    let top = reduce(row, lowest, |a, b| if b > a { b } else { a });
    if top == lowest {
        row.fill(0.0);
        return;
    }
    for score in row.iter_mut() {
        let weight = exp(*score - top);
        *score = if *score == lowest { 0.0 } else { weight };
    }
    let factor = 1.0 / sum(row);
    for weight in row {
        *weight *= factor;
    }
}
