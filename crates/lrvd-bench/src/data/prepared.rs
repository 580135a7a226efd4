//! A task as the model sees it: token ids and labels of both splits.

use lrvd_models::tokenizer::{TextTokenizer, TokenizerError};

use super::batch::TokenisedExample;
use super::{Dataset, Example};
use crate::record::Metrics;
use crate::task::{Goal, Metric};

/// Tokenised splits of one task.
#[derive(Clone, Debug)]
pub struct PreparedTask {
    /// What is learnt.
    pub goal: Goal,
    /// Width of the model's output.
    pub labels: usize,
    /// Training examples.
    pub train: Vec<TokenisedExample>,
    /// Examples kept out of training, for methods that fit something afterwards.
    pub holdout: Vec<TokenisedExample>,
    /// Validation examples.
    pub validation: Vec<TokenisedExample>,
    /// Ids of the validation examples.
    pub validation_ids: Vec<String>,
    /// Id that fills a batch.
    pub pad_id: u32,
    /// Tokens that stand for the classes, for a language model; empty for an encoder.
    pub answers: Vec<u32>,
}

impl PreparedTask {
    /// Encodes `dataset`, `[CLS] a [SEP] b [SEP]`, longest first cut to `max_length`.
    ///
    /// # Errors
    ///
    /// [`TokenizerError`] if a text cannot be encoded.
    pub fn new(
        dataset: &Dataset,
        tokenizer: &TextTokenizer,
        max_length: usize,
    ) -> Result<Self, TokenizerError> {
        let (train, validation) = (&dataset.train.examples, &dataset.validation.examples);
        let goal = Goal::of_task(dataset.task);
        Self::from_examples(goal, train, validation, tokenizer, max_length)
    }

    /// Encodes examples of any origin; `train` may be empty where nothing is trained.
    ///
    /// # Errors
    ///
    /// [`TokenizerError`] if a text cannot be encoded.
    pub fn from_examples(
        goal: Goal,
        train: &[Example],
        validation: &[Example],
        tokenizer: &TextTokenizer,
        max_length: usize,
    ) -> Result<Self, TokenizerError> {
        let encode = |examples: &[Example]| -> Result<Vec<TokenisedExample>, TokenizerError> {
            examples
                .iter()
                .map(|example| {
                    let encoded = tokenizer.encode(
                        &example.text_a,
                        example.text_b.as_deref(),
                        Some(max_length),
                    )?;
                    Ok(TokenisedExample {
                        ids: encoded.ids,
                        type_ids: encoded.type_ids,
                        label: example.label,
                    })
                })
                .collect()
        };
        Ok(Self {
            labels: goal.n_labels(),
            goal,
            train: encode(train)?,
            holdout: Vec::new(),
            validation: encode(validation)?,
            validation_ids: validation.iter().map(|e| e.id.clone()).collect(),
            pad_id: tokenizer.special_tokens().pad.unwrap_or(0),
            answers: Vec::new(),
        })
    }

    /// A task without examples, for a model that only answers.
    pub fn without_examples(goal: Goal) -> Self {
        Self {
            labels: goal.n_labels(),
            goal,
            train: Vec::new(),
            holdout: Vec::new(),
            validation: Vec::new(),
            validation_ids: Vec::new(),
            pad_id: 0,
            answers: Vec::new(),
        }
    }

    /// The same task with the last `share` of the training examples kept out of training.
    #[must_use]
    pub fn holding_out(&self, share: f64) -> Self {
        let mut task = self.clone();
        let kept = task.train.len() - (share * task.train.len() as f64).round() as usize;
        task.holdout = task.train.split_off(kept.max(1).min(task.train.len()));
        task
    }

    /// Name of the metric that picks the best checkpoint.
    pub fn selection_metric(&self) -> &'static str {
        self.goal.selection.name()
    }

    /// That metric in `metrics`; minus infinity where it is absent.
    pub fn score(&self, metrics: &Metrics) -> f64 {
        let found = match self.goal.selection {
            Metric::Accuracy => metrics.accuracy,
            other => metrics.standard.get(other.name()).copied(),
        };
        found.unwrap_or(f64::NEG_INFINITY)
    }
}
