//! What can go wrong in an experiment.

use std::path::PathBuf;

use lrvd_burn::error::{AdapterError, DeviceError};
use lrvd_burn::files::{FileError, TensorError};
use lrvd_core::adalora::AdaLoraError;
use lrvd_core::error::{ParameterError, ShapeError};
use lrvd_core::metrics::MetricError;

use crate::data::{DataError, batch::BatchError};
use crate::experiment::SettingError;
use crate::report::{PublishedError, ReportError};

/// An experiment cannot start or go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BenchError {
    /// Data.
    #[error(transparent)]
    Data(#[from] DataError),
    /// Settings.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// The paper profile was asked for without data.
    #[error(
        "the paper profile needs `--data-dir`: the folder that holds {wanted} in their original layouts"
    )]
    NoDataDir {
        /// The data sets.
        wanted: &'static str,
    },
    /// Batching.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// Adapters.
    #[error(transparent)]
    Adapter(#[from] AdapterError),
    /// Adapters with more than two factors.
    #[error(transparent)]
    Extension(#[from] lrvd_burn::adapter::ExtensionError),
    /// AdaLoRA's allocator.
    #[error(transparent)]
    AdaLora(#[from] AdaLoraError),
    /// Device.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A setting out of range.
    #[error(transparent)]
    Parameter(#[from] ParameterError),
    /// Slices that do not belong together.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// The core refused its input.
    #[error(transparent)]
    Core(#[from] lrvd_core::Error),
    /// Metrics.
    #[error(transparent)]
    Metric(#[from] MetricError),
    /// Model files.
    #[error(transparent)]
    Load(#[from] lrvd_models::LoadError),
    /// Model configuration.
    #[error(transparent)]
    Config(#[from] lrvd_models::deberta::ConfigError),
    /// Answer tokens.
    #[error(transparent)]
    Choice(#[from] lrvd_models::llama::ChoiceError),
    /// Reasoning sets.
    #[error(transparent)]
    Reasoning(#[from] crate::reasoning::ReasoningError),
    /// The core's predictions.
    #[error(transparent)]
    Baseline(#[from] lrvd_core::baselines::BaselineError),
    /// A task that is not known.
    #[error(transparent)]
    Task(#[from] crate::task::UnknownTask),
    /// Tokenizer.
    #[error(transparent)]
    Tokenizer(#[from] lrvd_models::tokenizer::TokenizerError),
    /// Files.
    #[error(transparent)]
    File(#[from] FileError),
    /// Tensor files.
    #[error(transparent)]
    Tensor(#[from] TensorError),
    /// Adapter files.
    #[error(transparent)]
    Peft(#[from] lrvd_burn::peft::PeftError),
    /// Result files.
    #[error(transparent)]
    Report(#[from] ReportError),
    /// Published tables.
    #[error(transparent)]
    Published(#[from] PublishedError),
    /// A file or folder could not be read or written.
    #[error("cannot {action} `{path}`: {source}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// A JSON file is not what it should be.
    #[error("`{path}`: {source}")]
    Json {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: serde_json::Error,
    },
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
    /// The output folder already holds a run.
    #[error("`{path}` already holds results; pass `--resume` to go on, or name another folder")]
    OutputExists {
        /// The folder.
        path: PathBuf,
    },
    /// The output folder was made with other settings.
    #[error(
        "`{path}` was started with other settings ({fields}); resume with the same ones or name another folder"
    )]
    OutputDiffers {
        /// The folder.
        path: PathBuf,
        /// The settings that differ.
        fields: String,
    },
    /// The model is neither a folder nor a reachable repository.
    #[error("model `{model}`: {reason}")]
    Model {
        /// As given.
        model: String,
        /// What was looked for and what to do.
        reason: String,
    },
    /// A name is not known.
    #[error("unknown {what} `{found}`; wanted one of {wanted}")]
    Unknown {
        /// What kind of name.
        what: &'static str,
        /// As given.
        found: String,
        /// What there is.
        wanted: String,
    },
    /// A method that consists of several runs was asked for as one.
    #[error("{method} is made of runs of another method: use `lrvd bench`")]
    NotOneRun {
        /// The method.
        method: String,
    },
    /// The settings of a method are not what it knows.
    #[error("settings `methods.{method}`: {source}")]
    MethodSettings {
        /// Key of the method.
        method: String,
        /// What is wrong with them.
        source: serde_json::Error,
    },
    /// The model lacks what a method attached to it.
    #[error("{method}: {what}")]
    Method {
        /// The method.
        method: &'static str,
        /// What is wrong.
        what: String,
    },
    /// The same thing is asked for twice.
    #[error("{what} `{found}` is given twice")]
    Repeated {
        /// What kind of thing.
        what: &'static str,
        /// As given.
        found: String,
    },
}
