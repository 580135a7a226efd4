//! What can go wrong in an evaluation.

use lrvd_burn::error::AdapterError;
use lrvd_burn::train::TrainError;
use lrvd_core::error::{ParameterError, ShapeError};
use lrvd_core::metrics::MetricError;

/// A model cannot be asked, or its answers cannot be scored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EvalError {
    /// Predictions.
    #[error(transparent)]
    Train(#[from] TrainError),
    /// Metrics.
    #[error(transparent)]
    Metric(#[from] MetricError),
    /// Adapters.
    #[error(transparent)]
    Adapter(#[from] AdapterError),
    /// A number out of range.
    #[error(transparent)]
    Parameter(#[from] ParameterError),
    /// Slices that do not belong together.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// The core refused its input.
    #[error(transparent)]
    Core(#[from] lrvd_core::Error),
}
