//! What can go wrong while a model is trained, resumed or asked.

use std::path::PathBuf;

use super::order::OrderError;
use crate::error::AdapterError;
use crate::files::{FileError, TensorError};
use crate::peft::PeftError;

/// A run cannot start or go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrainError {
    /// Adapters.
    #[error(transparent)]
    Adapter(#[from] AdapterError),
    /// The core refused its input.
    #[error(transparent)]
    Core(#[from] lrvd_core::Error),
    /// The order of the examples.
    #[error(transparent)]
    Order(#[from] OrderError),
    /// Files.
    #[error(transparent)]
    File(#[from] FileError),
    /// Tensors of a file.
    #[error(transparent)]
    Tensor(#[from] TensorError),
    /// Adapter files.
    #[error(transparent)]
    Peft(#[from] PeftError),
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
    /// The position in the data cannot be stored, or is not one of this source.
    #[error("the position in the data does not belong to this source: {source}")]
    Position {
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// A checkpoint lacks an entry, or has one that does not fit.
    #[error("the checkpoint has no usable entry `{name}`")]
    CheckpointEntry {
        /// The entry.
        name: String,
    },
    /// A file of a checkpoint is not the one that was written.
    #[error(
        "`{file}` has changed since it was written: its SHA-256 should be {wanted}, is {found}"
    )]
    Damaged {
        /// The file.
        file: PathBuf,
        /// The hash noted when it was written.
        wanted: String,
        /// The hash of what is there.
        found: String,
    },
    /// A checkpoint of another version.
    #[error(
        "`{file}` has format {found}, wanted {wanted}: start anew, or use the version that wrote it"
    )]
    Format {
        /// The file.
        file: PathBuf,
        /// Format of this version.
        wanted: u32,
        /// Format found.
        found: u64,
    },
    /// Another process trains in the folder.
    #[error("another run is using `{folder}`: wait for it to end or stop it")]
    InUse {
        /// The folder of the checkpoints.
        folder: PathBuf,
    },
    /// The model lacks what a method attached to it, or the data does not suit the method.
    #[error("{method}: {what}")]
    Method {
        /// The method.
        method: &'static str,
        /// What is wrong.
        what: String,
    },
    /// Draws cannot be made as asked.
    #[error("`{setting}` {what}")]
    Draws {
        /// The setting of a [`DrawPolicy`](super::DrawPolicy).
        setting: &'static str,
        /// Why not.
        what: &'static str,
    },
    /// A [`PassWatch`](super::PassWatch) ended a prediction.
    #[error("stopped before all answers were there")]
    Stopped,
    /// An error of the data or of a method of your own.
    #[error(transparent)]
    Other(Box<dyn std::error::Error + Send + Sync>),
}

impl TrainError {
    /// Whoever asks for the logits of whole rows cannot measure tokens by them.
    pub(super) fn token_logits() -> Self {
        let what = "tokens have no logits by row; `token_answers` measures them".to_owned();
        Self::Method { method: "prediction", what }
    }

    /// Wraps an error of your own.
    pub fn other(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Other(error.into())
    }
}
