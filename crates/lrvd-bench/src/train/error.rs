//! What can go wrong in training.

use lrvd_burn::error::AdapterError;
use lrvd_burn::files::{FileError, TensorError};
use lrvd_core::error::ParameterError;

use crate::data::batch::BatchError;
use crate::eval::EvalError;
use crate::io::IoError;
use crate::method::MethodError;

/// Training cannot start or go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrainError {
    /// The method.
    #[error(transparent)]
    Method(#[from] MethodError),
    /// Validation while training.
    #[error(transparent)]
    Eval(#[from] EvalError),
    /// Batching.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// A number out of range.
    #[error(transparent)]
    Parameter(#[from] ParameterError),
    /// Adapters.
    #[error(transparent)]
    Adapter(#[from] AdapterError),
    /// Files.
    #[error(transparent)]
    Io(#[from] IoError),
    /// Tensor files.
    #[error(transparent)]
    File(#[from] FileError),
    /// Tensors of a checkpoint.
    #[error(transparent)]
    Tensor(#[from] TensorError),
    /// Training left the finite numbers.
    #[error("the {name} is {value} at step {step}: lower the learning rate or the KL weight")]
    NonFinite {
        /// `loss` or `gradient norm`.
        name: &'static str,
        /// Step, from 0.
        step: usize,
        /// The value.
        value: f64,
    },
    /// A step got no example.
    #[error("step {step} has no training example")]
    EmptyBatch {
        /// Step, from 0.
        step: usize,
    },
    /// A checkpoint lacks an entry.
    #[error("the checkpoint has no usable entry `{name}`")]
    CheckpointEntry {
        /// The entry.
        name: String,
    },
}
