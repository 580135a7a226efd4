//! Root-mean-square normalisation over the last axis.

pub(crate) mod composite;
#[cfg(feature = "flex")]
pub(crate) mod cpu;

use burn::backend::Dispatch;
use burn::tensor::Tensor;

use super::backend::LrvdBackend;

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
    check(&x, &gamma);
    Tensor::from_dispatch(<Dispatch as LrvdBackend>::fused_rms_norm(
        x.into_dispatch(),
        gamma.into_dispatch(),
        eps,
    ))
}

/// [`rms_norm()`](fn@rms_norm) from Burn's operations.
///
/// # Panics
///
/// As [`rms_norm()`](fn@rms_norm).
pub fn rms_norm_composite<const D: usize>(x: Tensor<D>, gamma: Tensor<1>, eps: f64) -> Tensor<D> {
    check(&x, &gamma);
    Tensor::from_dispatch(composite::forward::<Dispatch>(
        x.into_dispatch(),
        gamma.into_dispatch(),
        eps,
    ))
}

fn check<const D: usize>(x: &Tensor<D>, gamma: &Tensor<1>) {
    assert_eq!(gamma.dims(), [x.dims()[D - 1]], "shape of `gamma`");
}
