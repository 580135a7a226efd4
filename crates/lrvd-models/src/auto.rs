//! Every model that a run trains, behind one type.

use burn::module::Module;
use burn::tensor::Tensor;
use lrvd_burn::adapter::Attached;
use lrvd_burn::model::{NamedModule, adapters};
use lrvd_burn::sampling::Pass;
use lrvd_burn::train::Model;

use crate::batch::TokenBatch;
use crate::deberta::DebertaClassifier;
use crate::llama::{LlamaChoice, LlamaForCausalLm, LlamaScore};

/// An encoder with a classification head, or a language model that answers by the logits of a few tokens, by a number, or by
/// those of every next token.
#[expect(clippy::large_enum_variant, reason = "a run holds two of them")]
#[derive(Module, Debug)]
pub enum AutoModel {
    /// DeBERTa-v2 or v3.
    Deberta(DebertaClassifier),
    /// Llama, by words.
    Llama(LlamaChoice),
    /// Llama, by a number.
    LlamaScore(LlamaScore),
    /// Llama, by the next tokens of a text.
    LlamaText(LlamaForCausalLm),
}

impl AutoModel {
    /// Gradient checkpointing: whether the backward pass computes a layer's activations again instead of holding those
    /// of all layers. Costs one more forward pass a step.
    pub fn recompute(&mut self, recomputes: bool) {
        match self {
            Self::Deberta(model) => model.recompute(recomputes),
            Self::Llama(model) => model.recompute(recomputes),
            Self::LlamaScore(model) => model.recompute(recomputes),
            Self::LlamaText(model) => model.recompute(recomputes),
        }
    }

    /// What the head reads of every input, `[batch, features]`, at the posterior mean: the encoder's pooled first token,
    /// or the decoder's last hidden state after the final norm.
    pub fn features(&self, input: &TokenBatch) -> Tensor<2> {
        let pass = Pass::mean();
        match self {
            Self::Deberta(model) => model.head(model.encoder().first_token(input, &pass), &pass).0,
            Self::Llama(model) => model.model().model().last_hidden(input, &pass).squeeze_dim(1),
            Self::LlamaScore(model) => model.model().last_hidden(input, &pass).squeeze_dim(1),
            Self::LlamaText(model) => model.model().last_hidden(input, &pass).squeeze_dim(1),
        }
    }
}

impl Model for AutoModel {
    type Input = TokenBatch;
    const HOLDS_DRAWS: bool = true;

    fn logits(&self, input: &TokenBatch, pass: &Pass) -> Tensor<2> {
        match self {
            Self::Deberta(model) => model.logits(input, pass),
            Self::Llama(model) => model.logits(input, pass),
            Self::LlamaScore(model) => model.logits(input, pass),
            Self::LlamaText(model) => model.logits(input, pass),
        }
    }
}

impl Model for DebertaClassifier {
    type Input = TokenBatch;
    const HOLDS_DRAWS: bool = true;

    fn logits(&self, input: &TokenBatch, pass: &Pass) -> Tensor<2> {
        answered(&input.repeat(members(self)), pass, |input| self.forward(input, pass))
    }
}

impl Model for LlamaChoice {
    type Input = TokenBatch;
    const HOLDS_DRAWS: bool = true;

    fn logits(&self, input: &TokenBatch, pass: &Pass) -> Tensor<2> {
        answered(&input.repeat(members(self)), pass, |input| self.forward(input, pass))
    }
}

impl Model for LlamaScore {
    type Input = TokenBatch;
    const HOLDS_DRAWS: bool = true;

    fn logits(&self, input: &TokenBatch, pass: &Pass) -> Tensor<2> {
        self.forward(&input.repeat(members(self)), pass)
    }
}

/// The logits that `forward` makes of `input`, without answers that a row does not have.
fn answered(
    input: &TokenBatch,
    pass: &Pass,
    forward: impl FnOnce(&TokenBatch) -> Tensor<2>,
) -> Tensor<2> {
    let logits = forward(input);
    let Some(barred) = &input.barred else { return logits };
    let barred = barred.clone().cast(logits.dtype());
    let [logits, barred] = pass.aligned([logits, barred]);
    logits + barred
}

/// Language modelling: logits of the next token after the columns that the batch asks for.
impl Model for LlamaForCausalLm {
    type Input = TokenBatch;
    const HOLDS_DRAWS: bool = true;

    fn logits(&self, input: &TokenBatch, pass: &Pass) -> Tensor<2> {
        self.logits_at(&input.repeat(members(self)), pass)
    }
}

/// Ensemble members that the adapters hold side by side; every one of them sees the batch.
fn members(model: &impl NamedModule) -> usize {
    adapters(model).iter().find_map(Attached::members).unwrap_or(1)
}
