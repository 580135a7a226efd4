//! A set as the model sees it: token ids and classes of both splits, and the tokens that answer.

use anyhow::bail;
use lrvd_models::tokenizer::TextTokenizer;

use super::answer::{AnswerToken, answer_tokens, split_labels};
use super::encode::{CutCounts, EncodeConfig, EncodedItems, InputForm, PromptEncoder};
use super::{PromptSet, ReasoningData, ReasoningSet};
use crate::data::batch::TokenisedExample;
use crate::data::{PreparedTask, SplitName};
use crate::error::Result;
use crate::task::{Goal, Metric};
use crate::text::quoted;

/// Tokenised splits of one set.
///
/// Batches are padded on the right: a decoder's with the beginning-of-text token, an encoder's with its padding
/// token. A causal model reads its answer at each row's last token, which never sees what stands behind it.
#[derive(Clone, Debug, PartialEq)]
pub struct ReasoningTask {
    pub set: ReasoningSet,
    pub config: EncodeConfig,
    pub classes: usize,
    /// The words that stand for the classes, in class order.
    pub labels: Vec<String>,
    /// Their tokens, for a decoder; empty for an encoder.
    pub answers: Vec<AnswerToken>,
    pub train: Vec<TokenisedExample>,
    pub validation: Vec<TokenisedExample>,
    pub validation_ids: Vec<String>,
    pub pad_id: u32,
    pub train_cut: CutCounts,
    pub validation_cut: CutCounts,
    /// What a reader of the results must know, one sentence each.
    pub notes: Vec<String>,
}

impl ReasoningTask {
    /// The task as training and evaluation take it.
    ///
    /// Batches are padded on the right whatever the model: a causal model reads its answer at each
    /// row's last token, which never sees what stands behind it.
    pub fn prepared(&self) -> PreparedTask {
        PreparedTask {
            labels: self.classes,
            train: self.train.clone(),
            validation: self.validation.clone(),
            validation_ids: self.validation_ids.clone(),
            pad_id: self.pad_id,
            answers: self.answers.iter().map(|answer| answer.id).collect(),
            ..PreparedTask::without_examples(self.goal())
        }
    }

    pub fn new(
        data: &ReasoningData,
        tokenizer: &TextTokenizer,
        config: EncodeConfig,
    ) -> Result<Self> {
        let set = data.set;
        let labels = config.prompt.labels(set);
        let mut notes = data.notes.clone();
        let answers = match config.form {
            InputForm::Decoder => answer_tokens(tokenizer, set, config.prompt)?,
            InputForm::Encoder => Vec::new(),
        };
        notes.extend(split_labels(&answers));
        let encoder = PromptEncoder::new(tokenizer, config)?;
        let mut split = |name: SplitName, items| {
            let encoded = encoder.encode(set, items, labels.len())?;
            notes.extend(notes_on(&encoded, &name.to_string(), config));
            not_empty(encoded, set, name, config.prompt)
        };
        let train = split(SplitName::Train, &data.train.examples)?;
        let validation = split(SplitName::Validation, &data.validation.examples)?;
        Ok(Self {
            set,
            config,
            classes: labels.len(),
            labels: labels.iter().map(ToString::to_string).collect(),
            answers,
            train: train.examples,
            validation: validation.examples,
            validation_ids: validation.ids,
            pad_id: encoder.pad_id()?,
            train_cut: train.cut,
            validation_cut: validation.cut,
            notes,
        })
    }

    /// The validation items of another set, to be answered with the labels of this one: what a model of this task is
    /// shown from another distribution. Items with more choices than labels are left out and counted.
    ///
    /// To score the other set with *its* labels instead (five letters for a model trained on four), see
    /// [`with_letters_of`](Self::with_letters_of).
    pub fn encode_for(
        &self,
        other: &ReasoningData,
        tokenizer: &TextTokenizer,
    ) -> Result<EncodedItems> {
        let prompt = self.config.prompt;
        let theirs = prompt.labels(other.set);
        if self.labels.iter().zip(theirs).any(|(own, other)| own != other) {
            bail!(
                "a model of `{set}` answers with {}, which are no labels of `{other}` ({})",
                quoted(&self.labels),
                quoted(theirs),
                set = self.set.name(),
                other = other.set.name()
            );
        }
        let encoder = PromptEncoder::new(tokenizer, self.config)?;
        let encoded = encoder.encode(other.set, &other.validation.examples, self.classes)?;
        not_empty(encoded, other.set, SplitName::Validation, prompt)
    }

    /// The validation items of another set with the labels of that set: what a language model of this task is asked
    /// with other answer tokens. `None` where the labels are the same, or where answers are no tokens.
    pub fn with_letters_of(
        &self,
        other: &ReasoningData,
        tokenizer: &TextTokenizer,
    ) -> Result<Option<PreparedTask>> {
        let theirs = self.config.prompt.labels(other.set);
        if self.config.form == InputForm::Encoder || self.labels == theirs {
            return Ok(None);
        }
        let task = Self::new(other, tokenizer, self.config)?.prepared();
        Ok(Some(PreparedTask { train: Vec::new(), ..task }))
    }

    /// What a reader of the results must know of prompts of `from`, encoded as this task's are.
    pub(crate) fn notes_on(&self, encoded: &EncodedItems, from: &str) -> Vec<String> {
        notes_on(encoded, from, self.config)
    }

    pub fn goal(&self) -> Goal {
        Goal {
            name: self.set.name().to_owned(),
            classes: self.labels.clone(),
            standard_metrics: Vec::new(),
            selection: Metric::Accuracy,
        }
    }
}

fn not_empty(
    encoded: EncodedItems,
    set: ReasoningSet,
    split: SplitName,
    prompt: PromptSet,
) -> Result<EncodedItems> {
    if encoded.examples.is_empty() {
        bail!(
            "the {split} split of `{set}` has no item for prompt set `{prompt}`",
            set = set.name(),
            prompt = prompt.name()
        );
    }
    Ok(encoded)
}

fn notes_on(encoded: &EncodedItems, split: &str, config: EncodeConfig) -> Vec<String> {
    let EncodeConfig { prompt, form, max_length } = config;
    let CutCounts { right, body, choices } = encoded.cut;
    let rows = encoded.examples.len();
    let lost = match form {
        InputForm::Decoder => "their answer cue, wholly or in part",
        InputForm::Encoder => "their end",
    };
    let cuts = [
        (right, lost),
        (body, "the end of their passage or question"),
        (choices, "their whole passage or question and the end of choices"),
    ];
    let mut notes: Vec<String> = cuts
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, lost)| {
            format!("{split}: {count} of {rows} prompts lost {lost} at {max_length} tokens")
        })
        .collect();
    if encoded.left_out > 0 {
        let count = encoded.left_out;
        notes.push(format!(
            "{split}: {count} items are left out, as prompt set `{prompt}` wants it"
        ));
    }
    notes
}
