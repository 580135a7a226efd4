//! Backend tensors with operators, so that the composite forms read like their formulas.

use std::ops::{Add, Div, Mul, Neg, Range, Sub};

use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, TensorMetadata};
use burn::tensor::ops::PadMode;
use burn::tensor::{DType, Shape, Slice, TensorData};

/// A float tensor of backend `B`. Binary operators broadcast; reductions keep their axis.
pub(crate) struct Value<B: Backend>(pub(crate) FloatTensor<B>);

impl<B: Backend> Clone for Value<B> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<B: Backend> Value<B> {
    pub(crate) fn shape(&self) -> Vec<usize> {
        self.0.shape().to_vec()
    }
    pub(crate) fn dtype(&self) -> DType {
        self.0.dtype()
    }
    /// Host numbers on the device and in the precision of `self`.
    pub(crate) fn host(&self, data: TensorData) -> Self {
        let on_device = B::float_from_data(data, &self.0.device());
        if on_device.dtype() == self.dtype() {
            return Self(on_device);
        }
        Self(B::float_cast(on_device, self.dtype().into()))
    }
    pub(crate) fn exp(self) -> Self {
        Self(B::float_exp(self.0))
    }
    pub(crate) fn ln(self) -> Self {
        Self(B::float_log(self.0))
    }
    pub(crate) fn sqrt(self) -> Self {
        Self(B::float_sqrt(self.0))
    }
    pub(crate) fn erf(self) -> Self {
        Self(B::float_erf(self.0))
    }
    pub(crate) fn recip(self) -> Self {
        Self(B::float_recip(self.0))
    }
    pub(crate) fn square(self) -> Self {
        self.clone() * self
    }
    /// `1 / (1 + exp(-x))`.
    pub(crate) fn logistic(self) -> Self {
        Self(B::sigmoid(self.0))
    }
    /// `ln(1 + exp(-x))`, without overflow.
    pub(crate) fn neg_log_sigmoid(self) -> Self {
        -Self(B::log_sigmoid(self.0))
    }
    pub(crate) fn at_least(self, low: f64) -> Self {
        Self(B::float_clamp_min(self.0, low.into()))
    }
    pub(crate) fn clamp(self, low: f64, high: f64) -> Self {
        Self(B::float_clamp(self.0, low.into(), high.into()))
    }
    /// A copy that is constant for the gradient.
    pub(crate) fn detach(self) -> Self {
        Self(B::float_detach(self.0))
    }
    pub(crate) fn sum(self, axis: usize) -> Self {
        Self(B::float_sum_dim(self.0, axis))
    }
    pub(crate) fn mean(self, axis: usize) -> Self {
        Self(B::float_mean_dim(self.0, axis))
    }
    pub(crate) fn max(self, axis: usize) -> Self {
        Self(B::float_max_dim(self.0, axis))
    }
    pub(crate) fn reshape(self, shape: impl Into<Shape>) -> Self {
        Self(B::float_reshape(self.0, shape.into()))
    }
    pub(crate) fn swap(self, first: usize, second: usize) -> Self {
        Self(B::float_swap_dims(self.0, first, second))
    }
    pub(crate) fn permute(self, axes: &[usize]) -> Self {
        Self(B::float_permute(self.0, axes))
    }
    pub(crate) fn matmul(self, other: Self) -> Self {
        Self(B::float_matmul(self.0, other.0))
    }
    /// `range` of the last axis.
    pub(crate) fn last_axis(self, range: Range<usize>) -> Self {
        let shape = self.shape();
        let mut slices: Vec<Slice> = shape.iter().map(|&n| Slice::from(0..n)).collect();
        if let Some(last) = slices.last_mut() {
            *last = Slice::from(range);
        }
        Self(B::float_slice(self.0, &slices))
    }
    /// Zeros put before and after the last axis.
    pub(crate) fn pad_last_axis(self, before: usize, after: usize) -> Self {
        let mut padding = vec![(0, 0); self.0.rank()];
        if let Some(last) = padding.last_mut() {
            *last = (before, after);
        }
        Self(B::float_pad(self.0, &padding, PadMode::Constant(0.0)))
    }
}

/// Additive mask value.
fn mask_value(dtype: DType) -> f64 {
    if dtype == DType::F16 { 3.0e4 } else { 1.0e30 }
}

/// Smallest denominator: a row with a visible key has at least `exp(0) = 1`.
const LEAST_SUM: f64 = 0.5;

/// Softmax over the last of four axes, where `visible` (0 or 1, broadcast) is 1; zeros in a row without any.
pub(crate) fn masked_softmax<B: Backend>(score: Value<B>, visible: Value<B>) -> Value<B> {
    let penalty = (visible.clone() + -1.0) * mask_value(score.dtype());
    let reference = (score.clone() * visible.clone() + penalty).max(3);
    // What is not visible comes out before the exponential too: it may have any score.
    let weight = ((score - reference.detach()) * visible.clone()).exp() * visible;
    weight.clone() / weight.sum(3).at_least(LEAST_SUM)
}

/// `[d]` as `[1, ..., 1, d]`.
pub(crate) fn as_row<B: Backend>(vector: FloatTensor<B>, rank: usize) -> Value<B> {
    let vector = Value::<B>(vector);
    let mut shape = vec![1; rank];
    shape[rank - 1] = vector.shape()[0];
    vector.reshape(shape)
}

macro_rules! operators {
    ($($operator:ident, $name:ident, $of:ident;)+) => {$(
        impl<B: Backend> $operator for Value<B> {
            type Output = Self;
            fn $name(self, other: Self) -> Self {
                Self(B::$of(self.0, other.0))
            }
        }
    )+};
}

operators! {
    Add, add, float_add;
    Sub, sub, float_sub;
    Mul, mul, float_mul;
    Div, div, float_div;
}

impl<B: Backend> Neg for Value<B> {
    type Output = Self;
    fn neg(self) -> Self {
        Self(B::float_neg(self.0))
    }
}

impl<B: Backend> Add<f64> for Value<B> {
    type Output = Self;
    fn add(self, other: f64) -> Self {
        Self(B::float_add_scalar(self.0, other.into()))
    }
}

impl<B: Backend> Mul<f64> for Value<B> {
    type Output = Self;
    fn mul(self, other: f64) -> Self {
        Self(B::float_mul_scalar(self.0, other.into()))
    }
}
