//! GELU in the autodiff graph.

use burn::backend::autodiff::Autodiff;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::FloatTensor;

use crate::ops::backend::LrvdBackend;

#[derive(Debug)]
struct Gelu;

impl<B: LrvdBackend> Backward<B, 1> for Gelu {
    type State = FloatTensor<B>;

    fn backward(
        self,
        ops: Ops<Self::State, 1>,
        grads: &mut Gradients,
        _checkpointer: &mut Checkpointer,
    ) {
        let [parent] = ops.parents;
        let grad = grads.consume::<B>(&ops.node);
        if let Some(parent) = parent {
            grads.register::<B>(parent.id, B::fused_gelu_grad(ops.state, grad));
        }
    }
}

pub(crate) fn forward<B: LrvdBackend, C: CheckpointStrategy>(
    x: FloatTensor<Autodiff<B, C>>,
) -> FloatTensor<Autodiff<B, C>> {
    match Gelu.prepare::<C>([x.node()]).compute_bound().stateful() {
        OpsKind::Tracked(node) => {
            let x = x.into_primitive();
            node.finish(x.clone(), B::fused_gelu(x))
        }
        OpsKind::UnTracked(node) => node.finish(B::fused_gelu(x.into_primitive())),
    }
}
