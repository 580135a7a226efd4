//! A language model on a user's own texts: train, save, load, measure, continue.
//!
//! | File | What is in it |
//! |---|---|
//! | `encode`, `data` | rows as tokens with what is learnt of them; both splits, and batches |
//! | `settings`, `train` | training into a folder, and the folder's description |
//! | `load`, `generate` | a saved model: perplexity, accuracy, calibration; new texts |
//!
//! The likelihood is averaged over the tokens of completions, or of what the assistant says in a conversation; a prompt
//! is read and not learnt.

mod data;
mod encode;
mod generate;
mod load;
mod settings;
mod train;

pub(crate) use encode::{EncodedText, LanguageReader};
pub use generate::{Continuation, ContinuedToken, Generation, NEW_TOKENS};
pub use load::{LanguageEvaluation, LanguageLoadOptions, SavedLanguageModel};
pub use lrvd_models::chat::{Message, Role};
pub use settings::{LANGUAGE_FILE, LanguageInfo, LanguageOptions, LanguageSettings};
pub(crate) use train::{AtCheckpoint, Rebuilt, rebuild};
pub use train::{LanguageOutcome, train_language};
