//! Weighted sums of squares along the last axis.

#[cfg(feature = "flex")]
pub(super) mod cpu;

use burn::backend::Dispatch;
use burn::backend::tensor::FloatTensor;
use burn::tensor::Tensor;

use super::op::{self, FusedOp, LrvdBackend, Operands};
use super::value::{Value, as_row};

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
    op::fused(RowEnergy, operands(x, weight))
}

/// [`row_energy()`](fn@row_energy) from Burn's operations.
///
/// # Panics
///
/// As [`row_energy()`](fn@row_energy).
pub fn row_energy_composite(x: Tensor<2>, weight: Option<Tensor<1>>) -> Tensor<1> {
    op::composite(RowEnergy, operands(x, weight))
}

fn operands(x: Tensor<2>, weight: Option<Tensor<1>>) -> Operands<Dispatch> {
    if let Some(weight) = &weight {
        assert_eq!(weight.dims(), [x.dims()[1]], "shape of `weight`");
    }
    Operands::some([Some(x.into_dispatch()), weight.map(Tensor::into_dispatch)])
}

#[derive(Clone, Debug)]
pub(super) struct RowEnergy;

impl FusedOp for RowEnergy {
    fn composite<B: LrvdBackend>(&self, x: Operands<B>) -> FloatTensor<B> {
        let ([x], [weight]) = x.parts();
        let mut squares = Value::<B>(x).square();
        let rows = squares.shape()[0];
        if let Some(weight) = weight {
            squares = squares * as_row(weight, 2);
        }
        squares.sum(1).reshape([rows]).0
    }

    #[cfg(feature = "flex")]
    fn cpu(dtype: burn::tensor::DType) -> Option<op::Form<burn::backend::Flex, Self>> {
        op::real_form!(dtype, cpu::{forward, gradient})
    }
}
