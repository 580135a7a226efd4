//! Counter-based standard-normal noise.

pub(crate) mod composite;
#[cfg(feature = "flex")]
pub(crate) mod cpu;
#[cfg(feature = "cube")]
pub(crate) mod kernel;
#[cfg(feature = "cube")]
pub(crate) mod launch;

use burn::backend::Dispatch;
use burn::tensor::{Shape, Tensor};
use lrvd_core::noise::NoiseKey;

use super::backend::LrvdBackend;

/// Standard-normal numbers, elements `0, 1, …` of `key` in row-major order; a constant for gradients.
///
/// Device and element type are those of `like`, whose values do not matter.
///
/// # Numerics
///
/// The definition is [`lrvd_core::noise::fill_normal`]; on the CPU the bits are its bits. Other
/// backends use the same words and formula and their own `ln`, `cos`, `sin`: about `1e-6` apart.
pub fn standard_normal<const K: usize, const D: usize>(
    like: &Tensor<K>,
    shape: [usize; D],
    key: NoiseKey,
) -> Tensor<D> {
    Tensor::from_dispatch(<Dispatch as LrvdBackend>::fused_standard_normal(
        like.clone().into_dispatch(),
        Shape::new(shape),
        key,
    ))
}
