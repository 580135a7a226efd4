//! One run: a fresh start or a checkpoint, the loop of [`lrvd_burn::train`], the record, the folder.

mod baseline;
mod folder;
mod numbered;
mod outcome;
mod settings;
mod start;
mod trained;

pub use lrvd_burn::sampling::{MAX_SEED, check_seed};

pub use folder::CHECKPOINT_DIR;
pub(crate) use folder::{
    ADAPTER_DIR, CLAIMS_DIR, DATA_DIR, LABELS_FILE, OutputFolder, RECORD_FILE, SETTINGS_FILE,
    clear, file_hashes, remove_parts, still_there,
};
pub use numbered::{last_folder, next_folder};
pub(crate) use outcome::{ByDraws, Finished, HELD_OUT_PREDICTIONS, LAST_PREDICTIONS, summary};
pub(crate) use settings::{RowSettings, TrainSettings, is_run_on_texts};
pub(crate) use start::{NO_CASCADE, Run, RunPlace, RunStart, check_class_weight};
pub use start::{RunState, fit};
pub(crate) use trained::trained;
