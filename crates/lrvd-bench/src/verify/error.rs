//! Reasons why a folder cannot be recomputed.

use std::path::{Path, PathBuf};

use lrvd_burn::files::{FileError, TensorError, TensorFile};
use lrvd_burn::peft::PeftError;
use lrvd_core::adalora::AdaLoraError;
use lrvd_core::metrics::MetricError;
use lrvd_core::{Error as CoreError, ParameterError, ShapeError};
use lrvd_models::LoadError;
use lrvd_models::deberta::{ConfigError, PositionRangeError};
use lrvd_models::tokenizer::FixtureError;

use super::Precision;

/// A folder cannot be recomputed. A number that differs is no error but a failed check.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VerifyError {
    /// The folder asks for something that is not there.
    #[error("unsupported: {what}")]
    Unsupported {
        /// The kind, key or value.
        what: String,
    },
    /// The folder holds nothing that could be checked.
    #[error(
        "`{dir}` is neither a fixture (`expected.json`), nor a checkpoint (`config.json`), nor an \
         adapter (`adapter_config.json`)"
    )]
    Nothing {
        /// The folder.
        dir: PathBuf,
    },
    /// A file is absent, broken, or lacks a tensor.
    #[error(transparent)]
    File(#[from] FileError),
    /// A JSON file lacks an entry.
    #[error("`{file}` has no `{name}`")]
    MissingEntry {
        /// The file.
        file: PathBuf,
        /// Path of the entry, with dots.
        name: String,
    },
    /// A JSON entry is not of the wanted form, or contradicts something else.
    #[error("`{file}`: `{name}` should be {wanted}, found `{found}`")]
    Entry {
        /// The file.
        file: PathBuf,
        /// Path of the entry, with dots.
        name: String,
        /// What it should be.
        wanted: String,
        /// What it is, as JSON.
        found: String,
    },
    /// A recorded tensor has no tolerance, so nothing can be said about it.
    #[error("`{file}` has no tolerance for `{name}` in {}", precision.name())]
    MissingTolerance {
        /// The file.
        file: PathBuf,
        /// The tensor.
        name: String,
        /// The precision of the recomputation.
        precision: Precision,
    },
    /// Recorded tensors that nothing here recomputes.
    #[error("`{file}` has tensors that cannot be recomputed: {names:?}")]
    UnknownTensors {
        /// The file.
        file: PathBuf,
        /// The tensors.
        names: Vec<String>,
    },
    /// The values of a tensor have an element type that does not fit its role.
    #[error("`{file}`: tensor `{name}` cannot be used")]
    Tensor {
        /// The file.
        file: PathBuf,
        /// The tensor.
        name: String,
        /// Wanted and found.
        #[source]
        source: TensorError,
    },
    /// An input tensor has another shape than the rest asks for.
    #[error("`{file}`: tensor `{name}` should have shape {wanted}, found {found:?}")]
    Shape {
        /// The file.
        file: PathBuf,
        /// The tensor.
        name: String,
        /// The shape wanted.
        wanted: String,
        /// The shape found.
        found: Vec<usize>,
    },
    /// An input tensor holds a value out of range.
    #[error("`{file}`: tensor `{name}` is {found} at index {index}, wanted {wanted}")]
    Value {
        /// The file.
        file: PathBuf,
        /// The tensor.
        name: String,
        /// Row-major index of the first such value.
        index: usize,
        /// The value.
        found: f64,
        /// Values that are possible.
        wanted: String,
    },
    /// A model's `config.json` cannot be used.
    #[error(transparent)]
    Config(ConfigError),
    /// A model's weights cannot be used.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// An adapter cannot be used.
    #[error(transparent)]
    Peft(PeftError),
    /// The allocator refuses its settings or values.
    #[error(transparent)]
    AdaLora(#[from] AdaLoraError),
    /// A formula refuses its arguments.
    #[error(transparent)]
    Core(#[from] CoreError),
    /// A metric refuses its arguments.
    #[error("item `{item}`: {source}")]
    Metric {
        /// The item.
        item: String,
        /// Why.
        source: MetricError,
    },
    /// Position buckets that the formula does not define.
    #[error(transparent)]
    Positions(#[from] PositionRangeError),
    /// A tokenizer folder cannot be used.
    #[error(transparent)]
    Tokenizer(#[from] FixtureError),
}

impl VerifyError {
    /// A feature that is not there.
    pub(super) fn unsupported(what: impl Into<String>) -> Self {
        Self::Unsupported { what: what.into() }
    }

    /// An input tensor of another shape.
    pub(super) fn shape(
        file: &Path,
        name: &str,
        wanted: impl Into<String>,
        found: &[usize],
    ) -> Self {
        Self::Shape {
            file: file.to_path_buf(),
            name: name.to_owned(),
            wanted: wanted.into(),
            found: found.to_vec(),
        }
    }

    /// An input value out of range.
    pub(super) fn value(
        file: &TensorFile,
        name: &str,
        index: usize,
        found: f64,
        wanted: impl Into<String>,
    ) -> Self {
        let (file, name, wanted) = (file.path().to_path_buf(), name.to_owned(), wanted.into());
        Self::Value { file, name, index, found, wanted }
    }
}

impl From<ConfigError> for VerifyError {
    fn from(error: ConfigError) -> Self {
        match error {
            ConfigError::Unsupported { .. } => Self::unsupported(error.to_string()),
            error => Self::Config(error),
        }
    }
}

impl From<PeftError> for VerifyError {
    fn from(error: PeftError) -> Self {
        match error {
            PeftError::Unsupported { .. } | PeftError::UnknownKey { .. } => {
                Self::unsupported(error.to_string())
            }
            error => Self::Peft(error),
        }
    }
}

impl From<ShapeError> for VerifyError {
    fn from(error: ShapeError) -> Self {
        Self::Core(error.into())
    }
}

impl From<ParameterError> for VerifyError {
    fn from(error: ParameterError) -> Self {
        Self::Core(error.into())
    }
}
