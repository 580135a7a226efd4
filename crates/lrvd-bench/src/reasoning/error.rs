//! What can be wrong with a reasoning set, its labels or its prompts.

use thiserror::Error;

use crate::data::{DataError, FrameError, Place, TableError};
use crate::io::IoError;
use crate::text::quoted;

/// Why a reasoning set cannot be read, generated or put into prompts.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReasoningError {
    /// Folders and their marks.
    #[error(transparent)]
    Data(#[from] DataError),
    /// Files that cannot be written.
    #[error(transparent)]
    Io(#[from] IoError),
    /// Files, and rows that hold no question at all.
    #[error(transparent)]
    Table(#[from] TableError),
    /// The tokenizer refused.
    #[error(transparent)]
    Tokenizer(#[from] lrvd_models::Error),
    /// A row has too few or too many choices.
    #[error("{place}, column `{column}`: {found} choices where {} are allowed", span(*.fewest, *.most))]
    ChoiceCount {
        /// File and line.
        place: Place,
        /// Column or key.
        column: &'static str,
        /// Number of choices.
        found: usize,
        /// Fewest allowed.
        fewest: usize,
        /// Most allowed.
        most: usize,
    },
    /// Two choices of a row have the same label.
    #[error("{place}, column `{column}`: two choices are labelled `{label}`")]
    RepeatedLabel {
        /// File and line.
        place: Place,
        /// Column or key.
        column: &'static str,
        /// The label.
        label: String,
    },
    /// The labels of a row are neither letters nor digits from the first on.
    #[error(
        "{place}, column `{column}`: choices labelled {}, wanted `A`, `B`, … or `1`, `2`, … in order",
        quoted(.found)
    )]
    ChoiceLabels {
        /// File and line.
        place: Place,
        /// Column or key.
        column: &'static str,
        /// The labels as found.
        found: Vec<String>,
    },
    /// The lists of texts and of labels differ in length.
    #[error("{place}, column `{column}`: {texts} texts of choices, but {labels} labels")]
    ChoiceLists {
        /// File and line.
        place: Place,
        /// Column or key.
        column: &'static str,
        /// Number of texts.
        texts: usize,
        /// Number of labels.
        labels: usize,
    },
    /// The answer is none of the choices.
    #[error("{place}, column `{column}`: answer `{found}`, wanted one of {}", quoted(.wanted))]
    Answer {
        /// File and line.
        place: Place,
        /// Column or key.
        column: &'static str,
        /// The answer as found.
        found: String,
        /// The labels of the row's choices.
        wanted: Vec<String>,
    },
    /// A sentence has no blank to fill.
    #[error("{place}, column `{column}`: no blank `_` in the sentence")]
    NoBlank {
        /// File and line.
        place: Place,
        /// Column or key.
        column: &'static str,
    },
    /// No item is left to train on or to measure on.
    #[error("the {split} split of `{set}` has no item for prompt set `{prompt}`")]
    EmptySplit {
        /// Name of the set.
        set: &'static str,
        /// Which split.
        split: crate::data::SplitName,
        /// Name of the prompt set.
        prompt: &'static str,
    },
    /// A label has no token.
    #[error("wrong label token: `{label}` has no distinct token in tokenizer `{tokenizer}`")]
    LabelWithoutToken {
        /// The label.
        label: String,
        /// The tokenizer's file.
        tokenizer: String,
    },
    /// Two labels would be told apart by one and the same token.
    #[error(
        "wrong label token: labels `{first}` and `{second}` are both `{piece}` (id {id}) in tokenizer \
         `{tokenizer}` under prompt set `{prompt}`; use another prompt set or tokenizer"
    )]
    LabelCollision {
        /// A label.
        first: String,
        /// The other label.
        second: String,
        /// The token as the vocabulary writes it.
        piece: String,
        /// Its id.
        id: u32,
        /// The tokenizer's file.
        tokenizer: String,
        /// Name of the prompt set.
        prompt: &'static str,
    },
    /// The token of a label is the unknown one or another special one.
    #[error(
        "wrong label token: `{label}` becomes the special token `{piece}` (id {id}) of tokenizer `{tokenizer}`"
    )]
    LabelSpecial {
        /// The label.
        label: String,
        /// The token as the vocabulary writes it.
        piece: String,
        /// Its id.
        id: u32,
        /// The tokenizer's file.
        tokenizer: String,
    },
    /// A label takes several tokens where one is required.
    #[error(
        "wrong label token: `{label}` is {pieces} tokens in tokenizer `{tokenizer}`, wanted a single one"
    )]
    LabelSplit {
        /// The label.
        label: String,
        /// Number of its tokens.
        pieces: usize,
        /// The tokenizer's file.
        tokenizer: String,
    },
    /// A label has another id than expected: the tokenizer is not the model's.
    #[error(
        "wrong label token: `{label}` has id {found} in tokenizer `{tokenizer}`, wanted {wanted}"
    )]
    LabelId {
        /// The label.
        label: String,
        /// Id that was found.
        found: u32,
        /// Id that was expected.
        wanted: u32,
        /// The tokenizer's file.
        tokenizer: String,
    },
    /// The labels of another set are not those of this one.
    #[error(
        "a model of `{set}` answers with {}, which are no labels of `{other}` ({})",
        quoted(.labels), quoted(.other_labels)
    )]
    OtherLabels {
        /// Name of the set that the model was trained on.
        set: &'static str,
        /// Its labels.
        labels: Vec<String>,
        /// Name of the other set.
        other: &'static str,
        /// Its labels.
        other_labels: Vec<&'static str>,
    },
    /// The tokenizer lacks a special token that the prompts need.
    #[error("tokenizer `{tokenizer}` has no {role} token, which prompts for a decoder need")]
    NoSpecialToken {
        /// `beginning-of-text` or `end-of-text`.
        role: &'static str,
        /// The tokenizer's file.
        tokenizer: String,
    },
    /// What the tokenizer puts around every text is not known.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// A prompt does not fit even after everything that may be cut is gone.
    #[error(
        "item `{id}`: the prompt takes {found} tokens without what may be cut, but the limit is {max_length}"
    )]
    PromptLength {
        /// Id of the item.
        id: String,
        /// Fewest tokens.
        found: usize,
        /// The limit.
        max_length: usize,
    },
}

fn span(fewest: usize, most: usize) -> String {
    if fewest == most { most.to_string() } else { format!("{fewest} to {most}") }
}
