//! A frozen linear layer whose weight is held quantised.

use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Dispatch, TensorMetadata};
use burn::tensor::Tensor;

use super::op::{self, FusedOp, LrvdBackend, Operands};
use super::value::{Value, as_row};

/// `x·dequantize(W) + bias` of `[n, tokens, d_input]` and a quantised weight `[d_input, d_output]`.
///
/// The product is that of [`adapted_linear`](super::adapted_linear()) in the type of `x`. The graph holds the quantised
/// weight, which the backward pass dequantises again; a weight never has a gradient (Dettmers et al. 2023,
/// arXiv:2305.14314).
pub(crate) fn quantized_linear(
    x: Tensor<3>,
    weight: Tensor<2>,
    bias: Option<Tensor<1>>,
) -> Tensor<3> {
    let tensors = vec![Some(x.into_dispatch()), bias.map(Tensor::into_dispatch)];
    let quantized = Some(weight.into_dispatch());
    op::fused(QuantizedLinear, Operands::<Dispatch> { tensors, quantized })
}

/// Of `x` and an optional `bias`.
#[derive(Clone, Debug)]
struct QuantizedLinear;

impl QuantizedLinear {
    /// The weight in the type of `like`.
    fn weight<B: Backend>(x: &Operands<B>, like: &FloatTensor<B>) -> FloatTensor<B> {
        let quantized = x.quantized.clone().expect("a quantised weight in every call");
        B::dequantize(quantized, like.dtype().into())
    }
}

impl FusedOp for QuantizedLinear {
    fn composite<B: LrvdBackend>(&self, x: Operands<B>) -> FloatTensor<B> {
        forward(x)
    }

    #[cfg(feature = "flex")]
    fn cpu(dtype: burn::tensor::DType) -> Option<op::Form<burn::backend::Flex, Self>> {
        use burn::tensor::DType;
        match dtype {
            DType::F32 => {
                let derivative = op::Derivative::ByHand(cpu::gradient);
                Some(op::Form { forward: cpu::forward, derivative })
            }
            _ => Some(form()),
        }
    }

    #[cfg(feature = "cube")]
    fn cube() -> Option<op::Form<burn_cubecl::CubeBackend, Self>> {
        Some(form())
    }
}

#[cfg(any(feature = "flex", feature = "cube"))]
fn form<B: LrvdBackend>() -> op::Form<B, QuantizedLinear> {
    op::Form {
        forward: |_, x, save| op::Fused { saved: saved(&x, save), out: forward(x) },
        derivative: op::Derivative::ByHand(|_, op::Upstream { saved, grad, .. }| {
            let weight = Value::<B>(QuantizedLinear::weight(&saved, &grad));
            let (grad, [d_input, d_output]) =
                (Value::<B>(grad), [weight.shape()[0], weight.shape()[1]]);
            let shape = grad.shape();
            let rows = grad.reshape([shape[0] * shape[1], d_output]);
            let d_x = rows.clone().matmul(weight.swap(0, 1)).reshape([shape[0], shape[1], d_input]);
            let d_bias = rows.sum(0).reshape([d_output]);
            Operands::of([d_x.0, d_bias.0])
        }),
    }
}

fn forward<B: Backend>(x: Operands<B>) -> FloatTensor<B> {
    let weight = Value::<B>(QuantizedLinear::weight(&x, x.first()));
    let ([x], [bias]) = x.parts();
    let x = Value::<B>(x);
    let (shape, [d_input, d_output]) = (x.shape(), [weight.shape()[0], weight.shape()[1]]);
    let mut out = x.reshape([shape[0] * shape[1], d_input]).matmul(weight);
    if let Some(bias) = bias {
        out = out + as_row(bias, 2);
    }
    out.reshape([shape[0], shape[1], d_output]).0
}

/// The weight alone: the gradient of `x` needs nothing else.
#[cfg(any(feature = "flex", feature = "cube"))]
fn saved<B: Backend>(x: &Operands<B>, save: bool) -> Operands<B> {
    Operands { tensors: Vec::new(), quantized: x.quantized.clone().filter(|_| save) }
}

/// The product and its gradient by the operator on packed rows.
#[cfg(feature = "flex")]
mod cpu {
    use super::QuantizedLinear;
    use crate::ops::adapted_linear::cpu::{bias_gradient, input_gradient, layer, narrow_layer};
    use crate::ops::cpu::prelude::*;

    pub(crate) fn forward(_: &QuantizedLinear, x: Operands<Flex>, save: bool) -> Fused<Flex> {
        let saved = super::saved(&x, save);
        let ([input], [bias]) = x.clone().parts();
        let out = match x.quantized.as_ref().and_then(Weight::quantized) {
            Some(weight) => narrow_layer(input, &weight, bias),
            None => {
                let weight = QuantizedLinear::weight(&x, &input);
                layer(Operands::some([Some(input), Some(weight), bias, None, None]), 1.0).0
            }
        };
        Fused { out, saved }
    }

    /// The weight in single precision; Burn's own dequantisation looks for the block of every single number.
    fn weight(x: &Operands<Flex>, like: &FlexTensor) -> FlexTensor {
        let quantized = x.quantized.as_ref().and_then(Weight::quantized);
        quantized.map_or_else(|| QuantizedLinear::weight(x, like), |weight| weight.widened())
    }

    pub(crate) fn gradient(_: &QuantizedLinear, x: Upstream<'_, Flex>) -> Operands<Flex> {
        let Upstream { saved, grad, needs_grad } = x;
        let d_x = || input_gradient(&weight(&saved, &grad), &grad);
        let d_bias = || bias_gradient(&grad);
        Operands::some([needs_grad[0].then(d_x), needs_grad[1].then(d_bias)])
    }
}
