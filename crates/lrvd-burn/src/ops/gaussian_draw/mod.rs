//! Draws of a matrix with independent Gaussian entries.

pub(crate) mod composite;
#[cfg(feature = "flex")]
pub(crate) mod cpu;
#[cfg(feature = "cube")]
mod kernel;
#[cfg(feature = "cube")]
pub(crate) mod launch;

use burn::backend::Dispatch;
use burn::tensor::Tensor;
use lrvd_core::noise::NoiseKey;

use super::backend::LrvdBackend;

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
    check(&mean, &std);
    let (mean, std) = (mean.into_dispatch(), std.into_dispatch());
    Tensor::from_dispatch(<Dispatch as LrvdBackend>::fused_gaussian_draw(mean, std, count, key))
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
    check(&mean, &std);
    let (mean, std) = (mean.into_dispatch(), std.into_dispatch());
    Tensor::from_dispatch(composite::forward::<Dispatch>(mean, std, count, key))
}

fn check(mean: &Tensor<2>, std: &Tensor<2>) {
    for (axis, (&size, &found)) in mean.dims().iter().zip(&std.dims()).enumerate() {
        assert!(found == 1 || found == size, "axis {axis} of `std` is {found}, of `mean` {size}");
    }
}
