//! A frozen linear layer and its low-rank update.

#[cfg(feature = "flex")]
pub(crate) mod cpu;
pub(crate) mod moment_matched;

use burn::backend::Dispatch;
use burn::backend::tensor::FloatTensor;
use burn::tensor::Tensor;

use super::op::{self, FusedOp, LrvdBackend, Operands};
use super::value::{Value, as_row};

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
    let op = AdaptedLinear { scale: low.as_ref().map_or(1.0, |low| low.scale) };
    op::fused(op, operands(x, weight, bias, low))
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
    let op = AdaptedLinear { scale: low.as_ref().map_or(1.0, |low| low.scale) };
    op::composite(op, operands(x, weight, bias, low))
}

fn operands(
    x: Tensor<3>,
    weight: Tensor<2>,
    bias: Option<Tensor<1>>,
    low: Option<LowRank>,
) -> Operands<Dispatch> {
    let ([n, _, features], [d_input, d_output]) = (x.dims(), weight.dims());
    assert_eq!(features, d_input, "features of `x`");
    if let Some(bias) = &bias {
        assert_eq!(bias.dims(), [d_output], "shape of `bias`");
    }
    if let Some(LowRank { a, b, .. }) = &low {
        let [groups, _, rank] = a.dims();
        assert!(groups > 0 && n.is_multiple_of(groups), "{n} sequences in {groups} groups");
        assert_eq!(a.dims(), [groups, d_input, rank], "shape of `a`");
        assert_eq!(b.dims(), [groups, rank, d_output], "shape of `b`");
    }
    let [a, b] = low.map_or([None, None], |low| [Some(low.a), Some(low.b)]);
    Operands::some([
        Some(x.into_dispatch()),
        Some(weight.into_dispatch()),
        bias.map(Tensor::into_dispatch),
        a.map(Tensor::into_dispatch),
        b.map(Tensor::into_dispatch),
    ])
}

/// Of `x`, `weight`, `bias`, `a` and `b`, the last three optional.
#[derive(Clone, Debug)]
struct AdaptedLinear {
    scale: f64,
}

impl FusedOp for AdaptedLinear {
    fn composite<B: LrvdBackend>(&self, x: Operands<B>) -> FloatTensor<B> {
        let ([x, weight], [bias, a, b]) = x.parts();
        let (x, weight) = (Value::<B>(x), Value::<B>(weight));
        let (shape, d_output) = (x.shape(), weight.shape()[1]);
        let rows = shape[0] * shape[1];
        let mut out = x.clone().reshape([rows, shape[2]]).matmul(weight);
        if let Some(bias) = bias {
            out = out + as_row(bias, 2);
        }
        let out = out.reshape([shape[0], shape[1], d_output]);
        let Some((a, b)) = a.zip(b) else { return out.0 };
        let (a, b) = (Value::<B>(a), Value::<B>(b));
        let groups = a.shape()[0];
        let s = x.reshape([groups, rows / groups, shape[2]]).matmul(a) * self.scale;
        (out + s.matmul(b).reshape([shape[0], shape[1], d_output])).0
    }

    #[cfg(feature = "flex")]
    fn cpu(dtype: burn::tensor::DType) -> Option<op::Form<burn::backend::Flex, Self>> {
        let form = op::Form { forward: cpu::forward, gradient: Some(cpu::gradient) };
        (dtype == burn::tensor::DType::F32).then_some(form)
    }
}
