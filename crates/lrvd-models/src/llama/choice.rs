//! Questions whose answer is one of a few tokens.

use std::collections::BTreeSet;

use burn::module::Module;
use burn::tensor::Tensor;
use lrvd_burn::adapted_model;
use lrvd_burn::sampling::Pass;

use super::causal_lm::LlamaForCausalLm;
use crate::batch::TokenBatch;

/// The answers do not make a question.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChoiceError {
    /// Fewer than two answers.
    #[error("a question needs at least 2 answers, found {found}")]
    TooFew {
        /// How many there are.
        found: usize,
    },
    /// An answer is no token of the model.
    #[error("answer {index} is token {id}, but the model has {vocab_size} tokens")]
    Unknown {
        /// Its place among the answers.
        index: usize,
        /// The token.
        id: u32,
        /// Size of the model's vocabulary.
        vocab_size: usize,
    },
    /// Two answers are the same token.
    #[error("answers {first} and {second} are both token {id}")]
    Twice {
        /// The first place.
        first: usize,
        /// The second place.
        second: usize,
        /// The token.
        id: u32,
    },
}

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
    /// [`ChoiceError`] if there are fewer than two answers, one twice, or one that is no token of the model.
    pub fn new(model: LlamaForCausalLm, answer_ids: Vec<u32>) -> Result<Self, ChoiceError> {
        if answer_ids.len() < 2 {
            return Err(ChoiceError::TooFew { found: answer_ids.len() });
        }
        let vocab_size = model.config().vocab_size;
        let mut seen = BTreeSet::new();
        for (index, &id) in answer_ids.iter().enumerate() {
            if id as usize >= vocab_size {
                return Err(ChoiceError::Unknown { index, id, vocab_size });
            }
            if !seen.insert(id) {
                let first = answer_ids.iter().position(|&other| other == id).unwrap_or(index);
                return Err(ChoiceError::Twice { first, second: index, id });
            }
        }
        Ok(Self { model, answer_ids })
    }

    /// The same model, to choose among other answers.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn answering(self, answer_ids: Vec<u32>) -> Result<Self, ChoiceError> {
        Self::new(self.model, answer_ids)
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

adapted_model!(LlamaChoice { model });
