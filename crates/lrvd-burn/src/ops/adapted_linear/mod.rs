//! A frozen linear layer and its low-rank update.

pub(crate) mod composite;
#[cfg(feature = "flex")]
pub(crate) mod cpu;
pub(crate) mod moment_matched;

use burn::backend::Dispatch;
use burn::backend::tensor::FloatTensor;
use burn::tensor::Tensor;

use super::backend::LrvdBackend;

pub use moment_matched::{OutputNoise, moment_matched_linear};

/// The factors of an update and what multiplies their product.
#[derive(Clone, Debug)]
pub struct LowRank {
    /// Down-projections, `[groups, d_input, rank]`.
    pub a: Tensor<3>,
    /// Up-projections, `[groups, rank, d_output]`.
    pub b: Tensor<3>,
    /// The factor `c`.
    pub scale: f64,
}

/// A linear layer and a low-rank update with separate factors for each group of sequences.
///
/// # Formula
///
/// ```text
/// s = c · x·A_g        y = x·W + bias + s·B_g        g: the group of the row
/// h = c · dy·B_gᵀ      dx = dy·Wᵀ + h·A_gᵀ           dA_g = Σ x·hᵀ      dB_g = Σ s·dyᵀ
/// ```
///
/// # Shapes
///
/// | Name | Shape |
/// |---|---|
/// | `x` | `[n, tokens, d_input]` |
/// | `weight` | `[d_input, d_output]` |
/// | `bias` | `[d_output]` |
/// | *returns* | `[n, tokens, d_output]` |
///
/// The first `n / groups` sequences are the first group's, and so on: one group for an ordinary adapter,
/// `n` groups for a draw of weights per sequence.
///
/// # Numerics
///
/// On the CPU `x` is packed once for both products, and `s` never leaves the cache before it meets B. In
/// `f32` every element is one chain of fused multiply-adds in a fixed order: the same bits for every
/// number of threads, every vector width and every batch around a row. The backward pass saves `x`, the
/// factors and `s`, and computes the gradient of a weight or a bias only where one is needed.
///
/// # Panics
///
/// If shapes do not fit, or `n` is no multiple of `groups`.
pub fn adapted_linear(
    x: Tensor<3>,
    weight: Tensor<2>,
    bias: Option<Tensor<1>>,
    low: Option<LowRank>,
) -> Tensor<3> {
    check(&x, &weight, bias.as_ref(), low.as_ref());
    let (a, b, scale) = factors(low);
    let (out, _) = <Dispatch as LrvdBackend>::fused_adapted_linear(
        x.into_dispatch(),
        weight.into_dispatch(),
        bias.map(Tensor::into_dispatch).into(),
        a.into(),
        b.into(),
        scale,
    );
    Tensor::from_dispatch(out)
}

/// [`adapted_linear()`](fn@adapted_linear) from Burn's operations.
///
/// # Panics
///
/// As [`adapted_linear()`](fn@adapted_linear).
pub fn adapted_linear_composite(
    x: Tensor<3>,
    weight: Tensor<2>,
    bias: Option<Tensor<1>>,
    low: Option<LowRank>,
) -> Tensor<3> {
    check(&x, &weight, bias.as_ref(), low.as_ref());
    let (a, b, scale) = factors(low);
    let (x, weight) = (x.into_dispatch(), weight.into_dispatch());
    let bias = bias.map(Tensor::into_dispatch);
    Tensor::from_dispatch(composite::forward::<Dispatch>(x, weight, bias, a, b, scale).0)
}

type Factor = Option<FloatTensor<Dispatch>>;

fn factors(low: Option<LowRank>) -> (Factor, Factor, f64) {
    match low {
        Some(LowRank { a, b, scale }) => (Some(a.into_dispatch()), Some(b.into_dispatch()), scale),
        None => (None, None, 1.0),
    }
}

fn check(x: &Tensor<3>, weight: &Tensor<2>, bias: Option<&Tensor<1>>, low: Option<&LowRank>) {
    let ([n, _, features], [d_input, d_output]) = (x.dims(), weight.dims());
    assert_eq!(features, d_input, "features of `x`");
    if let Some(bias) = bias {
        assert_eq!(bias.dims(), [d_output], "shape of `bias`");
    }
    if let Some(LowRank { a, b, .. }) = low {
        let [groups, _, rank] = a.dims();
        assert!(groups > 0 && n.is_multiple_of(groups), "{n} sequences in {groups} groups");
        assert_eq!(a.dims(), [groups, d_input, rank], "shape of `a`");
        assert_eq!(b.dims(), [groups, rank, d_output], "shape of `b`");
    }
}
