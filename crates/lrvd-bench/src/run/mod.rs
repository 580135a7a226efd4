//! One fine-tuning run: a fresh beginning or a checkpoint, the loop, the record, the folder.

mod error;
mod folder;
mod outcome;
mod start;

pub use error::RunError;
pub(crate) use folder::{OutputFolder, SETTINGS_FILE};
pub(crate) use outcome::{Finished, RunLabel, record, write_predictions};
pub use start::fit;
pub(crate) use start::{Run, RunStart, RunState};
