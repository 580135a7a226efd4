//! What the harness needs of a model, and the models that have it.

use burn::module::Module;
use burn::tensor::Tensor;
use lrvd_burn::adapter::AdaptedLinear;
use lrvd_burn::model::AdaptedModel;
use lrvd_burn::parameters::{NamedParameter, NamedParameters};
use lrvd_burn::sampling::Pass;
use lrvd_models::deberta::{DebertaClassifier, EncoderInput};
use lrvd_models::llama::LlamaChoice;

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

impl SequenceModel for LlamaChoice {
    fn logits(&self, input: &EncoderInput, pass: &Pass) -> Tensor<2> {
        self.forward(input, pass)
    }
}

/// The model of a run: an encoder with a head of its own, or a language model that answers by the
/// logits of a few tokens.
#[expect(clippy::large_enum_variant, reason = "a run holds two of them")]
#[derive(Module, Debug)]
pub enum TaskModel {
    /// DeBERTa-v2 or v3.
    Deberta(DebertaClassifier),
    /// Llama.
    Llama(LlamaChoice),
}

impl SequenceModel for TaskModel {
    fn logits(&self, input: &EncoderInput, pass: &Pass) -> Tensor<2> {
        match self {
            Self::Deberta(model) => model.logits(input, pass),
            Self::Llama(model) => model.logits(input, pass),
        }
    }
}

impl NamedParameters for TaskModel {
    fn visit_parameters(&mut self, visit: &mut dyn FnMut(NamedParameter<'_>)) {
        match self {
            Self::Deberta(model) => model.visit_parameters(visit),
            Self::Llama(model) => model.visit_parameters(visit),
        }
    }
}

impl AdaptedModel for TaskModel {
    fn visit_layers(&self, visit: &mut dyn FnMut(&str, &AdaptedLinear)) {
        match self {
            Self::Deberta(model) => model.visit_layers(visit),
            Self::Llama(model) => model.visit_layers(visit),
        }
    }

    fn visit_layers_mut(&mut self, visit: &mut dyn FnMut(&str, &mut AdaptedLinear)) {
        match self {
            Self::Deberta(model) => model.visit_layers_mut(visit),
            Self::Llama(model) => model.visit_layers_mut(visit),
        }
    }
}
