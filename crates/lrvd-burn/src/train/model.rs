//! What training asks of a model.

use burn::module::Module;
use burn::tensor::Tensor;

use crate::model::AdaptedModel;
use crate::sampling::Pass;

/// A model that can be trained: one method more than [`AdaptedModel`].
pub trait Model: AdaptedModel + Module {
    /// What it reads: a tensor, or several of them.
    type Input;

    /// Logits `[rows, classes]`, or scores `[rows, 1]`, of one pass.
    ///
    /// A model whose adapters hold ensemble members repeats the input for them
    /// ([`repeat_for_members`](crate::adapter::repeat_for_members)) and answers `[members · rows, ...]`,
    /// member after member.
    fn logits(&self, input: &Self::Input, pass: &Pass) -> Tensor<2>;
}
