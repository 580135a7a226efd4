//! A user's texts for a language model, as tokens.
//!
//! | File | What is in it |
//! |---|---|
//! | `encode`, `data` | rows as tokens with what is learnt of them; both splits, and batches |
//!
//! The likelihood is averaged over the tokens of completions, or of what the assistant says in a conversation; a prompt
//! is read and not learnt.

mod data;
mod encode;

pub(crate) use data::{LanguageExample, LanguageExamples, LanguageTask, encoded};
pub(crate) use encode::{EncodedText, LanguageReader};
pub use lrvd_models::chat::{Message, Role};
