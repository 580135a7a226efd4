//! A language model on a user's own texts: train, save, load, measure, continue.
//!
//! | File | What is in it |
//! |---|---|
//! | `columns`, `rows` | which columns hold what; prompts, completions and conversations |
//! | `encode`, `examples` | rows as tokens with what is learnt of them; batches |
//! | `data` | the rows of a user's files, those measured on, those held out |
//! | `check` | what there is to know of the data before anything is trained |
//! | `settings`, `train`, `watch` | training into a folder |
//! | `measure` | perplexity, accuracy and calibration of the next token |
//! | `info`, `load` | adapter folder format: write and read |
//! | `generate` | using a saved model |
//!
//! The likelihood is averaged over the tokens of completions, or of what the assistant says in a conversation; a prompt
//! is read and not learnt.

mod check;
mod columns;
mod data;
mod encode;
mod examples;
mod generate;
mod info;
mod load;
mod measure;
mod rows;
mod settings;
mod train;
mod watch;

pub use check::{LanguageReport, LanguageSplitReport, MarkedText, check_language};
pub use columns::{LanguageColumns, NamedColumns};
pub use data::{LanguageRows, LanguageSource};
pub use generate::{Continuation, ContinuedToken, Generation, NEW_TOKENS};
pub use info::{LANGUAGE_FILE, LanguageInfo};
pub use load::{LanguageLoadOptions, SavedLanguageModel};
pub use lrvd_models::chat::{Message, Role};
pub use measure::LanguageEvaluation;
pub use rows::{Content, TextRow, read_texts};
pub use settings::{LanguageOptions, LanguageSettings};
pub(crate) use train::{AtCheckpoint, Rebuilt, rebuild};
pub use train::{LanguageOutcome, train_language};
