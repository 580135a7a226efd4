//! What can go wrong in an evaluation.

/// A model cannot be asked, or its answers cannot be scored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EvalError {
    /// Predictions.
    #[error(transparent)]
    Train(#[from] lrvd_burn::Error),
    /// The core refused its input.
    #[error(transparent)]
    Core(#[from] lrvd_core::Error),
}
