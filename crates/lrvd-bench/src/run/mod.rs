//! One fine-tuning run: a fresh beginning or a checkpoint, the loop, the record, the folder.

use lrvd_core::error::ParameterError;

mod adapter;
mod error;
mod folder;
mod outcome;
mod start;

pub(crate) use adapter::{AdapterFiles, adapter_files};
pub use error::RunError;
pub(crate) use folder::{ADAPTER_DIR, CHECKPOINT_DIR, OutputFolder, RECORD_FILE, SETTINGS_FILE};
pub(crate) use outcome::{
    Candidate, Finished, RunLabel, rank_record, record, reported, run_record, write_predictions,
};
pub use start::fit;
pub(crate) use start::{Run, RunStart, RunState};

/// Largest seed: what is mixed into the higher bits must stay apart.
pub const MAX_SEED: u64 = (1 << 40) - 1;

/// Refuses a seed above [`MAX_SEED`].
pub(crate) fn check_seed(seed: u64) -> Result<(), ParameterError> {
    let (name, value, low, high) = ("seed", seed as f64, 0.0, MAX_SEED as f64);
    if seed > MAX_SEED {
        return Err(ParameterError::OutOfRange { name, value, low, high });
    }
    Ok(())
}
