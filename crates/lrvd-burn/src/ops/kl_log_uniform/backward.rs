//! The KL in the autodiff graph.

use burn::backend::autodiff::Autodiff;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::FloatTensor;

use crate::ops::autodiff::register;
use crate::ops::backend::LrvdBackend;

#[derive(Debug)]
struct KlLogUniform;

impl<B: LrvdBackend> Backward<B, 2> for KlLogUniform {
    /// `mean`, `log_variance` and the rank axis.
    type State = (FloatTensor<B>, FloatTensor<B>, usize);

    fn backward(
        self,
        ops: Ops<Self::State, 2>,
        grads: &mut Gradients,
        _checkpointer: &mut Checkpointer,
    ) {
        let parents = ops.parents.map(|parent| parent.map(|node| node.id));
        let (mean, log_variance, rank_axis) = ops.state;
        let grad = grads.consume::<B>(&ops.node);
        let wanted = parents.each_ref().map(Option::is_some);
        let (d_mean, d_log_variance) =
            B::fused_kl_log_uniform_grad(mean, log_variance, grad, rank_axis, wanted);
        register::<B, _>(grads, parents, [d_mean, d_log_variance]);
    }
}

pub(crate) fn forward<B: LrvdBackend, C: CheckpointStrategy>(
    mean: FloatTensor<Autodiff<B, C>>,
    log_variance: FloatTensor<Autodiff<B, C>>,
    rank_axis: usize,
) -> FloatTensor<Autodiff<B, C>> {
    let prepared = KlLogUniform.prepare::<C>([mean.node(), log_variance.node()]).compute_bound();
    let (mean, log_variance) = (mean.into_primitive(), log_variance.into_primitive());
    match prepared.stateful() {
        OpsKind::Tracked(node) => {
            let out = B::fused_kl_log_uniform(mean.clone(), log_variance.clone(), rank_axis);
            node.finish((mean, log_variance, rank_axis), out)
        }
        OpsKind::UnTracked(node) => {
            node.finish(B::fused_kl_log_uniform(mean, log_variance, rank_axis))
        }
    }
}
