//! Attention on slices: one task per example and head, one row of scores at a time.
//!
//! Keys and values are laid out with tokens along a line, so that every loop runs over keys. A line is as long as
//! whole blocks; a row looks at the blocks up to its own token and no further.

#![expect(clippy::inline_always, reason = "loops vectorise only with the functions inside")]

use burn::backend::TensorMetadata;
use burn::tensor::Shape;
use burn_flex::FlexTensor;

use crate::ops::cpu::{Real, contiguous, max, run, sum, sum_pairs, wide};

/// Keys handled together: accumulators that fit the registers of every vector unit.
const BLOCK: usize = 32;

/// One call: arguments in row-major order, and sizes.
struct Call<'a, E> {
    query: &'a [E],
    key: &'a [E],
    value: &'a [E],
    mask: &'a [E],
    scale: E,
    tokens: usize,
    heads: usize,
    groups: usize,
    width: usize,
}

impl<'a, E: Real> Call<'a, E> {
    fn new([query, key, value, mask]: [&'a FlexTensor; 4], scale: f64) -> Self {
        let shape = query.shape();
        Self {
            query: E::slice(query),
            key: E::slice(key),
            value: E::slice(value),
            mask: E::slice(mask),
            scale: E::of(scale),
            tokens: shape[1],
            heads: shape[2],
            groups: key.shape()[2],
            width: shape[3],
        }
    }

    /// Length of a line.
    fn line(&self) -> usize {
        self.tokens.next_multiple_of(BLOCK)
    }

    /// The row of `tensor` (`query`'s shape) of one token in head `task % H` of example `task / H`.
    #[inline(always)]
    fn row<'t>(&self, tensor: &'t [E], task: usize, token: usize) -> &'t [E] {
        let (example, head) = (task / self.heads, task % self.heads);
        let at = ((example * self.tokens + token) * self.heads + head) * self.width;
        &tensor[at..at + self.width]
    }

    /// Lines of the features of `tensor` (`key`'s shape) that `task` reads, `[d, line]`.
    #[inline(always)]
    fn lines(&self, tensor: &[E], task: usize) -> Vec<E> {
        let line = self.line();
        let group = task % self.heads / (self.heads / self.groups);
        let first = task / self.heads * self.tokens * self.groups + group;
        let mut lines = vec![E::ZERO; self.width * line];
        for token in 0..self.tokens {
            let row = &tensor[(first + token * self.groups) * self.width..][..self.width];
            for (feature, &x) in row.iter().enumerate() {
                lines[feature * line + token] = x;
            }
        }
        lines
    }

    /// The line of the mask that `task` reads; 0 behind the last token.
    #[inline(always)]
    fn visible(&self, task: usize) -> Vec<E> {
        let mut visible = vec![E::ZERO; self.line()];
        let first = task / self.heads * self.tokens;
        visible[..self.tokens].copy_from_slice(&self.mask[first..first + self.tokens]);
        visible
    }

    /// `out[s] = Σ_c x[c]·lines[c, s]` for the blocks that `out` covers.
    #[inline(always)]
    fn products(&self, x: &[E], lines: &[E], out: &mut [E]) {
        let line = self.line();
        for (block, out) in out.as_chunks_mut::<BLOCK>().0.iter_mut().enumerate() {
            let mut sums = [E::ZERO; BLOCK];
            for (&x, line) in x.iter().zip(lines.chunks_exact(line)) {
                let piece = &line.as_chunks::<BLOCK>().0[block];
                for (sum, &y) in sums.iter_mut().zip(piece) {
                    *sum += x * y;
                }
            }
            *out = sums;
        }
    }

    /// Probabilities of the keys up to `token` in the blocks that `out` covers, 0 elsewhere.
    #[inline(always)]
    fn probabilities(&self, x: &[E], keys: &[E], visible: &[E], token: usize, out: &mut [E]) {
        let (lowest, scale) = (E::of(f64::NEG_INFINITY), self.scale);
        self.products(x, keys, out);
        for (score, &live) in out.iter_mut().zip(visible) {
            let scaled = *score * scale;
            *score = if live == E::ZERO { lowest } else { scaled };
        }
        out[token + 1..].fill(lowest);
        let top = max(out, lowest);
        if top == lowest {
            out.fill(E::ZERO);
            return;
        }
        for score in out.iter_mut() {
            let weight = (*score - top).exp();
            *score = if *score == lowest { E::ZERO } else { weight };
        }
        let factor = E::ONE / sum(out);
        for weight in out.iter_mut() {
            *weight = *weight * factor;
        }
    }
}

/// Length of the part of a line that a row looks at.
#[inline(always)]
fn seen(token: usize) -> usize {
    (token + 1).next_multiple_of(BLOCK)
}

/// Gradients of one head: that of the queries as `[T, d]`, those of keys and values as lines.
struct HeadGradients<E> {
    query: Vec<E>,
    key: Vec<E>,
    value: Vec<E>,
}

/// `lines[c, s] += x[c]·y[s]` for the keys that `y` covers.
#[inline(always)]
fn accumulate<E: Real>(lines: &mut [E], line: usize, x: &[E], y: &[E]) {
    for (&x, line) in x.iter().zip(lines.chunks_exact_mut(line)) {
        for (sum, &y) in line.iter_mut().zip(y) {
            *sum += x * y;
        }
    }
}

wide! {
    /// Output of one head, `[T, d]`.
    fn head_forward<'a, E>(call: &'a Call<'a, E>, task: usize) -> Vec<E> {
        let line = call.line();
        let (keys, values) = (call.lines(call.key, task), call.lines(call.value, task));
        let visible = call.visible(task);
        let mut row = vec![E::ZERO; line];
        let mut out = vec![E::ZERO; call.tokens * call.width];
        for (token, out) in out.chunks_exact_mut(call.width).enumerate() {
            let p = &mut row[..seen(token)];
            call.probabilities(call.row(call.query, task, token), &keys, &visible, token, p);
            for (out, values) in out.iter_mut().zip(values.chunks_exact(line)) {
                *out = sum_pairs(p, &values[..p.len()], |p, v| p * v);
            }
        }
        out
    }

    /// Gradients of one head from `grad`, that of the whole output.
    fn head_backward<'a, E>(
        call: &'a Call<'a, E>,
        grad: &'a [E],
        task: usize,
    ) -> HeadGradients<E> {
        let line = call.line();
        let (keys, values) = (call.lines(call.key, task), call.lines(call.value, task));
        let visible = call.visible(task);
        let (mut p, mut d_p) = (vec![E::ZERO; line], vec![E::ZERO; line]);
        let mut out = HeadGradients {
            query: vec![E::ZERO; call.tokens * call.width],
            key: vec![E::ZERO; keys.len()],
            value: vec![E::ZERO; values.len()],
        };
        for (token, d_query) in out.query.chunks_exact_mut(call.width).enumerate() {
            let (p, d_p) = (&mut p[..seen(token)], &mut d_p[..seen(token)]);
            let (query, grad) = (call.row(call.query, task, token), call.row(grad, task, token));
            call.probabilities(query, &keys, &visible, token, p);
            call.products(grad, &values, d_p);
            accumulate(&mut out.value, line, grad, p);
            let mean = sum_pairs(p, d_p, |p, d_p| p * d_p);
            for (d_p, &p) in d_p.iter_mut().zip(&*p) {
                *d_p = p * (*d_p - mean) * call.scale;
            }
            accumulate(&mut out.key, line, query, d_p);
            for (d_query, keys) in d_query.iter_mut().zip(keys.chunks_exact(line)) {
                *d_query = sum_pairs(d_p, &keys[..d_p.len()], |d, k| d * k);
            }
        }
        out
    }
}

/// `[B, T, H, d]` from one `[T, d]` per example and head.
fn interleave<E: Real>(parts: &[&[E]], shape: Shape) -> FlexTensor {
    let (tokens, heads, width) = (shape[1], shape[2], shape[3]);
    let mut values = Vec::with_capacity(shape.num_elements());
    for example in parts.chunks_exact(heads) {
        for token in 0..tokens {
            for head in example {
                values.extend_from_slice(&head[token * width..][..width]);
            }
        }
    }
    E::tensor(values, shape)
}

/// `[B, T, G, d]` from one set of lines per example and query head; those of a group are summed in order.
fn gather<'a, E: Real>(
    parts: &'a [HeadGradients<E>],
    of: fn(&'a HeadGradients<E>) -> &'a [E],
    heads: usize,
    shape: Shape,
) -> FlexTensor {
    let (tokens, groups, width) = (shape[1], shape[2], shape[3]);
    let line = tokens.next_multiple_of(BLOCK);
    let mut values = vec![E::ZERO; shape.num_elements()];
    for (task, part) in parts.iter().enumerate() {
        let group = task % heads / (heads / groups);
        let first = task / heads * tokens * groups + group;
        for (feature, line) in of(part).chunks_exact(line).enumerate() {
            for (token, &x) in line[..tokens].iter().enumerate() {
                values[(first + token * groups) * width + feature] += x;
            }
        }
    }
    E::tensor(values, shape)
}

pub(crate) fn forward<E: Real>(
    query: FlexTensor,
    key: FlexTensor,
    value: FlexTensor,
    mask: FlexTensor,
    scale: f64,
) -> FlexTensor {
    let arguments = [query, key, value, mask].map(contiguous);
    let shape = arguments[0].shape();
    if shape.num_elements() == 0 {
        let [query, ..] = arguments;
        return query;
    }
    let call = Call::<E>::new(arguments.each_ref(), scale);
    let tasks = (0..shape[0] * shape[2]).collect();
    let parts = run(tasks, |task| head_forward(&call, task));
    interleave(&parts.iter().map(Vec::as_slice).collect::<Vec<&[E]>>(), shape)
}

pub(crate) fn backward<E: Real>(
    arguments: [FlexTensor; 4],
    grad: FlexTensor,
    scale: f64,
    wanted: [bool; 3],
) -> (Option<FlexTensor>, Option<FlexTensor>, Option<FlexTensor>) {
    let (arguments, grad) = (arguments.map(contiguous), contiguous(grad));
    let (shape, key_shape) = (arguments[0].shape(), arguments[1].shape());
    let parts = if shape.num_elements() == 0 {
        Vec::new()
    } else {
        let call = Call::<E>::new(arguments.each_ref(), scale);
        let grad = E::slice(&grad);
        let tasks = (0..shape[0] * shape[2]).collect();
        run(tasks, |task| head_backward(&call, grad, task))
    };
    let heads = shape[2];
    let queries: Vec<&[E]> = parts.iter().map(|part| part.query.as_slice()).collect();
    (
        wanted[0].then(|| interleave(&queries, shape)),
        wanted[1].then(|| gather(&parts, |part| &part.key, heads, key_shape.clone())),
        wanted[2].then(|| gather(&parts, |part| &part.value, heads, key_shape)),
    )
}
