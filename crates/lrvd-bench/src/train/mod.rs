//! Training: one step, the loop around it, and checkpoints that are whole or absent.
//!
//! The loop is our own rather than burn-train's, whose checkpoints are written per epoch without
//! the data position: a run here continues bit for bit on the CPU, also across a prune.

mod checkpoint;
mod error;
mod fit;
mod loss;
mod state;

pub use checkpoint::{latest_checkpoint, load_checkpoint, remove_checkpoints, save_checkpoint};
pub use error::TrainError;
pub(crate) use fit::order;
pub use fit::{FitOutcome, SaveCheckpoint, fit};
pub use loss::negative_log_likelihood;
pub use state::{BestInfo, BestModel, Journal, TrainState};
