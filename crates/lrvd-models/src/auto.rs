//! Every model that a run trains, behind one type.

use burn::module::Module;
use burn::tensor::Tensor;
use lrvd_burn::model::{NamedModule, members};
use lrvd_burn::sampling::Pass;
use lrvd_burn::train::Model;

use crate::batch::TokenBatch;
use crate::deberta::DebertaClassifier;
use crate::llama::{LlamaForCausalLm, LlamaScore};

/// An encoder with a classification head, or a language model that answers by the logits of a few tokens, by a number, or by
/// those of every next token.
#[expect(clippy::large_enum_variant, reason = "a run holds two of them")]
#[derive(Module, Debug)]
pub enum AutoModel {
    /// DeBERTa-v2 or v3.
    Deberta(DebertaClassifier),
    /// Llama, by its [answer tokens](LlamaForCausalLm::answering), or without them by the next tokens of a text.
    Llama(LlamaForCausalLm),
    /// Llama, by a number.
    LlamaScore(LlamaScore),
}

impl AutoModel {
    /// Gradient checkpointing: whether the backward pass computes a layer's activations again instead of holding those
    /// of all layers. Costs one more forward pass a step.
    pub fn recompute(&mut self, recomputes: bool) {
        *match self {
            Self::Deberta(model) => &mut model.encoder.recomputes,
            Self::Llama(model) => &mut model.model.recomputes,
            Self::LlamaScore(model) => &mut model.model.recomputes,
        } = recomputes;
    }

    /// What the head reads of every input, `[batch, features]`, at the posterior mean: the encoder's pooled first token,
    /// or the decoder's last hidden state after the final norm.
    pub fn features(&self, input: &TokenBatch) -> Tensor<2> {
        let pass = Pass::mean();
        let decoder = match self {
            Self::Deberta(model) => {
                return model.head(model.encoder.first_token(input, &pass), &pass).0;
            }
            Self::Llama(model) => &model.model,
            Self::LlamaScore(model) => &model.model,
        };
        decoder.last_hidden(input, &pass).squeeze_dim(1)
    }
}

impl Model for AutoModel {
    type Input = TokenBatch;
    const HOLDS_DRAWS: bool = true;

    fn logits(&self, input: &TokenBatch, pass: &Pass) -> Tensor<2> {
        match self {
            Self::Deberta(model) => model.logits(input, pass),
            Self::Llama(model) => model.logits(input, pass),
            Self::LlamaScore(model) => answered(model, input, pass, LlamaScore::forward),
        }
    }
}

impl Model for DebertaClassifier {
    type Input = TokenBatch;
    const HOLDS_DRAWS: bool = true;

    fn logits(&self, input: &TokenBatch, pass: &Pass) -> Tensor<2> {
        answered(self, input, pass, Self::forward)
    }
}

/// Logits of the answer tokens; without them those of the next token after the columns that the batch asks for.
impl Model for LlamaForCausalLm {
    type Input = TokenBatch;
    const HOLDS_DRAWS: bool = true;

    fn logits(&self, input: &TokenBatch, pass: &Pass) -> Tensor<2> {
        answered(self, input, pass, |model, input, pass| match &model.answer_ids[..] {
            [] => model.logits_at(input, pass),
            answers => model.answer_logits(input, answers, pass),
        })
    }
}

/// The logits that `forward` makes of `input` for every ensemble member, without answers that a row does not have.
fn answered<M: NamedModule>(
    model: &M,
    input: &TokenBatch,
    pass: &Pass,
    forward: impl FnOnce(&M, &TokenBatch, &Pass) -> Tensor<2>,
) -> Tensor<2> {
    let input = input.repeat(members(model).unwrap_or(1));
    let logits = forward(model, &input, pass);
    let Some(barred) = input.barred else { return logits };
    let barred = barred.cast(logits.dtype());
    let [logits, barred] = pass.aligned([logits, barred]);
    logits + barred
}
