//! Root-mean-square normalisation over the last axis.

#[cfg(feature = "flex")]
mod cpu;

use burn::backend::Dispatch;
use burn::backend::tensor::FloatTensor;
use burn::tensor::Tensor;

use super::op::{self, FusedOp, LrvdBackend, Operands};
use super::value::{Value, as_row};

/// Root-mean-square normalisation of the last axis, with gain.
///
/// # Formula
///
/// ```text
/// out = x · r · gamma,   r = 1 / sqrt(mean(x²) + eps)
/// ```
///
/// # Shapes
///
/// | Name            | Shape      |
/// |-----------------|------------|
/// | `x`, *returns*  | `[..., d]` |
/// | `gamma`         | `[d]`      |
///
/// # Numerics
///
/// The backward pass saves the arguments and computes `r` again; the gradient of `gamma` costs nothing while it is
/// frozen.
///
/// # Panics
///
/// If `gamma` does not have `d` entries.
///
/// # References
///
/// Zhang, Sennrich 2019, arXiv:1910.07467.
pub fn rms_norm<const D: usize>(x: Tensor<D>, gamma: Tensor<1>, eps: f64) -> Tensor<D> {
    op::fused(RmsNorm { eps }, operands(x, gamma))
}

/// [`rms_norm()`](fn@rms_norm) from Burn's operations.
///
/// # Panics
///
/// As [`rms_norm()`](fn@rms_norm).
pub fn rms_norm_composite<const D: usize>(x: Tensor<D>, gamma: Tensor<1>, eps: f64) -> Tensor<D> {
    op::composite(RmsNorm { eps }, operands(x, gamma))
}

fn operands<const D: usize>(x: Tensor<D>, gamma: Tensor<1>) -> Operands<Dispatch> {
    assert_eq!(gamma.dims(), [x.dims()[D - 1]], "shape of `gamma`");
    Operands::of([x.into_dispatch(), gamma.into_dispatch()])
}

#[derive(Clone, Debug)]
struct RmsNorm {
    eps: f64,
}

impl FusedOp for RmsNorm {
    fn composite<B: LrvdBackend>(&self, x: Operands<B>) -> FloatTensor<B> {
        let [x, gamma] = x.all();
        let x = Value::<B>(x);
        let rank = x.shape().len();
        if x.shape().contains(&0) {
            return x.0;
        }
        let r = (x.clone().square().mean(rank - 1) + self.eps).sqrt().recip();
        (x * r * as_row(gamma, rank)).0
    }

    #[cfg(feature = "flex")]
    fn cpu(dtype: burn::tensor::DType) -> Option<op::Form<burn::backend::Flex, Self>> {
        op::real_form!(dtype, cpu::{forward, gradient})
    }
}
