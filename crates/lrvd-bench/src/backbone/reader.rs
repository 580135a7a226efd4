//! How texts become what a model of either kind reads.

use lrvd_models::tokenizer::TextTokenizer;

use crate::data::batch::TokenisedExample;
use crate::data::{Example, Label, PreparedTask, SplitName, Texts, WordedTexts};
use crate::error::{Error, Result};
use crate::reasoning::OwnQuestions;
use crate::task::Goal;

#[derive(Debug)]
pub(crate) enum TextReader<'a> {
    /// For an encoder: `[CLS] a [SEP] b [SEP]`, cut longest first.
    Segments { tokenizer: &'a TextTokenizer, max_length: usize },
    /// For a language model: a question in words.
    Worded(WordedTexts<'a>),
    /// For either: a question with its choices, which go by letters.
    Questions(OwnQuestions<'a>),
}

impl TextReader<'_> {
    /// One example, and whether its question had to be cut; the ends of segments are not counted.
    pub(crate) fn encode(
        &self,
        texts: Texts<'_>,
        label: Label,
    ) -> Result<(TokenisedExample, bool)> {
        let Texts { text, pair, .. } = texts;
        let choices = None;
        Ok(match self {
            Self::Segments { tokenizer, max_length } => {
                let encoded = tokenizer.encode(text, pair, Some(*max_length))?;
                let (ids, type_ids) = (encoded.ids, encoded.type_ids);
                (TokenisedExample { ids, type_ids, choices, label }, false)
            }
            Self::Worded(worded) => {
                let (ids, cut) = worded.encode(text, pair)?;
                let type_ids = vec![0; ids.len()];
                (TokenisedExample { ids, type_ids, choices, label }, cut)
            }
            Self::Questions(questions) => questions.encode(texts, label)?,
        })
    }

    pub(crate) fn measure(&self, texts: Texts<'_>) -> Result<(usize, bool)> {
        let Texts { text, pair, .. } = texts;
        let (whole, most) = match self {
            Self::Segments { tokenizer, max_length } => {
                (tokenizer.encode(text, pair, None)?.ids.len(), *max_length)
            }
            Self::Worded(worded) => (worded.whole(text, pair)?.len(), worded.max_length()),
            Self::Questions(questions) => (questions.measure(texts)?, questions.max_length()),
        };
        Ok((whole, whole > most))
    }

    pub(crate) fn pad_id(&self) -> u32 {
        match self {
            Self::Segments { tokenizer, .. } => tokenizer.special_tokens().pad.unwrap_or(0),
            Self::Worded(worded) => worded.pad_id,
            Self::Questions(questions) => questions.pad_id,
        }
    }

    /// Encodes examples of any origin; `train` may be empty where nothing is trained.
    pub(crate) fn prepare(
        &self,
        goal: Goal,
        train: &[Example],
        validation: &[Example],
    ) -> Result<PreparedTask> {
        let (answers, note) = match self {
            Self::Segments { .. } => (Vec::new(), None),
            Self::Worded(worded) => (worded.answers.clone(), None),
            Self::Questions(questions) => (questions.answers(), questions.note()),
        };
        let mut notes = Vec::from_iter(note);
        let mut encode = |split: SplitName, examples: &[Example]| {
            let mut encoded = Vec::with_capacity(examples.len());
            let mut n_cut = 0;
            for example in examples {
                let (example, cut) = self.encode(example.texts(), example.label)?;
                encoded.push(example);
                n_cut += usize::from(cut);
            }
            if n_cut > 0 {
                let rows = examples.len();
                notes.push(format!("{split}: {n_cut} of {rows} prompts lost the end of a text"));
            }
            Ok::<_, Error>(encoded)
        };
        let (train, held) =
            (encode(SplitName::Train, train)?, encode(SplitName::Validation, validation)?);
        Ok(PreparedTask {
            train,
            validation: held,
            validation_ids: validation.iter().map(|e| e.id.clone()).collect(),
            pad_id: self.pad_id(),
            answers,
            notes,
            ..PreparedTask::without_examples(goal)
        })
    }
}
