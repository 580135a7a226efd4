//! The keys that a query sees.

use burn::tensor::{DType, Device, Int, Tensor, activation};
use lrvd_burn::sampling::Pass;

/// What is added to the score of a key that must not be seen: far below any score, and finite, so that a query without
/// any key (a padded one) has weights that mean nothing instead of values that are not numbers.
const UNSEEN: f64 = -1.0e30;

/// Visibility of one batch, shared by all layers.
///
/// A query sees the real tokens up to its own column; columns of the cache come before those of the input.
#[derive(Clone)]
pub(super) enum Visible {
    /// No past, as many keys as queries: 1 for tokens, 0 for padding, `[batch, tokens]`.
    Alone(Tensor<2>),
    /// Keys of a cache before those of the input: a sum of [`UNSEEN`], `[batch, 1, tokens, past + tokens]`.
    After(Tensor<4>),
}

impl Visible {
    /// `mask` is that of all keys, `[batch, past + tokens]`, 1 for tokens and 0 for padding.
    pub(super) fn new(mask: Tensor<2>, tokens: usize) -> Self {
        if mask.dims()[1] == tokens {
            return Self::Alone(mask);
        }
        Self::After(unseen(mask, tokens))
    }

    /// Attention weights of scores `[batch, heads, tokens, keys]`, which are multiplied by `scale` first.
    pub(super) fn weights(&self, scores: Tensor<4>, scale: f64, pass: &Pass) -> Tensor<4> {
        let unseen = match self {
            Self::Alone(mask) => unseen(mask.clone(), mask.dims()[1]),
            Self::After(unseen) => unseen.clone(),
        };
        let unseen = pass.repeated(unseen, scores.dims()[0]);
        activation::softmax(scores.mul_scalar(scale) + unseen, 3)
    }
}

/// [`UNSEEN`] where a query must not look, once for padding and once for later keys.
fn unseen(mask: Tensor<2>, tokens: usize) -> Tensor<4> {
    let [batch, keys] = mask.dims();
    let later = later(keys - tokens, tokens, &mask.device(), mask.dtype());
    let padding = mask.sub_scalar(1.0).mul_scalar(-UNSEEN);
    padding.reshape([batch, 1, 1, keys]) + later.mul_scalar(UNSEEN).reshape([1, 1, tokens, keys])
}

/// 1 where the key comes after the query, `[tokens, past + tokens]`.
fn later(past: usize, tokens: usize, device: &Device, dtype: DType) -> Tensor<2> {
    let keys = past + tokens;
    let count = |range: std::ops::Range<usize>| {
        Tensor::<1, Int>::arange(range.start as i64..range.end as i64, device)
    };
    let query: Tensor<2, Int> = count(past..keys).unsqueeze_dim(1);
    let key: Tensor<2, Int> = count(0..keys).unsqueeze_dim(0);
    let shape = [tokens, keys];
    key.expand(shape).greater(query.expand(shape)).float().cast(dtype)
}
