//! The error of this crate.

use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};

mod load_report;

pub use load_report::{IgnoredTensor, LoadReport, MisShaped, NonFinite};

/// Adapters, their files or their training cannot be used as given.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An argument or a setting is out of range, or two of them exclude each other.
    #[error("{0}")]
    Argument(String),
    /// The operation is not defined for this adapter, method or scheme.
    #[error("{0}")]
    Undefined(String),
    /// A tensor or a module has another shape, length or element type than expected.
    #[error("{0}")]
    Shape(String),
    /// The state to restore does not belong to this model, method or data.
    #[error("{0}")]
    State(String),
    /// The operating system cannot read or write a file or folder.
    #[error("cannot {action} `{path}`")]
    Io {
        /// What was tried, as a verb.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// A file or folder is absent, broken or of another format.
    #[error("`{path}` {what}")]
    File {
        /// The file or folder.
        path: PathBuf,
        /// What is wrong: the rest of a sentence that starts with the path.
        what: String,
    },
    /// A file is valid and has something that this version does not support.
    #[error("`{path}` {what}")]
    Unsupported {
        /// The file.
        path: PathBuf,
        /// What is not supported: the rest of a sentence that starts with the path.
        what: String,
    },
    /// Stored tensors do not fit the model or their configuration.
    #[error("{0}")]
    Load(Box<LoadReport>),
    /// Training left the finite numbers.
    #[error("the {name} is {value} at step {step}: lower the learning rate or the KL weight")]
    Diverged {
        /// `loss` or `gradient norm`.
        name: &'static str,
        /// Step, from 0.
        step: usize,
        /// The value.
        value: f64,
    },
    /// The caller ended a prediction, through a [`PassWatch`](crate::train::PassWatch).
    #[error("stopped before all answers were computed")]
    Stopped,
    /// An argument that a formula of `lrvd_core` is not defined on.
    #[error(transparent)]
    Core(#[from] lrvd_core::Error),
    /// An error of the caller's data or method.
    #[error(transparent)]
    Other(Box<dyn std::error::Error + Send + Sync>),
}

impl Error {
    /// Wraps an error of the caller's data or method.
    pub fn other(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Other(error.into())
    }

    /// An error of the operating system: `action` is a verb.
    pub fn io(action: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Io { action, path: path.to_path_buf(), source }
    }

    /// A file that cannot be used: `what` continues a sentence that starts with the path.
    pub fn file(path: impl Into<PathBuf>, what: impl Into<String>) -> Self {
        Self::File { path: path.into(), what: what.into() }
    }

    /// A file without the tensor that was asked for.
    pub fn no_tensor(path: &Path, tensor: &str) -> Self {
        Self::file(path, format!("has no tensor `{tensor}`"))
    }

    /// A file that is not the JSON that it should be.
    pub(crate) fn json(path: &Path, source: serde_json::Error) -> Self {
        Self::file(path, format!("holds JSON that cannot be read: {source}"))
    }

    /// A file whose `key` has another value than it should.
    pub(crate) fn value(
        path: &Path,
        key: &str,
        expected: impl Display,
        found: impl Display,
    ) -> Self {
        Self::file(path, format!("should have {expected} as `{key}`, found {found}"))
    }

    /// A checkpoint without the entry `name`, or with one that does not fit.
    pub fn checkpoint_entry(name: &str) -> Self {
        Self::State(format!("the checkpoint has no usable entry `{name}`"))
    }

    /// A position in the data that cannot be stored, or is not one of this source.
    pub(crate) fn position(error: &serde_json::Error) -> Self {
        Self::State(format!("the position in the data does not belong to this source: {error}"))
    }

    /// A model whose logits are those of tokens, where those of whole rows are needed.
    pub(crate) fn token_logits() -> Self {
        Self::Undefined("tokens have no logits by row; `token_answers` measures them".to_owned())
    }

    /// A module whose `name` is not what it should be.
    pub(crate) fn module(
        path: &str,
        name: &str,
        expected: impl Display,
        found: impl Display,
    ) -> Self {
        Self::Shape(format!("module `{path}`: `{name}` should be {expected}, found {found}"))
    }
}
