//! One fine-tuning run: a fresh beginning or a checkpoint, the loop, the record, the folder.

mod adapter;
mod error;
mod folder;
mod outcome;
mod start;

pub use lrvd_burn::train::{MAX_SEED, check_seed};

pub(crate) use adapter::{AdapterFiles, adapter_files};
pub use error::RunError;
pub(crate) use folder::{ADAPTER_DIR, CHECKPOINT_DIR, OutputFolder, RECORD_FILE, SETTINGS_FILE};
pub(crate) use outcome::{
    Candidate, Finished, RunLabel, rank_record, record, reported, run_record, write_predictions,
};
pub use start::fit;
pub(crate) use start::{Run, RunStart, RunState};
