//! Attention in the autodiff graph.

use burn::backend::autodiff::Autodiff;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::FloatTensor;

use crate::ops::autodiff::register;
use crate::ops::backend::LrvdBackend;

#[derive(Debug)]
struct CausalAttention;

impl<B: LrvdBackend> Backward<B, 3> for CausalAttention {
    /// Query, key, value, mask and the scale.
    type State = ([FloatTensor<B>; 4], f64);

    fn backward(
        self,
        ops: Ops<Self::State, 3>,
        grads: &mut Gradients,
        _checkpointer: &mut Checkpointer,
    ) {
        let parents = ops.parents.map(|parent| parent.map(|node| node.id));
        let ([query, key, value, mask], scale) = ops.state;
        let grad = grads.consume::<B>(&ops.node);
        let wanted = parents.each_ref().map(Option::is_some);
        let (d_query, d_key, d_value) =
            B::fused_causal_attention_grad(query, key, value, mask, grad, scale, wanted);
        register::<B, _>(grads, parents, [d_query, d_key, d_value]);
    }
}

pub(crate) fn forward<B: LrvdBackend, C: CheckpointStrategy>(
    query: FloatTensor<Autodiff<B, C>>,
    key: FloatTensor<Autodiff<B, C>>,
    value: FloatTensor<Autodiff<B, C>>,
    mask: FloatTensor<Autodiff<B, C>>,
    scale: f64,
) -> FloatTensor<Autodiff<B, C>> {
    let prepared =
        CausalAttention.prepare::<C>([query.node(), key.node(), value.node()]).compute_bound();
    let [query, key, value, mask] =
        [query, key, value, mask].map(FloatTensor::<Autodiff<B, C>>::into_primitive);
    match prepared.stateful() {
        OpsKind::Tracked(node) => {
            let state = [query.clone(), key.clone(), value.clone(), mask.clone()];
            node.finish((state, scale), B::fused_causal_attention(query, key, value, mask, scale))
        }
        OpsKind::UnTracked(node) => {
            node.finish(B::fused_causal_attention(query, key, value, mask, scale))
        }
    }
}
