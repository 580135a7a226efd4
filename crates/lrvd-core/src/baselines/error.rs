//! What the baselines that read predictions refuse.

use thiserror::Error as ThisError;

use crate::error::{Error, ParameterError, ShapeError};
use crate::metrics::MetricError;

/// A mistake in an argument, or in predictions.
#[derive(Debug, Clone, PartialEq, ThisError)]
#[non_exhaustive]
pub enum BaselineError {
    /// Slices that do not fit together, or a number outside its range.
    #[error(transparent)]
    Argument(#[from] Error),
    /// Predictions that no metric is defined on.
    #[error(transparent)]
    Metric(#[from] MetricError),
}

impl From<ShapeError> for BaselineError {
    fn from(error: ShapeError) -> Self {
        Self::Argument(error.into())
    }
}

impl From<ParameterError> for BaselineError {
    fn from(error: ParameterError) -> Self {
        Self::Argument(error.into())
    }
}
