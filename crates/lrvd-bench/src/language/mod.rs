//! A language model on a user's own texts: train, save, load, measure, continue.
//!
//! | File | What is in it |
//! |---|---|
//! | `rows`, `encode` | columns and rows; rows as tokens with what is learnt of them, and batches |
//! | `data` | the rows of a user's files, and a report on them before anything is trained |
//! | `settings`, `train` | training into a folder, and the folder's description |
//! | `load`, `generate` | a saved model: perplexity, accuracy, calibration; new texts |
//!
//! The likelihood is averaged over the tokens of completions, or of what the assistant says in a conversation; a prompt
//! is read and not learnt.

mod data;
mod encode;
mod generate;
mod load;
mod rows;
mod settings;
mod train;

pub use data::{
    LanguageReport, LanguageRows, LanguageSource, LanguageSplitReport, MarkedText, check_language,
};
pub use generate::{Continuation, ContinuedToken, Generation, NEW_TOKENS};
pub use load::{LanguageEvaluation, LanguageLoadOptions, SavedLanguageModel};
pub use lrvd_models::chat::{Message, Role};
pub use rows::{Content, LanguageColumns, NamedColumns, TextRow, read_texts};
pub use settings::{LANGUAGE_FILE, LanguageInfo, LanguageOptions, LanguageSettings};
pub(crate) use train::{AtCheckpoint, Rebuilt, rebuild};
pub use train::{LanguageOutcome, train_language};
