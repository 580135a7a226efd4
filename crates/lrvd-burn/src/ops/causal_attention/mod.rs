//! Causal self-attention.

#[cfg(feature = "flex")]
mod cpu;

use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Dispatch, TensorMetadata};
use burn::tensor::{Tensor, TensorData};

use super::op::{self, FusedOp, LrvdBackend, Operands};
use super::value::{Value, masked_softmax};

/// Causal self-attention with grouped keys and values.
///
/// # Formula
///
/// ```text
/// p[b,h,t,s] = softmax over s ≤ t with mask[b,s] = 1 of scale · query[b,t,h]·key[b,s,g]
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
/// On the CPU a row of scores lives in the first-level cache only, and scores of later keys are never computed.
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
pub fn causal_attention(
    query: Tensor<4>,
    key: Tensor<4>,
    value: Tensor<4>,
    mask: Tensor<2>,
    scale: f64,
) -> Tensor<4> {
    op::fused(CausalAttention { scale }, operands(query, key, value, mask))
}

/// [`causal_attention()`](fn@causal_attention) from Burn's operations.
///
/// # Panics
///
/// As [`causal_attention()`](fn@causal_attention).
pub fn causal_attention_composite(
    query: Tensor<4>,
    key: Tensor<4>,
    value: Tensor<4>,
    mask: Tensor<2>,
    scale: f64,
) -> Tensor<4> {
    op::composite(CausalAttention { scale }, operands(query, key, value, mask))
}

fn operands(
    query: Tensor<4>,
    key: Tensor<4>,
    value: Tensor<4>,
    mask: Tensor<2>,
) -> Operands<Dispatch> {
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
    Operands::of([query, key, value, mask.into_dispatch()])
}

#[derive(Clone, Debug)]
struct CausalAttention {
    scale: f64,
}

impl FusedOp for CausalAttention {
    /// The queries of a group are stacked as rows of one product, so that keys and values are never
    /// repeated.
    fn composite<B: LrvdBackend>(&self, x: Operands<B>) -> FloatTensor<B> {
        let [query, key, value, mask] = x.all();
        let sizes = Sizes::of::<B>(&query, &key);
        if query.shape().num_elements() == 0 {
            return query;
        }
        let (key, value) = (Value::<B>(key).swap(1, 2), Value::<B>(value).swap(1, 2));
        let p = probabilities(sizes.stack::<B>(query), key, mask, self.scale, sizes);
        sizes.unstack(p.matmul(value))
    }

    #[cfg(feature = "flex")]
    fn cpu(dtype: burn::tensor::DType) -> Option<op::Form<burn::backend::Flex, Self>> {
        let form = op::Form { forward: cpu::forward, gradient: Some(cpu::gradient) };
        (dtype == burn::tensor::DType::F32).then_some(form)
    }
}

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
