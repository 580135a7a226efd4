//! A classifier from a user's own data: train, save, load, evaluate, predict.
//!
//! | File | What is in it |
//! |---|---|
//! | `train` | training into a folder |
//! | `info`, `load` | adapter folder format; the adapter in a folder, a run or a checkpoint |
//! | `evaluate` | metrics and predictions of a saved classifier, and when it gives no answer |
//! | `export`, `merge` | for other programs: PEFT with its model card, llama.cpp, a whole model |
//! | `inspect` | ranks, statistics and sizes; whether a checkpoint is whole |

mod evaluate;
mod export;
mod info;
mod inspect;
mod load;
mod merge;
mod train;

pub use evaluate::{
    Evaluation, Inputs, Prediction, evaluate, fit_abstention, read_inputs, stream_inputs,
};
pub use export::{GgufExport, PeftExport, export_gguf, export_peft};
pub use info::{
    Abstention, AdapterInfo, AdapterSource, ClassifierInfo, INFO_FILE, SavedAdapter, SourceKind,
};
pub use inspect::{
    AdapterReport, BaseReport, LoraConfig, ModelCheck, ModuleReport, check_model, inspect_adapter,
    inspect_base, is_base,
};
pub use load::{LoadOptions, SavedClassifier};
pub use merge::{MergeOptions, MergeReport, export_merged};
pub use train::{TrainOptions, TrainOutcome, TrainSettings, train_classifier};
