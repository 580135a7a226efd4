//! GELU on slices.

use burn_flex::FlexTensor;

use crate::ops::cpu::{Real, map, zip};

pub(crate) fn forward<E: Real>(x: FlexTensor) -> FlexTensor {
    map(x, |x: E| x * x.normal().0)
}

pub(crate) fn backward<E: Real>(x: FlexTensor, grad: FlexTensor) -> FlexTensor {
    zip(grad, x, |grad: E, x: E| {
        let (distribution, density) = x.normal();
        grad * (distribution + x * density)
    })
}
