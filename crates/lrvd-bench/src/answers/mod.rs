//! Answers of a model: their space, the part of the model at which they are read, and the language of typed questions.
//!
//! The space is decided once, by data and architecture, before a row is encoded. It is stored in the settings of a run and in the
//! description of its adapter, and everything later matches on it.

mod question;

use lrvd_burn::train::Prediction;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use question::{
    Invalid, MOST_LEVELS, MOST_OPTIONS, Question, QuestionKind, QuestionOption, SIDES, questions,
    rendered, state,
};
pub(crate) use question::{targets, worded};

/// The letters that options go by, in their order.
pub const LETTERS: &[&str; 26] = &[
    "A", "B", "C", "D", "E", "F", "G", "H", "I", "J", "K", "L", "M", "N", "O", "P", "Q", "R", "S",
    "T", "U", "V", "W", "X", "Y", "Z",
];

/// Space of a model's answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum AnswerSpace {
    /// One of these classes, in id order.
    Classes { names: Vec<String> },
    /// Labels that are there or not, independently of each other, in id order.
    Labels { names: Vec<String> },
    /// A real number.
    Score,
    /// One of the options that a row has, which go by letters, and by numbers from 27 on.
    Choice { max_options: usize },
    /// An option of the one typed question that the model answers: an encoder reads the state alone.
    Question { question: Question },
    /// An option of any typed question. Rows that have none are asked the `usual` one.
    Questions {
        max_options: usize,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        usual: Option<Question>,
    },
    /// The next tokens of a text.
    Tokens,
}

impl AnswerSpace {
    /// Names of the classes in id order; none of numbers and texts.
    pub fn names(&self) -> Vec<String> {
        match self {
            Self::Classes { names } | Self::Labels { names } => names.clone(),
            Self::Choice { max_options } | Self::Questions { max_options, .. } => {
                let letters = LETTERS.iter().map(ToString::to_string);
                let numbers = (LETTERS.len() + 1..).map(|number| number.to_string());
                letters.chain(numbers).take(*max_options).collect()
            }
            Self::Question { question } => question.names(),
            Self::Score | Self::Tokens => Vec::new(),
        }
    }

    /// Number of outputs: of classes, and 1 of numbers and texts.
    pub fn width(&self) -> usize {
        match self {
            Self::Classes { names } | Self::Labels { names } => names.len().max(1),
            Self::Choice { max_options } | Self::Questions { max_options, .. } => *max_options,
            Self::Question { question } => question.options.len(),
            Self::Score | Self::Tokens => 1,
        }
    }

    /// `logits` as those of one class among several: of labels two for each, its presence and its absence.
    pub(crate) fn class_logits(&self, logits: Prediction) -> Prediction {
        match self {
            Self::Labels { .. } => logits.per_label(),
            _ => logits,
        }
    }
}

/// Part of a model at which its answer is read.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Readout {
    /// A linear layer that training adds.
    #[schemars(skip)]
    Head,
    /// Logits of the tokens of words: one word for each class, or every next token.
    #[schemars(skip)]
    Words,
    /// At the logits of letters, which a list in the prompt gives to the options: 2 to 26 of them.
    Letters,
    /// At the texts of the options behind the prompt, by the mean log-probability of their tokens: 2 to 255 options.
    #[default]
    Options,
}

impl Readout {
    /// Readouts of a language model's answer to a question with options.
    pub const OF_OPTIONS: [Self; 2] = [Self::Letters, Self::Options];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Head => "head",
            Self::Words => "words",
            Self::Letters => "letters",
            Self::Options => "options",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_have_one_form_on_disk() {
        let question = Question::choice("Is it kind?", &["no", "yes"].map(str::to_owned)).unwrap();
        let usual = Some(question.clone());
        let written = r#"{"kind":"choice","instructions":"Is it kind?","options":[{"name":"no"},{"name":"yes"}]}"#;
        for (answers, text, width) in [
            (
                AnswerSpace::Classes { names: ["a", "b", "c"].map(str::to_owned).to_vec() },
                r#"{"classes":{"names":["a","b","c"]}}"#.to_owned(),
                3,
            ),
            (
                AnswerSpace::Labels { names: ["a", "b"].map(str::to_owned).to_vec() },
                r#"{"labels":{"names":["a","b"]}}"#.to_owned(),
                2,
            ),
            (AnswerSpace::Score, "\"score\"".to_owned(), 1),
            (
                AnswerSpace::Choice { max_options: 5 },
                r#"{"choice":{"max_options":5}}"#.to_owned(),
                5,
            ),
            (
                AnswerSpace::Question { question },
                format!(r#"{{"question":{{"question":{written}}}}}"#),
                2,
            ),
            (
                AnswerSpace::Questions { max_options: 26, usual },
                format!(r#"{{"questions":{{"max_options":26,"usual":{written}}}}}"#),
                26,
            ),
            (AnswerSpace::Tokens, "\"tokens\"".to_owned(), 1),
        ] {
            assert_eq!(serde_json::to_string(&answers).unwrap(), text);
            assert_eq!(serde_json::from_str::<AnswerSpace>(&text).unwrap(), answers);
            assert_eq!(answers.width(), width);
        }
        let names = AnswerSpace::Choice { max_options: 28 }.names();
        assert_eq!((&*names[0], &*names[25], &*names[26]), ("A", "Z", "27"));
    }
}
