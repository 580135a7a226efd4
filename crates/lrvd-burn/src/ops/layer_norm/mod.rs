//! Layer normalisation over the last axis.

#[cfg(feature = "flex")]
mod cpu;

use burn::backend::Dispatch;
use burn::backend::tensor::FloatTensor;
use burn::tensor::Tensor;

use super::op::{self, FusedOp, LrvdBackend, Operands};
use super::value::{Value, as_row};

/// Layer normalisation of the last axis, with gain and shift.
///
/// # Formula
///
/// ```text
/// out = (x - mean) · r · gamma + beta,   r = 1 / sqrt(variance + eps)
/// ```
///
/// `mean` and the biased `variance` are those of each row.
///
/// # Shapes
///
/// | Name            | Shape      |
/// |-----------------|------------|
/// | `x`, *returns*  | `[..., d]` |
/// | `gamma`, `beta` | `[d]`      |
///
/// # Numerics
///
/// Two passes per row, the second over centred values. The backward pass saves `x` and `gamma` and
/// computes the statistics again; gradients of `gamma` and `beta` cost nothing while both are frozen.
///
/// # Panics
///
/// If `gamma` or `beta` does not have `d` entries.
///
/// # References
///
/// Ba, Kiros, Hinton 2016, arXiv:1607.06450.
pub fn layer_norm<const D: usize>(
    x: Tensor<D>,
    gamma: Tensor<1>,
    beta: Tensor<1>,
    eps: f64,
) -> Tensor<D> {
    op::fused(LayerNorm { eps }, operands(x, gamma, beta))
}

/// [`layer_norm()`](fn@layer_norm) from Burn's operations.
///
/// # Panics
///
/// As [`layer_norm()`](fn@layer_norm).
pub fn layer_norm_composite<const D: usize>(
    x: Tensor<D>,
    gamma: Tensor<1>,
    beta: Tensor<1>,
    eps: f64,
) -> Tensor<D> {
    op::composite(LayerNorm { eps }, operands(x, gamma, beta))
}

fn operands<const D: usize>(x: Tensor<D>, gamma: Tensor<1>, beta: Tensor<1>) -> Operands<Dispatch> {
    let width = x.dims()[D - 1];
    assert_eq!(gamma.dims(), [width], "shape of `gamma`");
    assert_eq!(beta.dims(), [width], "shape of `beta`");
    Operands::of([x.into_dispatch(), gamma.into_dispatch(), beta.into_dispatch()])
}

#[derive(Clone, Debug)]
struct LayerNorm {
    eps: f64,
}

impl FusedOp for LayerNorm {
    fn composite<B: LrvdBackend>(&self, x: Operands<B>) -> FloatTensor<B> {
        let [x, gamma, beta] = x.all();
        let x = Value::<B>(x);
        let rank = x.shape().len();
        if x.shape().contains(&0) {
            return x.0;
        }
        let centred = x.clone() - x.mean(rank - 1);
        let r = (centred.clone().square().mean(rank - 1) + self.eps).sqrt().recip();
        (centred * r * as_row(gamma, rank) + as_row(beta, rank)).0
    }

    #[cfg(feature = "flex")]
    fn cpu(dtype: burn::tensor::DType) -> Option<op::Form<burn::backend::Flex, Self>> {
        op::real_form!(dtype, cpu::{forward, gradient})
    }
}
