//! Gaussian draws in the autodiff graph.

use burn::backend::autodiff::Autodiff;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::FloatTensor;
use lrvd_core::noise::NoiseKey;

use crate::ops::autodiff::register;
use crate::ops::backend::LrvdBackend;

#[derive(Debug)]
struct GaussianDraw;

impl<B: LrvdBackend> Backward<B, 2> for GaussianDraw {
    /// The standard deviations and the key.
    type State = (FloatTensor<B>, NoiseKey);

    fn backward(
        self,
        ops: Ops<Self::State, 2>,
        grads: &mut Gradients,
        _checkpointer: &mut Checkpointer,
    ) {
        let parents = ops.parents.map(|parent| parent.map(|node| node.id));
        let (std, key) = ops.state;
        let grad = grads.consume::<B>(&ops.node);
        let wanted = parents.each_ref().map(Option::is_some);
        let (d_mean, d_std) = B::fused_gaussian_draw_grad(std, grad, key, wanted);
        register::<B, _>(grads, parents, [d_mean, d_std]);
    }
}

pub(crate) fn forward<B: LrvdBackend, C: CheckpointStrategy>(
    mean: FloatTensor<Autodiff<B, C>>,
    std: FloatTensor<Autodiff<B, C>>,
    count: usize,
    key: NoiseKey,
) -> FloatTensor<Autodiff<B, C>> {
    let prepared = GaussianDraw.prepare::<C>([mean.node(), std.node()]).compute_bound();
    let (mean, std) = (mean.into_primitive(), std.into_primitive());
    match prepared.stateful() {
        OpsKind::Tracked(node) => {
            node.finish((std.clone(), key), B::fused_gaussian_draw(mean, std, count, key))
        }
        OpsKind::UnTracked(node) => node.finish(B::fused_gaussian_draw(mean, std, count, key)),
    }
}
