//! Layer normalisation over the last axis.

pub(crate) mod composite;
#[cfg(feature = "flex")]
pub(crate) mod cpu;

use burn::backend::Dispatch;
use burn::tensor::Tensor;

use super::backend::LrvdBackend;

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
    check(&x, &gamma, &beta);
    Tensor::from_dispatch(<Dispatch as LrvdBackend>::fused_layer_norm(
        x.into_dispatch(),
        gamma.into_dispatch(),
        beta.into_dispatch(),
        eps,
    ))
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
    check(&x, &gamma, &beta);
    Tensor::from_dispatch(composite::forward::<Dispatch>(
        x.into_dispatch(),
        gamma.into_dispatch(),
        beta.into_dispatch(),
        eps,
    ))
}

fn check<const D: usize>(x: &Tensor<D>, gamma: &Tensor<1>, beta: &Tensor<1>) {
    let width = x.dims()[D - 1];
    assert_eq!(gamma.dims(), [width], "shape of `gamma`");
    assert_eq!(beta.dims(), [width], "shape of `beta`");
}
