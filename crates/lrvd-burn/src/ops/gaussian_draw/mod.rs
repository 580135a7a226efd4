//! Draws of a matrix with independent Gaussian entries.

#[cfg(feature = "flex")]
mod cpu;
#[cfg(feature = "cube")]
mod cube;

use burn::backend::tensor::FloatTensor;
use burn::backend::{Dispatch, TensorMetadata};
use burn::tensor::{Shape, Tensor};
use lrvd_core::noise::NoiseKey;

use super::op::{self, FusedOp, LrvdBackend, Operands};
use super::standard_normal::StandardNormal;
use super::value::Value;

/// `count` draws of a Gaussian matrix.
///
/// # Formula
///
/// ```text
/// out[s] = mean + std ⊙ eps[s]      dmean = Σ_s dout[s]      dstd = Σ_s eps[s] ⊙ dout[s]
/// ```
///
/// `eps` holds elements `0, 1, …` of `key` in row-major order, as
/// [`standard_normal()`](fn@super::standard_normal) gives them.
///
/// # Shapes
///
/// | Name | Shape |
/// |---|---|
/// | `mean` | `[rows, columns]` |
/// | `std` | `[rows \| 1, columns \| 1]` |
/// | *returns* | `[count, rows, columns]` |
///
/// # Numerics
///
/// The backward pass computes the noise again instead of keeping it.
///
/// # Panics
///
/// If `std` does not broadcast to the shape of `mean`.
pub fn gaussian_draw(mean: Tensor<2>, std: Tensor<2>, count: usize, key: NoiseKey) -> Tensor<3> {
    op::fused(GaussianDraw { count, key }, operands(mean, std))
}

/// [`gaussian_draw()`](fn@gaussian_draw) from Burn's operations.
///
/// # Panics
///
/// As [`gaussian_draw()`](fn@gaussian_draw).
pub fn gaussian_draw_composite(
    mean: Tensor<2>,
    std: Tensor<2>,
    count: usize,
    key: NoiseKey,
) -> Tensor<3> {
    op::composite(GaussianDraw { count, key }, operands(mean, std))
}

fn operands(mean: Tensor<2>, std: Tensor<2>) -> Operands<Dispatch> {
    for (axis, (&size, &found)) in mean.dims().iter().zip(&std.dims()).enumerate() {
        assert!(found == 1 || found == size, "axis {axis} of `std` is {found}, of `mean` {size}");
    }
    Operands::of([mean, std].map(Tensor::into_dispatch))
}

#[derive(Clone, Debug)]
struct GaussianDraw {
    count: usize,
    key: NoiseKey,
}

impl FusedOp for GaussianDraw {
    fn composite<B: LrvdBackend>(&self, x: Operands<B>) -> FloatTensor<B> {
        let [mean, std] = x.all();
        let shape = Shape::new([self.count, mean.shape()[0], mean.shape()[1]]);
        let normal = StandardNormal { shape, key: self.key };
        let eps = Value::<B>(B::fused(normal, Operands::of([mean.clone()])));
        let [mean, std] = [mean, std].map(|matrix| {
            let shape = matrix.shape();
            Value::<B>(matrix).reshape([1, shape[0], shape[1]])
        });
        (mean + eps * std).0
    }

    #[cfg(feature = "flex")]
    fn cpu(dtype: burn::tensor::DType) -> Option<op::Form<burn::backend::Flex, Self>> {
        op::real_form!(dtype, cpu::{forward, gradient})
    }

    #[cfg(feature = "cube")]
    fn cube() -> Option<op::Form<burn_cubecl::CubeBackend, Self>> {
        Some(op::Form { forward: cube::forward, gradient: Some(cube::gradient) })
    }
}
