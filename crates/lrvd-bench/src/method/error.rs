//! What can go wrong in a method.

use crate::data::batch::BatchError;
use crate::settings::SettingError;

/// A method cannot be set up, continued or evaluated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MethodError {
    /// Settings.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// The core refused its input.
    #[error(transparent)]
    Core(#[from] lrvd_core::Error),
    /// Adapters, training and prediction.
    #[error(transparent)]
    Train(#[from] lrvd_burn::Error),
    /// Batching.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// A method that consists of several runs was asked for as one.
    #[error("{method} is made of runs of another method: use `lrvd bench`")]
    NotOneRun {
        /// The method.
        method: String,
    },
    /// The method cannot do what it is asked for with this task, these settings or this model.
    #[error("{method}: {what}")]
    Method {
        /// The method.
        method: &'static str,
        /// What is wrong.
        what: String,
    },
}

impl From<MethodError> for lrvd_burn::Error {
    fn from(error: MethodError) -> Self {
        match error {
            MethodError::Train(error) => error,
            error => Self::other(error),
        }
    }
}
