//! What training asks of a model.

use burn::module::Module;
use burn::tensor::Tensor;

use crate::model::AdaptedModel;
use crate::sampling::Pass;

/// A model that can be trained: one method more than [`AdaptedModel`].
pub trait Model: AdaptedModel + Module {
    /// What it reads: a tensor, or several of them.
    type Input;

    /// Whether a pass may hold several draws of the weights ([`DrawSet`](crate::sampling::DrawSet)), which
    /// then cost far less than as many passes.
    ///
    /// A model that says so brings tensors of which one has passed a layer that draws and another has not
    /// together, by [`Pass::repeated`] or [`Pass::aligned`]: the two sides of a residual, a mask and the
    /// activations it meets.
    const HOLDS_DRAWS: bool = false;

    /// Logits `[rows, classes]`, or scores `[rows, 1]`, of one pass; for [tokens](super::Targets::Tokens) logits
    /// `[answers, vocabulary]`, those of one example after those of another.
    ///
    /// A model whose adapters hold ensemble members repeats the input for them
    /// ([`repeat_for_members`](crate::adapter::repeat_for_members)) and answers `[members · rows, ...]`,
    /// member after member. For a pass that holds several draws the answer is `[count · rows, ...]`, draw
    /// after draw, or `[rows, ...]` if no layer draws.
    fn logits(&self, input: &Self::Input, pass: &Pass) -> Tensor<2>;
}
