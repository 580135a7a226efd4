//! What the harness needs of a model.

use burn::module::Module;
use burn::tensor::Tensor;
use lrvd_burn::model::AdaptedModel;
use lrvd_burn::sampling::Pass;
use lrvd_models::deberta::{DebertaClassifier, EncoderInput};

/// A classifier or regressor over token sequences, with adapters.
pub trait SequenceModel: AdaptedModel + Module {
    /// Logits `[batch, labels]` of one pass.
    fn logits(&self, input: &EncoderInput, pass: &Pass) -> Tensor<2>;
}

impl SequenceModel for DebertaClassifier {
    fn logits(&self, input: &EncoderInput, pass: &Pass) -> Tensor<2> {
        self.forward(input, pass)
    }
}
