//! Attention on slices, in `f32`: one task per example and query head, blocks of queries at a time.
//!
//! A block of queries meets the keys up to its own end and no further.

use burn::backend::{Flex, TensorMetadata};
use burn::tensor::Shape;
use burn_flex::FlexTensor;

use super::CausalAttention;
use crate::ops::cpu::{
    Matrix, Panels, Parts, Product, Real, contiguous, pack_wide, run, softmax_gradient_rows,
    softmax_rows,
};
use crate::ops::op::{Fused, Operands};

/// Queries handled together.
const BLOCK: usize = 48;

/// One call: arguments in row-major order, and sizes.
struct Call<'a> {
    query: &'a [f32],
    key: &'a [f32],
    value: &'a [f32],
    mask: &'a [f32],
    scale: f32,
    tokens: usize,
    heads: usize,
    groups: usize,
    width: usize,
}

/// Gradients of one head's query, key and value, `[T, d]`.
type HeadGradients = [Vec<f32>; 3];

impl<'a> Call<'a> {
    fn new([query, key, value, mask]: [&'a FlexTensor; 4], scale: f64) -> Self {
        let shape = query.shape();
        Self {
            query: f32::slice(query),
            key: f32::slice(key),
            value: f32::slice(value),
            mask: f32::slice(mask),
            scale: scale as f32,
            tokens: shape[1],
            heads: shape[2],
            groups: key.shape()[2],
            width: shape[3],
        }
    }

    /// `[T, d]` of `tensor` (`query`'s shape) that `task` reads.
    fn head<'t>(&self, tensor: &'t [f32], task: usize) -> Matrix<'t> {
        self.matrix(tensor, task / self.heads, task % self.heads, self.heads)
    }

    /// `[T, d]` of `tensor` (`key`'s shape) that `task` reads.
    fn group<'t>(&self, tensor: &'t [f32], task: usize) -> Matrix<'t> {
        let group = task % self.heads / (self.heads / self.groups);
        self.matrix(tensor, task / self.heads, group, self.groups)
    }

    fn matrix<'t>(&self, tensor: &'t [f32], example: usize, at: usize, of: usize) -> Matrix<'t> {
        let first = (example * self.tokens * of + at) * self.width;
        Matrix::spaced(&tensor[first..], self.tokens, self.width, of * self.width)
    }

    /// First token, number of queries and number of keys of each block.
    fn blocks(&self) -> impl Iterator<Item = (usize, usize, usize)> + use<> {
        let tokens = self.tokens;
        (0..tokens).step_by(BLOCK).map(move |first| {
            let count = BLOCK.min(tokens - first);
            (first, count, first + count)
        })
    }

    /// Probabilities of a block, `[count, keys]`.
    fn probabilities(&self, (first, count, keys): (usize, usize, usize), task: usize) -> Vec<f32> {
        let mut p = vec![0.0; count * keys];
        let key = pack_wide(self.group(self.key, task).part(0, keys).transposed());
        Product::plain(self.head(self.query, task).part(first, count), &key).run_here(&mut p);
        let visible = &self.mask[task / self.heads * self.tokens..][..keys];
        softmax_rows(&mut p, keys, Some(visible), Some(first + 1), self.scale);
        p
    }

    /// Output of one head, `[T, d]`.
    fn forward(&self, task: usize) -> Vec<f32> {
        let mut out = vec![0.0; self.tokens * self.width];
        for block in self.blocks() {
            let (first, count, keys) = block;
            let p = self.probabilities(block, task);
            let value = pack_wide(self.group(self.value, task).part(0, keys));
            let out = &mut out[first * self.width..][..count * self.width];
            Product::plain(Matrix::new(&p, count, keys), &value).run_here(out);
        }
        out
    }

    /// Gradients of one head from `grad`, that of the whole output.
    fn backward(&self, grad: &[f32], task: usize) -> HeadGradients {
        let size = self.tokens * self.width;
        let [mut d_query, mut d_key, mut d_value] = [(); 3].map(|()| vec![0.0; size]);
        for block in self.blocks() {
            let (first, count, keys) = block;
            let p = self.probabilities(block, task);
            let grad = self.head(grad, task).part(first, count);
            let seen = keys * self.width;
            add(Matrix::new(&p, count, keys).transposed(), &pack_wide(grad), &mut d_value[..seen]);
            let mut d_score = vec![0.0; count * keys];
            let value = pack_wide(self.group(self.value, task).part(0, keys).transposed());
            Product::plain(grad, &value).run_here(&mut d_score);
            softmax_gradient_rows(&mut d_score, &p, keys, self.scale);
            let d_score = Matrix::new(&d_score, count, keys);
            let key = pack_wide(self.group(self.key, task).part(0, keys));
            add(d_score, &key, &mut d_query[first * self.width..][..count * self.width]);
            let query = pack_wide(self.head(self.query, task).part(first, count));
            add(d_score.transposed(), &query, &mut d_key[..seen]);
        }
        [d_query, d_key, d_value]
    }
}

fn add(x: Matrix<'_>, base: &Panels, out: &mut [f32]) {
    Product::plain(x, base).added().run_here(out);
}

/// `[B, T, G, d]` from one `[T, d]` per example and query head.
fn join<'a>(
    parts: impl ExactSizeIterator<Item = &'a [f32]>,
    shape: Shape,
    heads: usize,
) -> FlexTensor {
    let (groups, size) = (shape[2], [shape[1], shape[3]]);
    Parts { heads, groups, shared: false, size }.tensor(parts, shape)
}

pub(super) fn forward(op: &CausalAttention, x: Operands<Flex>, save: bool) -> Fused<Flex> {
    let saved = x.keep(save, &[0, 1, 2, 3]);
    let arguments = x.all().map(contiguous);
    let (shape, call) = (arguments[0].shape(), Call::new(arguments.each_ref(), op.scale));
    let heads = shape[2];
    let parts = run((0..shape[0] * heads).collect(), |task| call.forward(task));
    Fused { out: join(parts.iter().map(Vec::as_slice), shape, heads), saved }
}

pub(super) fn gradient(
    op: &CausalAttention,
    saved: Operands<Flex>,
    grad: FlexTensor,
    needs_grad: &[bool],
) -> Operands<Flex> {
    let (arguments, grad) = (saved.all().map(contiguous), contiguous(grad));
    let (shape, key_shape) = (arguments[0].shape(), arguments[1].shape());
    let heads = shape[2];
    let call = Call::new(arguments.each_ref(), op.scale);
    let grad = f32::slice(&grad);
    let parts = run((0..shape[0] * heads).collect(), |task| call.backward(grad, task));
    let of = |i: usize, shape: &Shape| {
        let parts = parts.iter().map(|part| part[i].as_slice());
        needs_grad[i].then(|| join(parts, shape.clone(), heads))
    };
    Operands::some([of(0, &shape), of(1, &key_shape), of(2, &key_shape)])
}
