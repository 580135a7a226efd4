//! Root-mean-square normalisation in the autodiff graph.

use burn::backend::autodiff::Autodiff;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::FloatTensor;

use crate::ops::autodiff::register;
use crate::ops::backend::LrvdBackend;

#[derive(Debug)]
struct RmsNorm;

impl<B: LrvdBackend> Backward<B, 2> for RmsNorm {
    /// `x`, `gamma` and the epsilon.
    type State = (FloatTensor<B>, FloatTensor<B>, f64);

    fn backward(
        self,
        ops: Ops<Self::State, 2>,
        grads: &mut Gradients,
        _checkpointer: &mut Checkpointer,
    ) {
        let parents = ops.parents.map(|parent| parent.map(|node| node.id));
        let (x, gamma, eps) = ops.state;
        let grad = grads.consume::<B>(&ops.node);
        let wanted = parents.each_ref().map(Option::is_some);
        let (d_x, d_gamma) = B::fused_rms_norm_grad(x, gamma, grad, eps, wanted);
        register::<B, _>(grads, parents, [d_x, d_gamma]);
    }
}

pub(crate) fn forward<B: LrvdBackend, C: CheckpointStrategy>(
    x: FloatTensor<Autodiff<B, C>>,
    gamma: FloatTensor<Autodiff<B, C>>,
    eps: f64,
) -> FloatTensor<Autodiff<B, C>> {
    let prepared = RmsNorm.prepare::<C>([x.node(), gamma.node()]).compute_bound();
    let (x, gamma) = (x.into_primitive(), gamma.into_primitive());
    match prepared.stateful() {
        OpsKind::Tracked(node) => {
            let out = B::fused_rms_norm(x.clone(), gamma.clone(), eps);
            node.finish((x, gamma, eps), out)
        }
        OpsKind::UnTracked(node) => node.finish(B::fused_rms_norm(x, gamma, eps)),
    }
}
