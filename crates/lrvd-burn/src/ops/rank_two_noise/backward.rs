//! Activation noise in the autodiff graph.

use burn::backend::autodiff::Autodiff;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::FloatTensor;

use super::Noise;
use crate::ops::autodiff::register;
use crate::ops::backend::LrvdBackend;

#[derive(Debug)]
struct RankTwoNoise;

impl<B: LrvdBackend> Backward<B, 4> for RankTwoNoise {
    /// `q`, `w`, `t` and the noise.
    type State = ([FloatTensor<B>; 3], Noise);

    fn backward(
        self,
        ops: Ops<Self::State, 4>,
        grads: &mut Gradients,
        _checkpointer: &mut Checkpointer,
    ) {
        let ([mean, parents @ ..], ([q_saved, w_saved, t_saved], noise)) =
            (ops.parents.map(|parent| parent.map(|node| node.id)), ops.state);
        let grad = grads.consume::<B>(&ops.node);
        let wanted = parents.each_ref().map(Option::is_some);
        if wanted.contains(&true) {
            let (d_q, d_w, d_t) = B::fused_rank_two_noise_grad(
                q_saved,
                w_saved,
                t_saved,
                grad.clone(),
                noise,
                wanted,
            );
            register::<B, _>(grads, parents, [d_q, d_w, d_t]);
        }
        register::<B, _>(grads, [mean], [Some(grad)]);
    }
}

pub(crate) fn forward<B: LrvdBackend, C: CheckpointStrategy>(
    mean: FloatTensor<Autodiff<B, C>>,
    q: FloatTensor<Autodiff<B, C>>,
    w: FloatTensor<Autodiff<B, C>>,
    t: FloatTensor<Autodiff<B, C>>,
    noise: Noise,
) -> FloatTensor<Autodiff<B, C>> {
    let nodes = [mean.node(), q.node(), w.node(), t.node()];
    let prepared = RankTwoNoise.prepare::<C>(nodes).compute_bound();
    let mean = mean.into_primitive();
    let (q, w, t) = (q.into_primitive(), w.into_primitive(), t.into_primitive());
    match prepared.stateful() {
        OpsKind::Tracked(node) => {
            let state = ([q.clone(), w.clone(), t.clone()], noise);
            node.finish(state, B::fused_rank_two_noise(mean, q, w, t, noise))
        }
        OpsKind::UnTracked(node) => node.finish(B::fused_rank_two_noise(mean, q, w, t, noise)),
    }
}

#[derive(Debug)]
struct GaussianNoise;

impl<B: LrvdBackend> Backward<B, 2> for GaussianNoise {
    /// The variance and the noise.
    type State = (FloatTensor<B>, Noise);

    fn backward(
        self,
        ops: Ops<Self::State, 2>,
        grads: &mut Gradients,
        _checkpointer: &mut Checkpointer,
    ) {
        let ([mean, variance], (variance_saved, noise)) = (ops.parents, ops.state);
        let grad = grads.consume::<B>(&ops.node);
        if let Some(parent) = variance {
            let gradient = B::fused_gaussian_noise_grad(variance_saved, grad.clone(), noise);
            grads.register::<B>(parent.id, gradient);
        }
        if let Some(parent) = mean {
            grads.register::<B>(parent.id, grad);
        }
    }
}

pub(crate) fn gaussian_forward<B: LrvdBackend, C: CheckpointStrategy>(
    mean: FloatTensor<Autodiff<B, C>>,
    variance: FloatTensor<Autodiff<B, C>>,
    noise: Noise,
) -> FloatTensor<Autodiff<B, C>> {
    let prepared = GaussianNoise.prepare::<C>([mean.node(), variance.node()]).compute_bound();
    let (mean, variance) = (mean.into_primitive(), variance.into_primitive());
    match prepared.stateful() {
        OpsKind::Tracked(node) => {
            let out = B::fused_gaussian_noise(mean, variance.clone(), noise);
            node.finish((variance, noise), out)
        }
        OpsKind::UnTracked(node) => node.finish(B::fused_gaussian_noise(mean, variance, noise)),
    }
}
