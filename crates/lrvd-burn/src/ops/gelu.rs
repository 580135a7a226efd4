//! The exact GELU.

use std::f64::consts::FRAC_1_SQRT_2;

use burn::backend::tensor::FloatTensor;
use burn::tensor::Tensor;

use super::op::{self, FusedOp, LrvdBackend, Operands};
use super::value::Value;

/// Gaussian error linear unit, elementwise.
///
/// # Formula
///
/// ```text
/// gelu(x) = x · Phi(x),   gelu'(x) = Phi(x) + x · phi(x)
/// ```
///
/// `Phi` and `phi` are the standard normal distribution function and density (not the tanh
/// approximation).
///
/// # Numerics
///
/// On the CPU `Phi` is within `2e-7` in `f32`, with a relative error below `3e-6` down to `x = -8`. The backward pass
/// saves `x` alone.
///
/// # References
///
/// Hendrycks, Gimpel 2016, arXiv:1606.08415.
pub fn gelu<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    op::fused(Gelu, Operands::of([x.into_dispatch()]))
}

#[derive(Clone, Debug)]
struct Gelu;

impl FusedOp for Gelu {
    fn composite<B: LrvdBackend>(&self, x: Operands<B>) -> FloatTensor<B> {
        let [x] = x.all().map(Value::<B>);
        let distribution = ((x.clone() * FRAC_1_SQRT_2).erf() + 1.0) * 0.5;
        (x * distribution).0
    }

    op::forms!(cpu);
}

#[cfg(feature = "flex")]
mod cpu {
    use super::Gelu;
    use crate::ops::cpu::prelude::*;

    wide! {
        fn value<'a>(x: &'a mut [f32]) {
            for x in x {
                *x *= normal(*x).0;
            }
        }

        /// `grad` becomes the gradient of `x`.
        fn slope<'a>(grad: &'a mut [f32], x: &'a [f32]) {
            for (grad, &x) in grad.iter_mut().zip(x) {
                let (distribution, density) = normal(x);
                *grad *= distribution + x * density;
            }
        }
    }

    pub(crate) fn forward(_: &Gelu, x: Operands<Flex>, save: bool) -> Fused<Flex> {
        let saved = x.keep(save, &[0]);
        let [x] = x.all();
        Fused { out: in_place(x, TASK, |_, x| value(x)), saved }
    }

    pub(crate) fn gradient(_: &Gelu, x: Upstream<'_, Flex>) -> Operands<Flex> {
        let Upstream { saved, grad, .. } = x;
        let [x] = saved.all().map(contiguous);
        let slope = |first, grad: &mut [f32]| slope(grad, &slice(&x)[first..][..grad.len()]);
        Operands::of([in_place(grad, TASK, slope)])
    }
}
