//! Sums of squares in the autodiff graph.

use burn::backend::autodiff::Autodiff;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::FloatTensor;

use crate::ops::autodiff::register;
use crate::ops::backend::{LrvdBackend, Maybe};

#[derive(Debug)]
struct RowEnergy;

impl<B: LrvdBackend> Backward<B, 2> for RowEnergy {
    /// `x` and the weights.
    type State = (FloatTensor<B>, Option<FloatTensor<B>>);

    fn backward(
        self,
        ops: Ops<Self::State, 2>,
        grads: &mut Gradients,
        _checkpointer: &mut Checkpointer,
    ) {
        let parents = ops.parents.map(|parent| parent.map(|node| node.id));
        let (x, weight) = ops.state;
        let grad = grads.consume::<B>(&ops.node);
        let wanted = [parents[0].is_some(), parents[1].is_some() && weight.is_some()];
        let (d_x, d_weight) = B::fused_row_energy_grad(x, weight.into(), grad, wanted);
        register::<B, _>(grads, parents, [d_x, d_weight]);
    }
}

pub(crate) fn forward<B: LrvdBackend, C: CheckpointStrategy>(
    x: FloatTensor<Autodiff<B, C>>,
    weight: Option<FloatTensor<Autodiff<B, C>>>,
) -> FloatTensor<Autodiff<B, C>> {
    // Missing weights are represented by the rows, and never asked for their gradient.
    let nodes = [x.node(), weight.as_ref().unwrap_or(&x).node()];
    let prepared = RowEnergy.prepare::<C>(nodes).compute_bound();
    let x = x.into_primitive();
    let weight = weight.map(FloatTensor::<Autodiff<B, C>>::into_primitive);
    match prepared.stateful() {
        OpsKind::Tracked(node) => {
            let out = B::fused_row_energy(x.clone(), Maybe::from(weight.clone()));
            node.finish((x, weight), out)
        }
        OpsKind::UnTracked(node) => node.finish(B::fused_row_energy(x, Maybe::from(weight))),
    }
}
