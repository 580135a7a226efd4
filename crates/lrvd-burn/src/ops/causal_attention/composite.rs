//! Attention from Burn's operations.
//!
//! The queries of a group are stacked as rows of one product, so that keys and values are never repeated.

use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, TensorMetadata};
use burn::tensor::TensorData;

use crate::ops::value::{ThreeGradients, Value, masked_softmax, softmax_gradient};

/// Sizes of one call: batch, tokens, query heads, key heads, head width.
#[derive(Clone, Copy)]
struct Sizes {
    batch: usize,
    tokens: usize,
    heads: usize,
    groups: usize,
    width: usize,
}

impl Sizes {
    fn of<B: Backend>(query: &FloatTensor<B>, key: &FloatTensor<B>) -> Self {
        let (query, groups) = (query.shape(), key.shape()[2]);
        Self { batch: query[0], tokens: query[1], heads: query[2], groups, width: query[3] }
    }

    fn is_empty(self) -> bool {
        self.batch * self.tokens * self.heads * self.width == 0
    }

    /// `[B, T, H, d]` as `[B, G, (H/G)·T, d]`.
    fn stack<B: Backend>(self, rows: FloatTensor<B>) -> Value<B> {
        let Self { batch, tokens, heads, groups, width } = self;
        Value::<B>(rows)
            .reshape([batch, tokens, groups, heads / groups, width])
            .permute(&[0, 2, 3, 1, 4])
            .reshape([batch, groups, heads / groups * tokens, width])
    }

    /// The inverse of [`Self::stack`].
    fn unstack<B: Backend>(self, rows: Value<B>) -> FloatTensor<B> {
        let Self { batch, tokens, heads, groups, width } = self;
        rows.reshape([batch, groups, heads / groups, tokens, width])
            .permute(&[0, 3, 1, 2, 4])
            .reshape([batch, tokens, heads, width])
            .0
    }
}

/// Probabilities, `[B, G, (H/G)·T, T]`.
fn probabilities<B: Backend>(
    query: Value<B>,
    key: Value<B>,
    mask: FloatTensor<B>,
    scale: f64,
    sizes: Sizes,
) -> Value<B> {
    let Sizes { batch, tokens, heads, groups, .. } = sizes;
    let score = query.matmul(key.swap(2, 3)).reshape([batch, heads, tokens, tokens]) * scale;
    let before = (0..tokens * tokens).map(|i| f32::from(u8::from(i % tokens <= i / tokens)));
    let before = TensorData::new(before.collect::<Vec<f32>>(), [1, 1, tokens, tokens]);
    let visible = score.host(before) * Value::<B>(mask).reshape([batch, 1, 1, tokens]);
    let p = masked_softmax(score, visible);
    p.reshape([batch, groups, heads / groups * tokens, tokens])
}

pub(crate) fn forward<B: Backend>(
    query: FloatTensor<B>,
    key: FloatTensor<B>,
    value: FloatTensor<B>,
    mask: FloatTensor<B>,
    scale: f64,
) -> FloatTensor<B> {
    let sizes = Sizes::of::<B>(&query, &key);
    if sizes.is_empty() {
        return query;
    }
    let (key, value) = (Value::<B>(key).swap(1, 2), Value::<B>(value).swap(1, 2));
    let p = probabilities(sizes.stack::<B>(query), key, mask, scale, sizes);
    sizes.unstack(p.matmul(value))
}

pub(crate) fn backward<B: Backend>(
    [query, key, value, mask]: [FloatTensor<B>; 4],
    grad: FloatTensor<B>,
    scale: f64,
    needs_grad: [bool; 3],
) -> ThreeGradients<B> {
    let sizes = Sizes::of::<B>(&query, &key);
    if sizes.is_empty() {
        let of = |needs_grad: bool, tensor| needs_grad.then_some(tensor);
        return (of(needs_grad[0], query), of(needs_grad[1], key), of(needs_grad[2], value));
    }
    let (query, grad) = (sizes.stack::<B>(query), sizes.stack::<B>(grad));
    let (key, value) = (Value::<B>(key).swap(1, 2), Value::<B>(value).swap(1, 2));
    let p = probabilities(query.clone(), key.clone(), mask, scale, sizes);
    let d_value = needs_grad[2].then(|| p.clone().swap(2, 3).matmul(grad.clone()).swap(1, 2).0);
    let d_p = grad.matmul(value.swap(2, 3));
    let d_score = softmax_gradient(p, d_p, scale);
    let d_key = needs_grad[1].then(|| d_score.clone().swap(2, 3).matmul(query).swap(1, 2).0);
    let d_query = needs_grad[0].then(|| sizes.unstack(d_score.matmul(key)));
    (d_query, d_key, d_value)
}
