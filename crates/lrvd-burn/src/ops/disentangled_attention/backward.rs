//! Disentangled attention in the autodiff graph.

use burn::backend::AutodiffBackend;
use burn::backend::autodiff::Autodiff;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::FloatTensor;

use super::composite::Term;
use super::{AttentionLayout, PositionTerm};
use crate::ops::autodiff::register;
use crate::ops::backend::LrvdBackend;

#[derive(Debug)]
struct DisentangledAttention;

type Saved<B> = ([FloatTensor<B>; 4], [Term<B>; 2], AttentionLayout);

impl<B: LrvdBackend> Backward<B, 9> for DisentangledAttention {
    /// Query, key, value and probabilities; the position terms; the layout.
    type State = Saved<B>;

    fn backward(
        self,
        ops: Ops<Self::State, 9>,
        grads: &mut Gradients,
        _checkpointer: &mut Checkpointer,
    ) {
        let parents = ops.parents.map(|parent| parent.map(|node| node.id));
        let ([query, key, value, probability], [keys, queries], layout) = ops.state;
        let grad = grads.consume::<B>(&ops.node);
        let mut wanted = parents.each_ref().map(Option::is_some);
        for (wanted, term) in wanted[3..].iter_mut().zip(keys.iter().chain(&queries)) {
            *wanted &= term.is_some();
        }
        let gradients = B::fused_disentangled_attention_grad(
            query,
            key,
            value,
            PositionTerm::from_parts(keys),
            PositionTerm::from_parts(queries),
            probability,
            grad,
            layout,
            wanted,
        );
        register::<B, _>(grads, parents, gradients);
    }
}

type Tracked<B, C> = FloatTensor<Autodiff<B, C>>;

pub(crate) fn forward<B: LrvdBackend, C: CheckpointStrategy>(
    [query, key, value]: [Tracked<B, C>; 3],
    terms: [Term<Autodiff<B, C>>; 2],
    mask: Option<Tracked<B, C>>,
    layout: AttentionLayout,
) -> (Tracked<B, C>, Tracked<B, C>) {
    // What is absent is represented by the query, and never asked for its gradient.
    let node = |tensor: &Option<Tracked<B, C>>| tensor.as_ref().unwrap_or(&query).node();
    let [keys, queries] = terms.each_ref().map(|term| term.each_ref().map(node));
    let ([k0, k1, k2], [q0, q1, q2]) = (keys, queries);
    let nodes = [query.node(), key.node(), value.node(), k0, k1, k2, q0, q1, q2];
    let prepared = DisentangledAttention.prepare::<C>(nodes).compute_bound();
    let inner = Tracked::<B, C>::into_primitive;
    let [query, key, value] = [query, key, value].map(inner);
    let terms = terms.map(|term| term.map(|tensor| tensor.map(inner)));
    let [keys, queries] = terms.clone().map(PositionTerm::from_parts);
    let mask = mask.map(inner).into();
    let (out, p) = B::fused_disentangled_attention(
        query.clone(),
        key.clone(),
        value.clone(),
        keys,
        queries,
        mask,
        layout.clone(),
    );
    let out = match prepared.stateful() {
        OpsKind::Tracked(node) => node.finish(([query, key, value, p.clone()], terms, layout), out),
        OpsKind::UnTracked(node) => node.finish(out),
    };
    (out, <Autodiff<B, C> as AutodiffBackend>::from_inner(p))
}
