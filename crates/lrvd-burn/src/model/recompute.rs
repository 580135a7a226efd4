//! Gradient checkpointing of a part of a model.

use burn::module::Module;
use burn::tensor::Tensor;

use super::walk::NamedModule;
use crate::ops::recompute;

/// `forward(block, x)`, of whose activations the graph holds only `x`.
///
/// The backward pass runs `forward` again, with the same noise: all of it is keyed. It costs one more forward of the block
/// and holds the activations of one block at a time. Gradients reach `x` and the trainable parameters of `block`;
/// whatever else `forward` captures is a constant. A block without trainable parameters runs as it is: one of a model
/// that does not train, whose observers see each use once.
///
/// # References
///
/// Chen et al. 2016, arXiv:1604.06174.
pub fn recomputed<M: Module + Sync + 'static>(
    block: &M,
    x: Tensor<3>,
    forward: impl Fn(&M, Tensor<3>) -> Tensor<3> + Send + Sync + 'static,
) -> Tensor<3> {
    // A node of the graph has a fixed number of parents: the parameters are one of them, end to end.
    let mut parts = Vec::new();
    block.visit_parameters(&mut |p| {
        if p.value.is_trainable() && !p.value.is_empty() {
            parts.push(p.value.tracked());
        }
    });
    if parts.is_empty() {
        return forward(block, x);
    }
    let block = block.clone();
    let run = move |x: Tensor<3>, parameters: Tensor<1>| {
        let (mut block, mut start) = (block.clone(), 0);
        block.visit_parameters_mut(&mut |p| {
            if p.value.is_trainable() && !p.value.is_empty() {
                let len = p.value.len();
                p.value.track(parameters.clone().narrow(0, start, len));
                start += len;
            }
        });
        forward(&block, x)
    };
    recompute(x, Tensor::cat(parts, 0), run)
}
