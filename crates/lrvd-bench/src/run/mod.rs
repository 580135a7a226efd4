//! One fine-tuning run: a fresh start or a checkpoint, the loop, the record, the folder.

mod folder;
mod outcome;
mod start;

pub use lrvd_burn::train::{MAX_SEED, check_seed};

pub(crate) use folder::{
    ADAPTER_DIR, AdapterFiles, CHECKPOINT_DIR, OutputFolder, RECORD_FILE, SETTINGS_FILE,
    adapter_files, clear, remove_parts, still_there,
};
pub(crate) use outcome::{
    Candidate, Finished, RunLabel, rank_record, reported, run_record, summary, write_predictions,
};
pub use start::fit;
pub(crate) use start::{FinalWatch, Run, RunStart, RunState};
