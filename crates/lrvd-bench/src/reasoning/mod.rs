//! Six sets of questions with a few possible answers: from files to token ids.
//!
//! | File            | Holds                                                                          |
//! |-----------------|--------------------------------------------------------------------------------|
//! | `set`           | [`ReasoningSet`] and its table: names, classes, published sizes, file names     |
//! | `item`          | [`ChoiceItem`]: what every reader returns                                      |
//! | `read`          | the authors' JSONL layouts and the public hub's columns                        |
//! | `locate`, `load`| which files of a directory serve a set; counts, hashes and notes for the record |
//! | `prompt`        | [`PromptSet`]: how a question becomes a text, and which words answer it        |
//! | `answer`        | which token stands for which label, checked when loaded                         |
//! | `encode`        | prompts as token ids of a limited length                                       |
//! | `own`           | [`OwnQuestions`]: a user's questions as the model sees them                     |
//! | `task`          | [`ReasoningTask`]: both splits as the model sees them                           |
//!
//! A bad row is an error that names file, line and field; no row is skipped. Items that a prompt set does not use are
//! counted and noted.

mod answer;
mod encode;
mod item;
mod load;
mod locate;
mod own;
mod prompt;
mod read;
mod set;
mod task;
#[cfg(test)]
mod tests;

pub use crate::settings::PromptSet;
pub use answer::{AnswerToken, LLAMA_2_LABELS, answer_tokens, check_known, require_single};
pub use encode::{CutCounts, EncodeConfig, EncodedItems, InputForm, PromptEncoder};
pub use item::{Choice, ChoiceItem, LETTERS, ReasoningData};
pub use load::load;
pub(crate) use load::load_first;
pub(crate) use locate::locate;
pub use own::{OwnQuestions, QuestionForm};
pub use read::read_items;
pub use set::{FileNames, Layout, LocalDev, ReasoningSet, SetSpec};
pub use task::ReasoningTask;
