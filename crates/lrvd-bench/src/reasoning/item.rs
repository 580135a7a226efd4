//! Questions with their choices, and splits of them: what readers hand on.

use serde::{Deserialize, Serialize};

use super::ReasoningSet;
use crate::data::Split;

/// The letters that choices go by, in class order.
pub const LETTERS: &[&str; 26] = &[
    "A", "B", "C", "D", "E", "F", "G", "H", "I", "J", "K", "L", "M", "N", "O", "P", "Q", "R", "S",
    "T", "U", "V", "W", "X", "Y", "Z",
];

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choice {
    /// Its label in the file: a letter or a digit, `True` or `False` for a yes/no question.
    pub label: String,
    /// Its text; for a yes/no question the label again.
    pub text: String,
}

/// One question with its possible answers, texts exactly as in the file.
///
/// # Invariants
///
/// From a reader: `answer` is an index into `choices`, and the labels of `choices` are distinct and in class order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChoiceItem {
    /// The file's own id, or the row number counted from 0.
    pub id: String,
    /// The passage that a question is about; of the six sets only that of yes/no questions has one.
    pub passage: Option<String>,
    /// The question, the sentence with a blank, or the beginning of a sentence.
    pub question: String,
    /// The possible answers; `False` before `True`.
    pub choices: Vec<Choice>,
    /// Class of the answer: its place among the choices.
    pub answer: usize,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ReasoningData {
    pub set: ReasoningSet,
    pub train: Split<ChoiceItem>,
    pub validation: Split<ChoiceItem>,
    /// What a reader of the results must know of the data, one sentence each.
    pub notes: Vec<String>,
}
