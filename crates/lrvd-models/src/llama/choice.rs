//! Questions whose answer is one of a few tokens.

use std::collections::BTreeSet;

use burn::module::Module;
use burn::tensor::Tensor;
use lrvd_burn::sampling::Pass;

use super::causal_lm::LlamaForCausalLm;
use crate::batch::TokenBatch;
use crate::error::{Error, Result};

/// A Llama that chooses among answer tokens: a classifier whose head is a part of the language-modelling head.
///
/// Only the last real position and only the rows of the answers are computed. Parameters and layers, and their names,
/// are those of the language model.
#[derive(Module, Debug)]
pub struct LlamaChoice {
    model: LlamaForCausalLm,
    #[module(skip)]
    answer_ids: Vec<u32>,
}

impl LlamaChoice {
    /// `model` with the answers `answer_ids`, in the order of the classes.
    ///
    /// # Errors
    ///
    /// If there are fewer than two answers, one twice, or one that is no token of the model.
    pub fn new(model: LlamaForCausalLm, answer_ids: Vec<u32>) -> Result<Self> {
        let wrong = |expected: String| {
            Err(Error::argument("answer_ids", expected, format_args!("{answer_ids:?}")))
        };
        let vocab_size = model.config().vocab_size;
        if answer_ids.len() < 2 {
            return wrong("at least 2 tokens".to_owned());
        }
        if answer_ids.iter().any(|&id| id as usize >= vocab_size) {
            return wrong(format!("tokens below {vocab_size}, the size of the model's vocabulary"));
        }
        if answer_ids.iter().collect::<BTreeSet<_>>().len() < answer_ids.len() {
            return wrong("different tokens".to_owned());
        }
        Ok(Self { model, answer_ids })
    }

    /// The same model, to choose among other answers.
    pub fn answering(self, answer_ids: Vec<u32>) -> Result<Self> {
        Self::new(self.model, answer_ids)
    }

    /// Gradient checkpointing; see [`LlamaModel::recompute`](super::LlamaModel::recompute).
    pub fn recompute(&mut self, recomputes: bool) {
        self.model.recompute(recomputes);
    }

    /// The language model.
    pub fn model(&self) -> &LlamaForCausalLm {
        &self.model
    }

    /// The answer tokens, in the order of the classes.
    pub fn answer_ids(&self) -> &[u32] {
        &self.answer_ids
    }

    /// Logits `[batch, answers]` after each row's last real token. Segment ids are not read.
    pub fn forward(&self, input: &TokenBatch, pass: &Pass) -> Tensor<2> {
        self.model.answer_logits(input, &self.answer_ids, pass)
    }
}
