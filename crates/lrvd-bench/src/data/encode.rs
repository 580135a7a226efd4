//! Examples as token ids: segments for an encoder, prompts and answers for a language model.

use std::collections::BTreeMap;

use anyhow::bail;
use burn::tensor::{DType, Device};
use lrvd_models::tokenizer::TextTokenizer;

use super::batch::{Cut, TokenExamples, TokenisedExample};
use super::questions::{AnswerToken, Questions};
use super::split::held_out;
use super::{Example, Input, Label, SplitName, WordedTexts};
use crate::error::Result;
use crate::task::Goal;

/// Encoded examples of one split.
#[derive(Debug, Clone, PartialEq)]
pub struct Encoded {
    pub examples: Vec<TokenisedExample>,
    pub ids: Vec<String>,
    /// How many prompts lost something, by what it was.
    pub cut: BTreeMap<Cut, usize>,
    /// Questions that the prompt set does not use, or that have more choices than there are labels.
    pub left_out: usize,
}

/// How a model reads an example. Batches are padded on the right whatever the model: a causal model reads its answer at
/// each row's last token, which never sees what stands behind it.
#[derive(Debug)]
pub enum TextReader<'a> {
    /// For an encoder: `[CLS] a [SEP] b [SEP]`, cut longest first.
    Segments { tokenizer: &'a TextTokenizer, max_length: usize },
    /// For a language model: a question in words.
    Worded(WordedTexts<'a>),
    /// For either: a question with its choices, which go by letters.
    Questions(Questions<'a>),
}

impl TextReader<'_> {
    /// One example, and what its prompt lost; the ends of segments are not counted.
    pub fn encode(&self, input: &Input, label: Label) -> Result<(TokenisedExample, Cut)> {
        let pair = input.pair.as_deref();
        let ((ids, cut), choices) = match self {
            Self::Segments { tokenizer, max_length } => {
                let encoded = tokenizer.encode(&input.text, pair, Some(*max_length))?;
                let (ids, type_ids, choices) = (encoded.ids, encoded.type_ids, None);
                return Ok((
                    TokenisedExample { ids, type_ids, choices, answer: label.into() },
                    Cut::Nothing,
                ));
            }
            Self::Worded(worded) => (worded.encode(&input.text, pair)?, None),
            Self::Questions(questions) => {
                let choices = questions.own.then_some(input.choices.len());
                (questions.encode(input)?, choices)
            }
        };
        let type_ids = vec![0; ids.len()];
        Ok((TokenisedExample { ids, type_ids, choices, answer: label.into() }, cut))
    }

    /// Tokens before anything is cut, and whether something will be.
    pub(crate) fn measure(&self, input: &Input) -> Result<(usize, bool)> {
        let pair = input.pair.as_deref();
        let whole = match self {
            Self::Segments { tokenizer, .. } => {
                tokenizer.encode(&input.text, pair, None)?.ids.len()
            }
            Self::Worded(worded) => worded.whole(&input.text, pair)?.len(),
            Self::Questions(questions) => questions.measure(input)?,
        };
        Ok((whole, whole > self.max_length()))
    }

    fn max_length(&self) -> usize {
        match self {
            Self::Segments { max_length, .. } => *max_length,
            Self::Worded(worded) => worded.max_length,
            Self::Questions(questions) => questions.max_length,
        }
    }

    pub(crate) fn pad_id(&self) -> u32 {
        match self {
            Self::Segments { tokenizer, .. } => tokenizer.special_tokens().pad.unwrap_or(0),
            Self::Worded(worded) => worded.pad_id,
            Self::Questions(questions) => questions.pad_id,
        }
    }

    /// Tokens that stand for the classes, for a language model.
    fn answers(&self) -> Vec<u32> {
        match self {
            Self::Segments { .. } => Vec::new(),
            Self::Worded(worded) => worded.answers.clone(),
            Self::Questions(questions) => questions.answers.iter().map(|token| token.id).collect(),
        }
    }

    /// The examples of one split, in their order.
    pub fn encode_all(&self, split: SplitName, examples: &[Example]) -> Result<Encoded> {
        let (mut encoded, mut ids) = (Vec::with_capacity(examples.len()), Vec::new());
        let (mut cut, mut left_out) = (BTreeMap::new(), 0);
        for Example { id, input, label, .. } in examples {
            if matches!(self, Self::Questions(questions) if questions.leaves_out(input)) {
                left_out += 1;
                continue;
            }
            let (example, lost) = self.encode(input, *label)?;
            if lost != Cut::Nothing {
                *cut.entry(lost).or_default() += 1;
            }
            encoded.push(example);
            ids.push(id.clone());
        }
        match self {
            Self::Questions(questions) if encoded.is_empty() && left_out > 0 => {
                let (task, prompt) = (questions.form.task, questions.form.prompt);
                bail!("the {split} split of `{task}` has no item for prompt set `{prompt}`");
            }
            _ => Ok(Encoded { examples: encoded, ids, cut, left_out }),
        }
    }

    /// What a reader of the results must know of examples from `from`, one sentence each.
    pub(crate) fn notes(&self, encoded: &Encoded, from: &str) -> Vec<String> {
        let (rows, length) = (encoded.examples.len(), self.max_length());
        let note = |(&cut, count): (&Cut, &usize)| match self {
            Self::Questions(questions) => {
                let lost = questions.lost(cut);
                format!("{from}: {count} of {rows} prompts lost {lost} at {length} tokens")
            }
            _ => format!("{from}: {count} of {rows} prompts lost the end of a text"),
        };
        let mut notes: Vec<String> = encoded.cut.iter().map(note).collect();
        if let (Self::Questions(questions), 1..) = (self, encoded.left_out) {
            let (count, prompt) = (encoded.left_out, questions.form.prompt);
            notes.push(format!(
                "{from}: {count} items are left out, as prompt set `{prompt}` wants it"
            ));
        }
        notes
    }

    /// Encodes examples of any origin; `train` may be empty where nothing is trained.
    pub fn prepare(
        &self,
        goal: Goal,
        train: &[Example],
        validation: &[Example],
    ) -> Result<PreparedTask> {
        let mut notes = match self {
            Self::Questions(questions) => Vec::from_iter(split_labels(&questions.answers)),
            _ => Vec::new(),
        };
        let mut encode = |split: SplitName, examples| {
            let encoded = self.encode_all(split, examples)?;
            notes.extend(self.notes(&encoded, &split.to_string()));
            Ok::<_, crate::Error>(encoded)
        };
        let train = encode(SplitName::Train, train)?.examples;
        let validation = encode(SplitName::Validation, validation)?;
        Ok(PreparedTask {
            train,
            validation: validation.examples,
            validation_ids: validation.ids,
            pad_id: self.pad_id(),
            answers: self.answers(),
            notes,
            ..PreparedTask::without_examples(goal)
        })
    }
}

/// Labels for which a part of their tokens has to serve.
fn split_labels(answers: &[AnswerToken]) -> Option<String> {
    let split = answers.iter().filter(|answer| answer.n_pieces > 1);
    let each: Vec<String> = split
        .map(|a| format!("`{}` by `{}` (one of its {} tokens)", a.label, a.piece, a.n_pieces))
        .collect();
    (!each.is_empty())
        .then(|| format!("labels are distinguished by parts of them: {}", each.join(", ")))
}

#[derive(Clone, Debug)]
pub struct PreparedTask {
    pub goal: Goal,
    pub labels: usize,
    pub train: Vec<TokenisedExample>,
    /// Examples kept out of training, for methods that fit something afterwards.
    pub holdout: Vec<TokenisedExample>,
    pub validation: Vec<TokenisedExample>,
    pub validation_ids: Vec<String>,
    pub pad_id: u32,
    /// Tokens that stand for the classes, for a language model; empty for an encoder.
    pub answers: Vec<u32>,
    /// What a reader of the results must know of the encoding, one sentence each.
    pub notes: Vec<String>,
}

impl PreparedTask {
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
            notes: Vec::new(),
        }
    }

    /// `examples` of this task as its model reads them on `device`.
    pub(crate) fn examples<'a>(
        &self,
        examples: &'a [TokenisedExample],
        device: &'a Device,
    ) -> TokenExamples<'a> {
        let Self { pad_id, labels, .. } = *self;
        TokenExamples { examples, pad_id, labels, smoothing: 0.0, device, dtype: DType::F32 }
    }

    /// The same task with the last `share` of the training examples kept out of training.
    #[must_use]
    pub fn holding_out(&self, share: f64) -> Self {
        let mut task = self.clone();
        let kept = task.train.len() - (share * task.train.len() as f64).round() as usize;
        task.holdout = task.train.split_off(kept.max(1).min(task.train.len()));
        task
    }

    /// The same task with `share` of the training examples kept out of training, drawn by `seed`; both parts stay in
    /// their order.
    #[must_use]
    pub fn holding_out_drawn(&self, share: f64, seed: u64) -> Self {
        let (train, holdout) = held_out(self.train.clone(), share, seed);
        Self { train, holdout, ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_held_out_are_drawn_by_the_seed_and_go_nowhere_else() {
        let one = |i: u32| TokenisedExample {
            ids: vec![i],
            type_ids: vec![0],
            choices: None,
            answer: Label::Class(0).into(),
        };
        let goal = Goal::classification("tone", ["a", "b"].map(String::from).to_vec());
        let task = PreparedTask {
            train: (0..40).map(one).collect(),
            ..PreparedTask::without_examples(goal)
        };
        let ids = |rows: &[TokenisedExample]| rows.iter().map(|e| e.ids[0]).collect::<Vec<_>>();
        let (first, other) = (task.holding_out_drawn(0.1, 1), task.holding_out_drawn(0.1, 2));
        assert_eq!((first.train.len(), first.holdout.len()), (36, 4));
        assert_ne!(ids(&first.holdout), ids(&other.holdout));
        assert_eq!(ids(&first.holdout), ids(&task.holding_out_drawn(0.1, 1).holdout));
        let mut all = [ids(&first.train), ids(&first.holdout)].concat();
        assert!(ids(&first.train).is_sorted() && ids(&first.holdout).is_sorted());
        all.sort_unstable();
        assert_eq!(all, ids(&task.train));
        assert_eq!(task.holding_out_drawn(1.0, 1).train.len(), 1);
    }
}
