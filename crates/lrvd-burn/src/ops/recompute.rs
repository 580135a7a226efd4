//! Gradient checkpointing: a block whose activations the backward pass computes again.

use std::fmt::{self, Debug};
use std::sync::Arc;

use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, DispatchKindConversion, DispatchTensor, TensorMetadata};
use burn::tensor::Tensor;

use super::op::{self, FusedOp, LrvdBackend, Operands};

type Block = dyn Fn(Tensor<3>, Tensor<1>) -> Tensor<3> + Send + Sync;

/// `block` of `x` and its parameters, end to end; its activations are computed again in the backward pass.
pub(crate) fn recompute(
    x: Tensor<3>,
    parameters: Tensor<1>,
    block: impl Fn(Tensor<3>, Tensor<1>) -> Tensor<3> + Send + Sync + 'static,
) -> Tensor<3> {
    let operands = [x.into_dispatch(), parameters.into_dispatch()];
    op::fused(Recompute(Arc::new(block)), Operands::of(operands))
}

/// Of `x` and the parameters.
#[derive(Clone)]
struct Recompute(Arc<Block>);

impl Debug for Recompute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Recompute")
    }
}

/// The forward pass on plain tensors, and the gradient by a separate graph.
#[cfg(any(feature = "flex", feature = "cube"))]
fn form<B: Backend>() -> op::Form<B, Recompute>
where
    DispatchTensor: DispatchKindConversion<B>,
{
    op::Form {
        forward: |op, x, save| {
            let saved = x.keep(save, &[0, 1]);
            let [x, parameters] = x.all();
            let x = Tensor::from_primitive::<B>(x);
            op::Fused { out: primitive((op.0)(x, Tensor::from_primitive::<B>(parameters))), saved }
        },
        derivative: op::Derivative::ByHand(|op, op::Upstream { saved, grad, needs_grad }| {
            let [x, parameters] = saved.all();
            let x = Tensor::from_primitive::<B>(x).autodiff().require_grad();
            let parameters = Tensor::from_primitive::<B>(parameters).autodiff().require_grad();
            let out = (op.0)(x.clone(), parameters.clone());
            let grad = Tensor::<3>::from_primitive::<B>(grad);
            let gradients = (out * grad.autodiff()).sum().backward();
            let d_x = x.grad(&gradients).filter(|_| needs_grad[0]);
            let d_parameters = parameters.grad(&gradients);
            Operands::some([d_x.map(primitive), d_parameters.map(primitive)])
        }),
    }
}

#[cfg(any(feature = "flex", feature = "cube"))]
fn primitive<B: Backend, const D: usize>(x: Tensor<D>) -> FloatTensor<B>
where
    DispatchTensor: DispatchKindConversion<B>,
{
    x.try_into_primitive::<B>().expect("a tensor of the backend that it was made on")
}

impl FusedOp for Recompute {
    /// Of an empty batch: every other runs by its form.
    fn composite<B: LrvdBackend>(&self, x: Operands<B>) -> FloatTensor<B> {
        assert_eq!(x.first().shape().num_elements(), 0, "recomputation has no definition");
        x.first().clone()
    }

    #[cfg(feature = "flex")]
    fn cpu(_: burn::tensor::DType) -> Option<op::Form<burn::backend::Flex, Self>> {
        Some(form())
    }

    #[cfg(feature = "cube")]
    fn cube() -> Option<op::Form<burn_cubecl::CubeBackend, Self>> {
        Some(form())
    }
}
