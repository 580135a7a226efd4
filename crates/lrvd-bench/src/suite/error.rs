//! What can go wrong in a reproduction.

use crate::backbone::BackboneError;
use crate::classify::ClassifyError;
use crate::data::{DataError, WordingError};
use crate::eval::EvalError;
use crate::io::IoError;
use crate::method::MethodError;
use crate::reasoning::ReasoningError;
use crate::record::RecordError;
use crate::report::PublishedError;
use crate::run::RunError;
use crate::settings::SettingError;
use crate::text::UnknownName;

/// A reproduction cannot be started or continued.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SuiteError {
    /// A run.
    #[error(transparent)]
    Run(#[from] RunError),
    /// Checkpoints.
    #[error(transparent)]
    Train(#[from] lrvd_burn::Error),
    /// The adapter that is kept.
    #[error(transparent)]
    Keep(#[from] Box<ClassifyError>),
    /// A method.
    #[error(transparent)]
    Method(#[from] MethodError),
    /// The pretrained model.
    #[error(transparent)]
    Backbone(#[from] BackboneError),
    /// The question to a language model.
    #[error(transparent)]
    Wording(#[from] WordingError),
    /// Model configuration, tokenizer.
    #[error(transparent)]
    Models(#[from] lrvd_models::Error),
    /// Data.
    #[error(transparent)]
    Data(#[from] DataError),
    /// Reasoning sets.
    #[error(transparent)]
    Reasoning(#[from] ReasoningError),
    /// A name that is not known.
    #[error(transparent)]
    Name(#[from] UnknownName),
    /// Settings.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// The core got an argument that it is not defined on.
    #[error(transparent)]
    Core(#[from] lrvd_core::Error),
    /// Evaluation.
    #[error(transparent)]
    Eval(#[from] EvalError),
    /// Files.
    #[error(transparent)]
    Io(#[from] IoError),
    /// Records.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// Published tables.
    #[error(transparent)]
    Published(#[from] PublishedError),
    /// The paper profile was asked for without data.
    #[error(
        "the paper profile needs `--data-dir`: the folder that holds {wanted} in their original layouts"
    )]
    NoDataDir {
        /// The data sets.
        wanted: &'static str,
    },
    /// The same thing is asked for twice.
    #[error("{what} `{found}` is given twice")]
    Repeated {
        /// What kind of thing.
        what: &'static str,
        /// As given.
        found: String,
    },
    /// An arm.
    #[error("arm `{arm}`")]
    Arm {
        /// Its name.
        arm: String,
        /// What is wrong.
        source: Box<SuiteError>,
    },
    /// A row is made of runs of which none is there.
    #[error("{method}: no member has finished")]
    NoMember {
        /// The method.
        method: &'static str,
    },
}
