//! A classifier from a user's own data: train, save, load, evaluate, predict.
//!
//! | File | What is in it |
//! |---|---|
//! | `rows` | the rows of a data file |
//! | `data` | the classes and examples that those rows are |
//! | `check` | what there is to know of the data before anything is trained |
//! | `train` | training into a folder |
//! | `info`, `save`, `load` | adapter folder format: write and read |
//! | `source` | the adapter in a folder, a training run or one of its checkpoints |
//! | `predict`, `evaluate` | using a saved classifier |
//! | `abstain` | the entropy above which it gives no answer |
//! | `export`, `merge` | for other programs: PEFT, llama.cpp, a whole model |
//! | `card` | the model card of an export |
//! | `inspect`, `check_model` | ranks, statistics and sizes; whether a checkpoint is whole |

mod abstain;
mod card;
mod check;
mod check_model;
mod data;
mod evaluate;
mod export;
mod info;
mod inspect;
mod load;
mod merge;
mod predict;
mod rows;
mod save;
mod source;
mod train;

pub use abstain::fit_abstention;
pub use check::{DataReport, RenderedExample, SplitReport, check_data};
pub use check_model::{ModelCheck, check_model};
pub use data::{ClassifyData, DataSource};
pub use evaluate::{Evaluation, Labelled, evaluate};
pub use export::{GgufExport, PeftExport, export_gguf, export_peft};
pub use info::{Abstention, AdapterInfo, ClassifierInfo, INFO_FILE};
pub use inspect::{
    AdapterReport, BaseReport, LoraConfig, ModuleReport, inspect_adapter, inspect_base, is_base,
};
pub use load::{LoadOptions, SavedClassifier};
pub use merge::{MergeOptions, MergeReport, export_merged};
pub use predict::{Input, Inputs, Prediction, read_inputs, stream_inputs};
pub use rows::{Row, TextColumns, read_rows};
pub use save::SavedAdapter;
pub use source::{AdapterSource, SourceKind};
pub use train::{TrainOptions, TrainOutcome, TrainSettings, train_classifier};
