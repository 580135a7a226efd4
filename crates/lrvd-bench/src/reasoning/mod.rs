//! Six sets of questions with a few possible answers: from files to token ids.
//!
//! | File | Holds |
//! |---|---|
//! | `set` | [`ReasoningSet`] and its table; [`ChoiceItem`], which every reader returns |
//! | `read` | the authors' JSONL layouts and the public hub's columns |
//! | `locate` | which files of a directory serve a set; counts, hashes and notes for the record |
//! | `prompt` | [`PromptSet`]: how a question becomes a text, and which words answer it |
//! | `encode` | prompts as token ids of a limited length; which token stands for which label |
//! | `task` | [`ReasoningTask`]: both splits as the model sees them; [`OwnQuestions`]: a user's questions |
//!
//! A bad row is an error that names file, line and field; no row is skipped. Items that a prompt set does not use are
//! counted and noted.

mod encode;
mod locate;
mod prompt;
mod read;
mod set;
mod task;
#[cfg(test)]
mod tests;

pub use crate::settings::PromptSet;
pub use encode::{
    AnswerToken, CutCounts, EncodeConfig, EncodedItems, InputForm, LLAMA_2_LABELS, PromptEncoder,
    answer_tokens, check_known, require_single,
};
pub use locate::load;
pub(crate) use locate::load_first;
pub use read::read_items;
pub use set::{
    Choice, ChoiceItem, FileNames, LETTERS, Layout, LocalDev, ReasoningData, ReasoningSet, SetSpec,
};
pub use task::{OwnQuestions, QuestionForm, ReasoningTask};
