//! Causal self-attention.

pub(crate) mod composite;
#[cfg(feature = "flex")]
pub(crate) mod cpu;

use burn::backend::Dispatch;
use burn::tensor::Tensor;

use super::backend::LrvdBackend;

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
    check(&query, &key, &value, &mask);
    Tensor::from_dispatch(<Dispatch as LrvdBackend>::fused_causal_attention(
        query.into_dispatch(),
        key.into_dispatch(),
        value.into_dispatch(),
        mask.into_dispatch(),
        scale,
    ))
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
    check(&query, &key, &value, &mask);
    Tensor::from_dispatch(composite::forward::<Dispatch>(
        query.into_dispatch(),
        key.into_dispatch(),
        value.into_dispatch(),
        mask.into_dispatch(),
        scale,
    ))
}

fn check(query: &Tensor<4>, key: &Tensor<4>, value: &Tensor<4>, mask: &Tensor<2>) {
    let [batch, tokens, heads, width] = query.dims();
    let groups = key.dims()[2];
    assert!(
        groups > 0 && heads % groups == 0,
        "{groups} key heads do not divide {heads} query heads"
    );
    assert_eq!(key.dims(), [batch, tokens, groups, width], "shape of `key`");
    assert_eq!(value.dims(), key.dims(), "shape of `value`");
    assert_eq!(mask.dims(), [batch, tokens], "shape of `mask`");
}
