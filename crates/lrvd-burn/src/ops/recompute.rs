//! Gradient checkpointing: a block whose activations the backward pass computes again.

use std::fmt::{self, Debug};
use std::sync::Arc;

use burn::backend::tensor::FloatTensor;
use burn::module::Module;
use burn::tensor::Tensor;

use super::op::{self, FusedOp, LrvdBackend, Operands};
use crate::model::AdaptedModel;

type Block = dyn Fn(Tensor<3>, Option<Tensor<1>>) -> Tensor<3> + Send + Sync;

/// `forward(block, x)`, of whose activations the graph holds only `x`.
///
/// The backward pass runs `forward` again, with the same noise: all of it is keyed. It costs one more forward of the block
/// and holds the activations of one block at a time. Gradients reach `x` and the trainable parameters of `block`;
/// whatever else `forward` captures is a constant.
///
/// # References
///
/// Chen et al. 2016, arXiv:1604.06174.
pub fn recomputed<M: Module + Sync + 'static>(
    block: &M,
    x: Tensor<3>,
    forward: impl Fn(&M, Tensor<3>) -> Tensor<3> + Send + Sync + 'static,
) -> Tensor<3> {
    // A node of the graph has a fixed number of parents: the parameters are one of them, end to end.
    let mut parts = Vec::new();
    block.visit_parameters(&mut |p| {
        if p.value.is_trainable() && !p.value.is_empty() {
            parts.push(p.value.tracked());
        }
    });
    let parameters = (!parts.is_empty()).then(|| Tensor::cat(parts, 0));
    let block = block.clone();
    let run = move |x: Tensor<3>, parameters: Option<Tensor<1>>| {
        let Some(parameters) = parameters else { return forward(&block, x) };
        let (mut block, mut start) = (block.clone(), 0);
        block.visit_parameters_mut(&mut |p| {
            if p.value.is_trainable() && !p.value.is_empty() {
                let len = p.value.len();
                p.value.track(parameters.clone().narrow(0, start, len));
                start += len;
            }
        });
        forward(&block, x)
    };
    let operands = [Some(x.into_dispatch()), parameters.map(Tensor::into_dispatch)];
    op::fused(Recompute(Arc::new(run)), Operands::some(operands))
}

/// Of `x` and the parameters, if there are any.
#[derive(Clone)]
struct Recompute(Arc<Block>);

impl Debug for Recompute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Recompute")
    }
}

/// The forward pass on plain tensors, and the gradient by a graph of its own.
#[cfg(any(feature = "flex", feature = "cube"))]
macro_rules! form {
    ($backend:ty) => {{
        fn tensors(x: Operands<$backend>) -> (Tensor<3>, Option<Tensor<1>>) {
            let ([x], [parameters]) = x.parts();
            let x = Tensor::from_primitive::<$backend>(x);
            (x, parameters.map(Tensor::from_primitive::<$backend>))
        }
        fn primitive<const D: usize>(x: Tensor<D>) -> FloatTensor<$backend> {
            x.try_into_primitive::<$backend>().expect("a tensor of the backend that it was made on")
        }
        op::Form {
            forward: |op, x, save| {
                let saved = x.keep(save, &[0, 1]);
                let (x, parameters) = tensors(x);
                op::Fused { out: primitive((op.0)(x, parameters)), saved }
            },
            gradient: Some(|op, saved, grad, needs_grad| {
                let (x, parameters) = tensors(saved);
                let x = x.autodiff().require_grad();
                let parameters = parameters.map(|p| p.autodiff().require_grad());
                let out = (op.0)(x.clone(), parameters.clone());
                let grad = Tensor::<3>::from_primitive::<$backend>(grad);
                let gradients = (out * grad.autodiff()).sum().backward();
                let d_x = x.grad(&gradients).filter(|_| needs_grad[0]);
                let d_parameters = parameters.and_then(|p| p.grad(&gradients));
                Operands::some([d_x.map(primitive), d_parameters.map(primitive)])
            }),
        }
    }};
}

impl FusedOp for Recompute {
    /// Only an empty batch comes here.
    fn composite<B: LrvdBackend>(&self, x: Operands<B>) -> FloatTensor<B> {
        x.first().clone()
    }

    #[cfg(feature = "flex")]
    fn cpu(_: burn::tensor::DType) -> Option<op::Form<burn::backend::Flex, Self>> {
        Some(form!(burn::backend::Flex))
    }

    #[cfg(feature = "cube")]
    fn cube() -> Option<op::Form<burn_cubecl::CubeBackend, Self>> {
        Some(form!(burn_cubecl::CubeBackend))
    }
}
