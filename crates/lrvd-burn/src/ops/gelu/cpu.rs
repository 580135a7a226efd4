//! GELU on slices.

#![expect(clippy::inline_always, reason = "loops vectorise only with the functions inside")]

use burn_flex::FlexTensor;

use crate::ops::cpu::{Binary, Real, Unary, map, zip};

/// `x · Phi(x)`.
struct Value;

impl<E: Real> Unary<E> for Value {
    #[inline(always)]
    fn of(x: E) -> E {
        x * x.normal().0
    }
}

/// Gradient from that of the output and `x`.
struct Gradient;

impl<E: Real> Binary<E> for Gradient {
    #[inline(always)]
    fn of(grad: E, x: E) -> E {
        let (distribution, density) = x.normal();
        grad * (distribution + x * density)
    }
}

pub(crate) fn forward<E: Real>(x: FlexTensor) -> FlexTensor {
    map::<E, Value>(x)
}

pub(crate) fn backward<E: Real>(x: FlexTensor, grad: FlexTensor) -> FlexTensor {
    zip::<E, Gradient>(grad, x)
}
