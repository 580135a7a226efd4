//! What can go wrong in an evaluation.

use lrvd_burn::error::AdapterError;
use lrvd_core::error::{ParameterError, ShapeError};
use lrvd_core::metrics::MetricError;

use crate::data::batch::BatchError;

/// A model cannot be asked, or its answers cannot be scored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EvalError {
    /// Batching.
    #[error(transparent)]
    Batch(#[from] BatchError),
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
