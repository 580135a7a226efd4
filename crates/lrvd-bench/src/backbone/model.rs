//! What the harness needs of a model, and the models that have it.

use burn::module::Module;
use burn::tensor::Tensor;
use lrvd_burn::adapted_model;
use lrvd_burn::model::AdaptedModel;
use lrvd_burn::sampling::Pass;
use lrvd_models::TokenBatch;
use lrvd_models::deberta::DebertaClassifier;
use lrvd_models::llama::LlamaChoice;

/// A classifier or regressor over token sequences, with adapters.
pub trait SequenceModel: AdaptedModel + Module {
    /// Logits `[batch, labels]` of one pass.
    fn logits(&self, input: &TokenBatch, pass: &Pass) -> Tensor<2>;
}

impl SequenceModel for DebertaClassifier {
    fn logits(&self, input: &TokenBatch, pass: &Pass) -> Tensor<2> {
        self.forward(input, pass)
    }
}

impl SequenceModel for LlamaChoice {
    fn logits(&self, input: &TokenBatch, pass: &Pass) -> Tensor<2> {
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
    fn logits(&self, input: &TokenBatch, pass: &Pass) -> Tensor<2> {
        match self {
            Self::Deberta(model) => model.logits(input, pass),
            Self::Llama(model) => model.logits(input, pass),
        }
    }
}

adapted_model!(
    enum TaskModel {
        Deberta,
        Llama,
    }
);
