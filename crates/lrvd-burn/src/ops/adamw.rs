//! The passes of AdamW over a parameter: both moving averages, and the update.

use burn::backend::tensor::FloatTensor;
use burn::tensor::Tensor;

use super::op::{self, FusedOp, LrvdBackend, Operands};
use super::value::Value;

/// `decay · average + (1 − decay) · g`, or of `g²` if `squared`, in PyTorch's order of operations.
pub(crate) fn moving_average(
    average: Tensor<1>,
    gradient: Tensor<1>,
    decay: f64,
    squared: bool,
) -> Tensor<1> {
    let operands = [average, gradient].map(Tensor::into_dispatch);
    op::fused(MovingAverage { decay, squared }, Operands::of(operands))
}

/// One update of AdamW, in PyTorch's order of operations.
///
/// # Formula
///
/// ```text
/// value ← shrink · value − size · first / (sqrt(second) / root + epsilon)
/// ```
#[derive(Clone, Debug)]
pub(crate) struct AdamWUpdate {
    /// Factor of weight decay.
    pub(crate) shrink: f64,
    /// Learning rate over the bias correction of the first moment.
    pub(crate) size: f64,
    /// Root of the bias correction of the second moment.
    pub(crate) root: f64,
    pub(crate) epsilon: f64,
}

impl AdamWUpdate {
    /// The value after the update; all tensors have one length.
    pub(crate) fn apply(self, value: Tensor<1>, first: Tensor<1>, second: Tensor<1>) -> Tensor<1> {
        op::fused(self, Operands::of([value, first, second].map(Tensor::into_dispatch)))
    }
}

#[derive(Clone, Debug)]
struct MovingAverage {
    decay: f64,
    squared: bool,
}

impl FusedOp for MovingAverage {
    fn composite<B: LrvdBackend>(&self, x: Operands<B>) -> FloatTensor<B> {
        let [average, gradient] = x.all().map(Value::<B>);
        let gradient = if self.squared { gradient.square() } else { gradient };
        (average * self.decay + gradient * (1.0 - self.decay)).0
    }

    #[cfg(feature = "flex")]
    fn cpu(dtype: burn::tensor::DType) -> Option<op::Form<burn::backend::Flex, Self>> {
        let form = op::Form { forward: cpu::average, derivative: op::Derivative::OfComposite };
        (dtype == burn::tensor::DType::F32).then_some(form)
    }
}

impl FusedOp for AdamWUpdate {
    fn composite<B: LrvdBackend>(&self, x: Operands<B>) -> FloatTensor<B> {
        let [value, first, second] = x.all().map(Value::<B>);
        let root = second.sqrt();
        let root = Value::<B>(B::float_div_scalar(root.0, self.root.into())) + self.epsilon;
        (value * self.shrink - first / root * self.size).0
    }

    #[cfg(feature = "flex")]
    fn cpu(dtype: burn::tensor::DType) -> Option<op::Form<burn::backend::Flex, Self>> {
        let form = op::Form { forward: cpu::update, derivative: op::Derivative::OfComposite };
        (dtype == burn::tensor::DType::F32).then_some(form)
    }
}

#[cfg(feature = "flex")]
mod cpu {
    use super::{AdamWUpdate, MovingAverage};
    use crate::ops::cpu::prelude::*;

    wide! {
        fn add_gradient<'a>(average: &'a mut [f32], gradient: &'a [f32], weights: [f32; 2]) {
            for (average, &g) in average.iter_mut().zip(gradient) {
                *average = *average * weights[0] + g * weights[1];
            }
        }

        fn add_square<'a>(average: &'a mut [f32], gradient: &'a [f32], weights: [f32; 2]) {
            for (average, &g) in average.iter_mut().zip(gradient) {
                *average = *average * weights[0] + g * g * weights[1];
            }
        }

        fn step<'a>(value: &'a mut [f32], first: &'a [f32], second: &'a [f32], by: [f32; 4]) {
            let [shrink, size, root, epsilon] = by;
            for ((value, &m), &v) in value.iter_mut().zip(first).zip(second) {
                *value = *value * shrink - m / (v.sqrt() / root + epsilon) * size;
            }
        }
    }

    pub(crate) fn average(op: &MovingAverage, x: Operands<Flex>, _: bool) -> Fused<Flex> {
        let [average, gradient] = x.all();
        let gradient = contiguous(gradient);
        let weights = [op.decay as f32, (1.0 - op.decay) as f32];
        let add = if op.squared { add_square } else { add_gradient };
        let task = |first, average: &mut [f32]| {
            add(average, &slice(&gradient)[first..][..average.len()], weights);
        };
        Fused { out: in_place(average, TASK, task), saved: Operands::of([]) }
    }

    pub(crate) fn update(op: &AdamWUpdate, x: Operands<Flex>, _: bool) -> Fused<Flex> {
        let [value, first, second] = x.all();
        let moments = [first, second].map(contiguous);
        let by = [op.shrink, op.size, op.root, op.epsilon].map(|number| number as f32);
        let task = |start, value: &mut [f32]| {
            let [first, second] =
                moments.each_ref().map(|moment| &slice(moment)[start..][..value.len()]);
            step(value, first, second, by);
        };
        Fused { out: in_place(value, TASK, task), saved: Operands::of([]) }
    }

    #[cfg(test)]
    mod tests {
        use burn::tensor::{Device, Tensor};

        use super::super::{AdamWUpdate, moving_average};
        use crate::ops::by_definition;

        #[test]
        fn one_pass_gives_the_bits_of_the_tensor_operations() {
            let numbers = |phase: f32| -> Tensor<1> {
                let numbers: Vec<f32> =
                    (0..10_007).map(|i| (i as f32 * 0.37 + phase).sin()).collect();
                Tensor::from_floats(numbers.as_slice(), &Device::flex())
            };
            let update = AdamWUpdate { shrink: 0.997, size: 3e-3, root: 0.31, epsilon: 1e-8 };
            let run = || {
                let first = moving_average(numbers(0.0), numbers(1.0), 0.9, false);
                let second = moving_average(numbers(2.0).square(), numbers(3.0), 0.999, true);
                let value = update.clone().apply(numbers(4.0), first.clone(), second.clone());
                [first, second, value]
                    .map(|x| x.into_data().try_into_vec::<f32>().unwrap_or_default())
            };
            let [fused, defined] = [run(), by_definition(run)];
            assert_eq!(fused[2].len(), 10_007);
            assert!(fused == defined);
        }
    }
}
