//! Every model that a run trains, behind one type.

use burn::module::Module;
use burn::tensor::{Tensor, TensorData};
use lrvd_burn::model::{NamedModule, members};
use lrvd_burn::sampling::Pass;
use lrvd_burn::train::Model;

use crate::batch::{MASKED_LOGIT, ScoredOptions, TokenBatch};
use crate::deberta::DebertaClassifier;
use crate::llama::{LlamaForCausalLm, LlamaModel, LlamaScore};

/// An encoder with a classification head, or a language model that answers by the logits of a few tokens, by a linear head, or
/// by the logits of every next token.
#[expect(clippy::large_enum_variant, reason = "a run holds two of them")]
#[derive(Module, Debug)]
pub enum AutoModel {
    /// DeBERTa, BERT or RoBERTa.
    Deberta(DebertaClassifier),
    /// Llama, by its [answer tokens](LlamaForCausalLm::answering), or without them by the next tokens of a text.
    Llama(LlamaForCausalLm),
    /// Llama, by a linear head: a number or classes.
    LlamaScore(LlamaScore),
}

impl AutoModel {
    /// This model with a separate head for [`LlamaForCausalLm::untied_for`] these parameters.
    #[must_use]
    pub fn untied_for<'a>(self, parameters: impl Iterator<Item = &'a str>) -> Self {
        match self {
            Self::Llama(model) => Self::Llama(model.untied_for(parameters)),
            other => other,
        }
    }

    /// Gradient checkpointing: `true` if the backward pass computes a layer's activations again instead of holding those
    /// of all layers. Costs one more forward pass a step.
    pub fn recompute(&mut self, recomputes: bool) {
        *match self {
            Self::Deberta(model) => &mut model.encoder.recomputes,
            Self::Llama(model) => &mut model.model.recomputes,
            Self::LlamaScore(model) => &mut model.model.recomputes,
        } = recomputes;
    }

    /// Input of the head for every row, `[batch, features]`, at the posterior mean: the encoder's pooled state,
    /// or the decoder's last hidden state after the final norm.
    pub fn features(&self, input: &TokenBatch) -> Tensor<2> {
        let pass = Pass::mean();
        match self {
            Self::Deberta(model) => model.features(input, &pass),
            Self::Llama(LlamaForCausalLm { model, .. })
            | Self::LlamaScore(LlamaScore { model, .. }) => {
                model.last_hidden(input, &pass).squeeze_dim(1)
            }
        }
    }

    /// Decoder below the head of a language model; `None` for an encoder.
    pub fn decoder(&self) -> Option<&LlamaModel> {
        match self {
            Self::Deberta(_) => None,
            Self::Llama(model) => Some(&model.model),
            Self::LlamaScore(model) => Some(&model.model),
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

/// Logits of the answer tokens; without them those of the next token after the columns that the batch asks for. Rows with
/// scored options get the scores of these, each in a separate pass.
impl Model for LlamaForCausalLm {
    type Input = TokenBatch;
    const HOLDS_DRAWS: bool = true;

    fn logits(&self, input: &TokenBatch, pass: &Pass) -> Tensor<2> {
        if input.scored.iter().all(Option::is_none) {
            return answered(self, input, pass, |model, input, pass| match &model.answer_ids[..] {
                [] => model.logits_at(input, pass),
                answers => model.answer_logits(input, answers, pass),
            });
        }
        let rows = 0..input.scored.len();
        let others: Vec<usize> = rows.clone().filter(|&row| input.scored[row].is_none()).collect();
        let mut order = Vec::with_capacity(rows.len());
        let mut parts = Vec::new();
        if !others.is_empty() {
            parts.push(self.logits(&input.rows(&others), &pass.for_rows(0, others.len())));
            order.extend(others);
        }
        for row in rows {
            let Some(ScoredOptions { prompt, options }) = &input.scored[row] else { continue };
            let pass = pass.for_rows(row, 1);
            // Of a single row alone.
            let own = TokenBatch { prefix: input.prefix.clone(), ..input.rows(&[row]) };
            parts.push(answered(self, &own, &pass, |model, input, pass| {
                let prompts = input.ids.clone().narrow(1, 0, *prompt);
                model.option_logits(prompts, input.prefix.as_ref(), options, pass)
            }));
            order.push(row);
        }
        in_order(parts, &order)
    }
}

/// Rows of `parts`, of which each has every copy of its rows one behind the other, so that row `order[i]` of a copy was the
/// `i`-th of all parts; narrow parts are filled up with answers that cannot be given.
fn in_order(parts: Vec<Tensor<2>>, order: &[usize]) -> Tensor<2> {
    let width = parts.iter().map(|part| part.dims()[1]).max().unwrap_or(0);
    let rows: usize = parts.iter().map(|part| part.dims()[0]).sum();
    let n = order.len();
    let copies = rows / n;
    let copied = |part: Tensor<2>| {
        let part = pad_classes(part, width);
        let own = part.dims()[0] / copies;
        part.reshape([copies, own, width])
    };
    let all = Tensor::cat(parts.into_iter().map(copied).collect(), 1);
    let mut places = vec![0_i64; n];
    order.iter().enumerate().for_each(|(place, &row)| places[row] = place as i64);
    let places = Tensor::from_data(TensorData::new(places, [n]), &all.device().inner());
    all.select(1, places).reshape([copies * n, width])
}

/// Pads `logits` to `width` answers; the further ones are masked.
fn pad_classes(logits: Tensor<2>, width: usize) -> Tensor<2> {
    let [rows, own] = logits.dims();
    if own >= width {
        return logits;
    }
    let none = Tensor::full([rows, width - own], MASKED_LOGIT, (&logits.device(), logits.dtype()));
    Tensor::cat(vec![logits, none], 1)
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
    let Some(mask) = input.answer_mask else { return logits };
    let mask = mask.cast(logits.dtype());
    let [logits, mask] = pass.aligned([pad_classes(logits, mask.dims()[1]), mask]);
    logits + mask
}
