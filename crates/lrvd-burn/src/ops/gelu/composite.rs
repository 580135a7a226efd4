//! GELU from Burn's operations.

use std::f64::consts::{FRAC_1_SQRT_2, TAU};

use burn::backend::Backend;
use burn::backend::tensor::FloatTensor;

use crate::ops::value::Value;

/// `Phi(x) = (1 + erf(x / sqrt 2)) / 2`.
fn distribution<B: Backend>(x: Value<B>) -> Value<B> {
    ((x * FRAC_1_SQRT_2).erf() + 1.0) * 0.5
}

pub(crate) fn forward<B: Backend>(x: FloatTensor<B>) -> FloatTensor<B> {
    let x = Value::<B>(x);
    (x.clone() * distribution(x)).0
}

pub(crate) fn backward<B: Backend>(x: FloatTensor<B>, grad: FloatTensor<B>) -> FloatTensor<B> {
    let (x, grad) = (Value::<B>(x), Value::<B>(grad));
    let density = (x.clone().square() * -0.5).exp() * TAU.sqrt().recip();
    (grad * (distribution(x.clone()) + x * density)).0
}
