//! Trained adapters: what is in their folder, where they are found, what they answer.
//!
//! | File | What is in it |
//! |---|---|
//! | `description` | `lrvd_classifier.json` and `lrvd_language.json` |
//! | `hashes` | what may not have changed since an adapter was saved |
//! | `open` | the files of an adapter folder; the adapter in a PEFT folder, the output of a run, or a checkpoint; its base model |
//! | `saved` | a base model with an adapter on it, of either kind; predictions of classes and scores |
//! | `evaluate` | metrics, when no answer is given |
//! | `ood` | how unlike the texts of training an input is |
//! | `language` | of texts: perplexity, accuracy, calibration; new texts |

mod description;
mod evaluate;
mod hashes;
mod language;
mod ood;
mod open;
mod saved;

pub use description::{Abstention, BaseInfo, ClassifierInfo, Description, LanguageInfo, RunInfo};
pub use evaluate::{Evaluation, Inputs, evaluate, fit_abstention, read_inputs, stream_inputs};
pub use hashes::FileHashes;
pub use language::{Continuation, ContinuedToken, Generation, NEW_TOKENS, SavedLanguageModel};
pub use ood::{Oddness, OodDetector, OodReport, OodRow, OodScore, fit_ood};
pub use open::{Adapter, AdapterFiles, OpenOptions};
pub(crate) use open::{CARD_FILE, keep};
pub(crate) use saved::no_head;
pub use saved::{Prediction, SavedClassifier};

const PEFT_CONFIG: &str = "adapter_config.json";
