//! Weighted sums of squares along the last axis.

pub(crate) mod composite;
#[cfg(feature = "flex")]
pub(crate) mod cpu;

use burn::backend::Dispatch;
use burn::tensor::Tensor;

use super::backend::{LrvdBackend, Maybe};

/// Weighted sum of the squares of every row.
///
/// # Formula
///
/// ```text
/// out[n] = Σ_k w[k]·x[n,k]²       dx = 2·g[n]·w[k]·x[n,k]       dw[k] = Σ_n g[n]·x[n,k]²
/// ```
///
/// Without weights every `w[k]` is 1: the squared norm.
///
/// # Shapes
///
/// | Name | Shape |
/// |---|---|
/// | `x` | `[n, d]` |
/// | `weight` | `[d]` |
/// | *returns* | `[n]` |
///
/// # Panics
///
/// If `weight` does not have `d` entries.
pub fn row_energy(x: Tensor<2>, weight: Option<Tensor<1>>) -> Tensor<1> {
    check(&x, weight.as_ref());
    let weight = Maybe::from(weight.map(Tensor::into_dispatch));
    Tensor::from_dispatch(<Dispatch as LrvdBackend>::fused_row_energy(x.into_dispatch(), weight))
}

/// [`row_energy()`](fn@row_energy) from Burn's operations.
///
/// # Panics
///
/// As [`row_energy()`](fn@row_energy).
pub fn row_energy_composite(x: Tensor<2>, weight: Option<Tensor<1>>) -> Tensor<1> {
    check(&x, weight.as_ref());
    let weight = weight.map(Tensor::into_dispatch);
    Tensor::from_dispatch(composite::forward::<Dispatch>(x.into_dispatch(), weight))
}

fn check(x: &Tensor<2>, weight: Option<&Tensor<1>>) {
    if let Some(weight) = weight {
        assert_eq!(weight.dims(), [x.dims()[1]], "shape of `weight`");
    }
}
