//! The softmax in the autodiff graph.

use burn::backend::AutodiffBackend;
use burn::backend::autodiff::Autodiff;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::FloatTensor;

use crate::ops::autodiff::register;
use crate::ops::backend::{LrvdBackend, Maybe};

#[derive(Debug)]
struct RelativeSoftmax;

impl<B: LrvdBackend> Backward<B, 3> for RelativeSoftmax {
    /// Probabilities and scale.
    type State = (FloatTensor<B>, f64);

    fn backward(
        self,
        ops: Ops<Self::State, 3>,
        grads: &mut Gradients,
        _checkpointer: &mut Checkpointer,
    ) {
        let (parents, (probability, scale)) =
            (ops.parents.map(|parent| parent.map(|node| node.id)), ops.state);
        let grad = grads.consume::<B>(&ops.node);
        let wanted = [parents[1].is_some(), parents[2].is_some()];
        let (d_content, d_c2p, d_p2c) =
            B::fused_relative_softmax_grad(probability, grad, scale, wanted);
        register::<B, _>(grads, parents, [Some(d_content), d_c2p, d_p2c]);
    }
}

pub(crate) fn forward<B: LrvdBackend, C: CheckpointStrategy>(
    content: FloatTensor<Autodiff<B, C>>,
    c2p: Maybe<Autodiff<B, C>>,
    p2c: Maybe<Autodiff<B, C>>,
    mask: Maybe<Autodiff<B, C>>,
    scale: f64,
) -> FloatTensor<Autodiff<B, C>> {
    let (c2p, p2c) = (c2p.into_option(), p2c.into_option());
    // A node has a fixed number of parents: a constant stands in for a missing term.
    let constant = <Autodiff<B, C> as AutodiffBackend>::from_inner(content.primitive().clone());
    let nodes = [
        content.node(),
        c2p.as_ref().unwrap_or(&constant).node(),
        p2c.as_ref().unwrap_or(&constant).node(),
    ];
    let prepared = RelativeSoftmax.prepare::<C>(nodes).compute_bound();
    drop(constant);
    let inner = |tensor: Option<FloatTensor<Autodiff<B, C>>>| {
        Maybe::from(tensor.map(FloatTensor::<Autodiff<B, C>>::into_primitive))
    };
    let out = B::fused_relative_softmax(
        content.into_primitive(),
        inner(c2p),
        inner(p2c),
        inner(mask.into_option()),
        scale,
    );
    match prepared.stateful() {
        OpsKind::Tracked(node) => node.finish((out.clone(), scale), out),
        OpsKind::UnTracked(node) => node.finish(out),
    }
}
