//! One fine-tuning run: a fresh start or a checkpoint, the loop, the record, the folder.

mod adapter;
mod finish;
mod folder;
mod outcome;
mod start;

pub use lrvd_burn::train::{MAX_SEED, check_seed};

pub(crate) use adapter::{AdapterFiles, adapter_files};
pub(crate) use finish::FinalWatch;
pub(crate) use folder::{ADAPTER_DIR, CHECKPOINT_DIR, OutputFolder, RECORD_FILE, SETTINGS_FILE};
pub(crate) use outcome::{
    Candidate, Finished, RunLabel, rank_record, reported, run_record, summary, write_predictions,
};
pub use start::fit;
pub(crate) use start::{Run, RunStart, RunState};
