//! A linear layer and its update in the autodiff graph.

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
struct AdaptedLinear;

/// What the backward pass reads.
struct Saved<B: LrvdBackend> {
    x: FloatTensor<B>,
    weight: FloatTensor<B>,
    /// A, B and `s`.
    low: [Option<FloatTensor<B>>; 3],
    has_bias: bool,
    scale: f64,
}

impl<B: LrvdBackend> Clone for Saved<B> {
    fn clone(&self) -> Self {
        let (x, weight, low) = (self.x.clone(), self.weight.clone(), self.low.clone());
        Self { x, weight, low, ..*self }
    }
}

impl<B: LrvdBackend> std::fmt::Debug for Saved<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Saved").field("scale", &self.scale).finish_non_exhaustive()
    }
}

impl<B: LrvdBackend> Backward<B, 5> for AdaptedLinear {
    type State = Saved<B>;

    fn backward(
        self,
        ops: Ops<Self::State, 5>,
        grads: &mut Gradients,
        _checkpointer: &mut Checkpointer,
    ) {
        let parents = ops.parents.map(|parent| parent.map(|node| node.id));
        let saved = ops.state;
        let grad = grads.consume::<B>(&ops.node);
        let [a, b, hidden] = saved.low;
        let present = [true, true, saved.has_bias, a.is_some(), b.is_some()];
        let mut wanted = parents.each_ref().map(Option::is_some);
        for (wanted, present) in wanted.iter_mut().zip(present) {
            *wanted &= present;
        }
        let (d_x, d_weight, d_bias, d_a, d_b) = B::fused_adapted_linear_grad(
            saved.x,
            saved.weight,
            a.into(),
            b.into(),
            hidden.into(),
            grad,
            saved.scale,
            wanted,
            Maybe::Absent,
            Maybe::Absent,
        );
        register::<B, _>(grads, parents, [d_x, d_weight, d_bias, d_a, d_b]);
    }
}

type Tracked<B, C> = FloatTensor<Autodiff<B, C>>;

pub(crate) fn forward<B: LrvdBackend, C: CheckpointStrategy>(
    x: Tracked<B, C>,
    weight: Tracked<B, C>,
    bias: Option<Tracked<B, C>>,
    a: Option<Tracked<B, C>>,
    b: Option<Tracked<B, C>>,
    scale: f64,
) -> (Tracked<B, C>, Option<Tracked<B, C>>) {
    // What is absent is represented by the weight, and never asked for its gradient.
    let node = |tensor: &Option<Tracked<B, C>>| tensor.as_ref().unwrap_or(&weight).node();
    let nodes = [x.node(), weight.node(), node(&bias), node(&a), node(&b)];
    let prepared = AdaptedLinear.prepare::<C>(nodes).compute_bound();
    let (x, weight) = (x.into_primitive(), weight.into_primitive());
    let [bias, a, b] = [bias, a, b].map(|tensor| tensor.map(Tracked::<B, C>::into_primitive));
    let run = |x, weight, bias: Option<_>, a: Option<_>, b: Option<_>| {
        B::fused_adapted_linear(x, weight, Maybe::from(bias), Maybe::from(a), Maybe::from(b), scale)
    };
    let (out, hidden) = match prepared.stateful() {
        OpsKind::Tracked(node) => {
            let has_bias = bias.is_some();
            let (out, s) = run(x.clone(), weight.clone(), bias, a.clone(), b.clone());
            let saved = Saved { x, weight, low: [a, b, s.clone()], has_bias, scale };
            (node.finish(saved, out), s)
        }
        OpsKind::UnTracked(node) => {
            let (out, s) = run(x, weight, bias, a, b);
            (node.finish(out), s)
        }
    };
    (out, hidden.map(<Autodiff<B, C> as AutodiffBackend>::from_inner))
}
