//! What can go wrong in an evaluation.

use lrvd_burn::error::AdapterError;
use lrvd_burn::train::TrainError;

/// A model cannot be asked, or its answers cannot be scored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EvalError {
    /// Predictions.
    #[error(transparent)]
    Train(#[from] TrainError),
    /// Adapters.
    #[error(transparent)]
    Adapter(#[from] AdapterError),
    /// The core refused its input.
    #[error(transparent)]
    Core(#[from] lrvd_core::Error),
}
