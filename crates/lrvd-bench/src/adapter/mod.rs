//! Trained adapters: what is in their folder, where they are found, what they answer.
//!
//! | File | What is in it |
//! |---|---|
//! | `description` | `lrvd_classifier.json` and `lrvd_language.json` |
//! | `hashes` | what may not have changed since an adapter was saved |
//! | `files` | all files of an adapter folder: PEFT's, the posterior, the description |
//! | `open` | the adapter in a PEFT folder, the output of a run, or a checkpoint; its base model |
//! | `saved` | a base model with an adapter on it, of either kind |
//! | `classifier`, `evaluate` | of classes and scores: predictions, metrics, when no answer is given |
//! | `ood` | how unlike the texts of training an input is |
//! | `language`, `generate` | of texts: perplexity, accuracy, calibration; new texts |

mod classifier;
mod description;
mod evaluate;
mod files;
mod generate;
mod hashes;
mod language;
mod ood;
mod open;
mod saved;

pub use classifier::{Prediction, SavedClassifier};
pub use description::{Abstention, BaseInfo, ClassifierInfo, Description, LanguageInfo, RunInfo};
pub use evaluate::{Evaluation, Inputs, evaluate, fit_abstention, read_inputs, stream_inputs};
pub use files::AdapterFiles;
pub(crate) use files::{CARD_FILE, keep};
pub use generate::{Continuation, ContinuedToken, Generation, NEW_TOKENS};
pub use hashes::FileHashes;
pub use language::SavedLanguageModel;
pub use ood::{Oddness, OodDetector, OodReport, OodRow, OodScore, fit_ood};
pub use open::{Adapter, OpenOptions, PlaceKind};
pub(crate) use saved::no_head;

const PEFT_CONFIG: &str = "adapter_config.json";
