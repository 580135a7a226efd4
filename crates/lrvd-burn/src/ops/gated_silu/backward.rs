//! The gate in the autodiff graph.

use burn::backend::autodiff::Autodiff;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::FloatTensor;

use crate::ops::autodiff::register;
use crate::ops::backend::LrvdBackend;

#[derive(Debug)]
struct GatedSilu;

impl<B: LrvdBackend> Backward<B, 2> for GatedSilu {
    /// The two factors' arguments.
    type State = (FloatTensor<B>, FloatTensor<B>);

    fn backward(
        self,
        ops: Ops<Self::State, 2>,
        grads: &mut Gradients,
        _checkpointer: &mut Checkpointer,
    ) {
        let parents = ops.parents.map(|parent| parent.map(|node| node.id));
        let (gate, up) = ops.state;
        let grad = grads.consume::<B>(&ops.node);
        let wanted = parents.each_ref().map(Option::is_some);
        let (d_gate, d_up) = B::fused_gated_silu_grad(gate, up, grad, wanted);
        register::<B, _>(grads, parents, [d_gate, d_up]);
    }
}

pub(crate) fn forward<B: LrvdBackend, C: CheckpointStrategy>(
    gate: FloatTensor<Autodiff<B, C>>,
    up: FloatTensor<Autodiff<B, C>>,
) -> FloatTensor<Autodiff<B, C>> {
    let prepared = GatedSilu.prepare::<C>([gate.node(), up.node()]).compute_bound();
    let (gate, up) = (gate.into_primitive(), up.into_primitive());
    match prepared.stateful() {
        OpsKind::Tracked(node) => {
            node.finish((gate.clone(), up.clone()), B::fused_gated_silu(gate, up))
        }
        OpsKind::UnTracked(node) => node.finish(B::fused_gated_silu(gate, up)),
    }
}
