//! Self-attention of tokens within a window.

use burn::backend::TensorMetadata;
use burn::backend::tensor::FloatTensor;
use burn::tensor::{Tensor, TensorData};

use super::op::{self, FusedOp, LrvdBackend, Operands};
use super::value::{Value, masked_softmax};
use super::window::Window;

/// Self-attention within a [`Window`], with grouped keys and values.
///
/// # Formula
///
/// ```text
/// p[b,h,t,s] = softmax over t − before ≤ s ≤ t + after with mask[b,s] = 1 of scale · query[b,t,h]·key[b,s,g]
/// out[b,t,h] = Σ_s p[b,h,t,s] · value[b,s,g],   g = ⌊h / (H/G)⌋
/// ```
///
/// A query that sees no key gives zeros.
///
/// # Shapes
///
/// | Name                  | Shape          | Contents                                      |
/// |-----------------------|----------------|-----------------------------------------------|
/// | `query`, *returns*    | `[B, T, H, d]` | one row per token and head                    |
/// | `key`, `value`        | `[B, T, G, d]` | `G` divides `H`                               |
/// | `mask`                | `[B, T]`       | 1 for tokens, 0 for padding; no gradient      |
///
/// # Numerics
///
/// On the CPU a row of scores lives in the first-level cache only, and scores outside of the window are not computed, but
/// for those that a block of queries shares.
/// The backward pass saves the arguments alone and computes the probabilities again.
///
/// # Panics
///
/// If the shapes are not those of the table.
///
/// # References
///
/// Vaswani et al. 2017, arXiv:1706.03762; Ainslie et al. 2023, arXiv:2305.13245 (groups); Dao et al. 2022,
/// arXiv:2205.14135 (recomputation).
pub fn attention(
    query: Tensor<4>,
    key: Tensor<4>,
    value: Tensor<4>,
    mask: Tensor<2>,
    window: Window,
    scale: f64,
) -> Tensor<4> {
    let [batch, tokens, heads, width] = query.dims();
    let groups = key.dims()[2];
    assert!(
        groups > 0 && heads % groups == 0,
        "{groups} key heads do not divide {heads} query heads"
    );
    assert_eq!(key.dims(), [batch, tokens, groups, width], "shape of `key`");
    assert_eq!(value.dims(), key.dims(), "shape of `value`");
    assert_eq!(mask.dims(), [batch, tokens], "shape of `mask`");
    let [query, key, value] = [query, key, value].map(Tensor::into_dispatch);
    let operands = Operands::of([query, key, value, mask.into_dispatch()]);
    op::fused(Attention { window, scale }, operands)
}

#[derive(Clone, Debug)]
struct Attention {
    window: Window,
    scale: f64,
}

impl FusedOp for Attention {
    /// The queries of a group are stacked as rows of one product, `[B, G, (H/G)·T, d]`, so that keys and values are never
    /// repeated.
    fn composite<B: LrvdBackend>(&self, x: Operands<B>) -> FloatTensor<B> {
        let [query, key, value, mask] = x.all();
        let ([batch, tokens, heads, width], groups) = (query.shape().dims(), key.shape()[2]);
        if query.shape().num_elements() == 0 {
            return query;
        }
        let (key, value) = (Value::<B>(key).swap(1, 2), Value::<B>(value).swap(1, 2));
        let stacked = Value::<B>(query)
            .reshape([batch, tokens, groups, heads / groups, width])
            .permute(&[0, 2, 3, 1, 4])
            .reshape([batch, groups, heads / groups * tokens, width]);
        let score = stacked.matmul(key.swap(2, 3));
        let score = score.reshape([batch, heads, tokens, tokens]) * self.scale;
        let mut visible = Value::<B>(mask).reshape([batch, 1, 1, tokens]);
        if self.window != Window::ALL {
            let mut within = vec![0.0_f32; tokens * tokens];
            for (t, row) in within.chunks_exact_mut(tokens).enumerate() {
                row[self.window.columns(t, t, tokens)].fill(1.0);
            }
            visible = visible * score.host(TensorData::new(within, [1, 1, tokens, tokens]));
        }
        let p = masked_softmax(score, visible);
        p.reshape([batch, groups, heads / groups * tokens, tokens])
            .matmul(value)
            .reshape([batch, groups, heads / groups, tokens, width])
            .permute(&[0, 3, 1, 2, 4])
            .reshape([batch, tokens, heads, width])
            .0
    }

    op::forms!(cpu);
}

/// One task per example and query head, blocks of queries at a time: a block meets the keys that one of its queries sees.
#[cfg(feature = "flex")]
mod cpu {
    use std::ops::Range;

    use super::Attention;
    use crate::ops::cpu::prelude::*;
    use crate::ops::window::Window;

    /// Queries handled together.
    const BLOCK: usize = 48;

    /// Queries `first..first + count`, and the keys that one of them sees.
    #[derive(Clone)]
    struct Block {
        first: usize,
        count: usize,
        keys: Range<usize>,
    }

    /// One call: arguments in row-major order, and how their heads lie.
    struct Call<'a> {
        query: &'a [f32],
        key: &'a [f32],
        value: &'a [f32],
        mask: &'a [f32],
        window: Window,
        scale: f32,
        queries: Heads,
        keys: Heads,
    }

    impl<'a> Call<'a> {
        fn new([query, key, value, mask]: [&'a FlexTensor; 4], op: &Attention) -> Self {
            let [_, lines, count, width] = query.shape().dims();
            let queries = Heads { count, groups: count, shared: false, lines, width };
            let keys = Heads { groups: key.shape()[2], ..queries };
            let [query, key, value, mask] = [query, key, value, mask].map(slice);
            let Attention { window, scale } = *op;
            Self { query, key, value, mask, window, scale: scale as f32, queries, keys }
        }

        fn blocks(&self) -> impl Iterator<Item = Block> + use<> {
            let (tokens, window) = (self.queries.lines, self.window);
            (0..tokens).step_by(BLOCK).map(move |first| {
                let count = BLOCK.min(tokens - first);
                Block { first, count, keys: window.columns(first, first + count - 1, tokens) }
            })
        }

        /// Probabilities of a block, `[count, keys]`.
        fn probabilities(&self, Block { first, count, keys }: &Block, task: usize) -> Vec<f32> {
            let Range { start, end } = *keys;
            let seen = end - start;
            let key = self.keys.part(self.key, task).part(start, seen);
            let query = self.queries.part(self.query, task).part(*first, *count);
            let mut p = product(query, &pack_wide(key.transposed()));
            let Heads { count, lines, .. } = self.queries;
            let visible = &self.mask[task / count * lines..][start..end];
            softmax_rows(&mut p, seen, Some(visible), self.window, first - start, self.scale);
            p
        }

        /// Output of one head, `[T, d]`.
        fn forward(&self, task: usize) -> Vec<f32> {
            let mut out = Vec::with_capacity(self.queries.lines * self.queries.width);
            for block in self.blocks() {
                let p = self.probabilities(&block, task);
                let Block { count, keys: Range { start, end }, .. } = block;
                let value = self.keys.part(self.value, task).part(start, end - start);
                out.extend(product(Matrix::new(&p, count, end - start), &pack_wide(value)));
            }
            out
        }

        /// Gradients of one head's query, key and value, `[T, d]`, from `grad`, that of the whole output.
        fn backward(&self, grad: &[f32], task: usize) -> [Vec<f32>; 3] {
            let width = self.queries.width;
            let [mut d_query, mut d_key, mut d_value] =
                [(); 3].map(|()| vec![0.0; self.queries.lines * width]);
            for block in self.blocks() {
                let p = self.probabilities(&block, task);
                let Block { first, count, keys: Range { start, end } } = block;
                let keys = end - start;
                let seen = start * width..end * width;
                let grad = self.queries.part(grad, task).part(first, count);
                add(Matrix::new(&p, count, keys).transposed(), grad, &mut d_value[seen.clone()]);
                let value = self.keys.part(self.value, task).part(start, keys).transposed();
                let mut d_score = product(grad, &pack_wide(value));
                softmax_gradient_rows(&mut d_score, &p, keys, self.scale);
                let d_score = Matrix::new(&d_score, count, keys);
                let key = self.keys.part(self.key, task).part(start, keys);
                add(d_score, key, &mut d_query[first * width..][..count * width]);
                let query = self.queries.part(self.query, task).part(first, count);
                add(d_score.transposed(), query, &mut d_key[seen]);
            }
            [d_query, d_key, d_value]
        }
    }

    fn add(x: Matrix<'_>, base: Matrix<'_>, out: &mut [f32]) {
        Product::plain(x, &pack_wide(base)).added().run_here(out);
    }

    pub(crate) fn forward(op: &Attention, x: Operands<Flex>, save: bool) -> Fused<Flex> {
        let saved = x.keep(save, &[0, 1, 2, 3]);
        let arguments = x.all().map(contiguous);
        let call = Call::new(arguments.each_ref(), op);
        let shape = arguments[0].shape();
        let parts = run((0..shape[0] * shape[2]).collect(), |task| call.forward(task));
        Fused { out: call.queries.join(parts.iter().map(Vec::as_slice), shape), saved }
    }

    pub(crate) fn gradient(op: &Attention, x: Upstream<'_, Flex>) -> Operands<Flex> {
        let Upstream { saved, grad, needs_grad } = x;
        let (arguments, grad) = (saved.all().map(contiguous), contiguous(grad));
        let call = Call::new(arguments.each_ref(), op);
        let (shape, grad) = (arguments[0].shape(), slice(&grad));
        let parts = run((0..shape[0] * shape[2]).collect(), |task| call.backward(grad, task));
        let gradients =
            [call.queries, call.keys, call.keys].into_iter().enumerate().map(|(i, heads)| {
                let parts = parts.iter().map(|part| part[i].as_slice());
                needs_grad[i].then(|| heads.join(parts, arguments[i].shape()))
            });
        gradients.collect::<Vec<_>>().into()
    }
}
