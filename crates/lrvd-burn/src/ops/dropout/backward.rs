//! Dropout in the autodiff graph: linear, so the gradient is the same operation.

use burn::backend::autodiff::Autodiff;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::FloatTensor;
use lrvd_core::noise::NoiseKey;

use crate::ops::backend::LrvdBackend;

#[derive(Debug)]
struct Dropout;

impl<B: LrvdBackend> Backward<B, 1> for Dropout {
    type State = (f64, NoiseKey);

    fn backward(
        self,
        ops: Ops<Self::State, 1>,
        grads: &mut Gradients,
        _checkpointer: &mut Checkpointer,
    ) {
        let ([parent], (rate, key)) = (ops.parents, ops.state);
        let grad = grads.consume::<B>(&ops.node);
        if let Some(parent) = parent {
            grads.register::<B>(parent.id, B::fused_dropout(grad, rate, key));
        }
    }
}

pub(crate) fn forward<B: LrvdBackend, C: CheckpointStrategy>(
    x: FloatTensor<Autodiff<B, C>>,
    rate: f64,
    key: NoiseKey,
) -> FloatTensor<Autodiff<B, C>> {
    let prepared = Backward::<B, 1>::prepare::<C>(Dropout, [x.node()]);
    let out = B::fused_dropout(x.into_primitive(), rate, key);
    match prepared.compute_bound().stateful() {
        OpsKind::Tracked(node) => node.finish((rate, key), out),
        OpsKind::UnTracked(node) => node.finish(out),
    }
}
