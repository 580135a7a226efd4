//! What can go wrong in a run.

use std::path::PathBuf;

use crate::backbone::BackboneError;
use crate::eval::EvalError;
use crate::io::IoError;
use crate::method::MethodError;

/// A run cannot be started, continued or recorded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The pretrained model.
    #[error(transparent)]
    Backbone(#[from] BackboneError),
    /// The method.
    #[error(transparent)]
    Method(#[from] MethodError),
    /// Training.
    #[error(transparent)]
    Train(#[from] lrvd_burn::Error),
    /// Evaluation.
    #[error(transparent)]
    Eval(#[from] EvalError),
    /// Files.
    #[error(transparent)]
    Io(#[from] IoError),
    /// The output folder already holds a run.
    #[error("`{path}` already holds results; pass `--resume` to continue, or name another folder")]
    OutputExists {
        /// The folder.
        path: PathBuf,
    },
    /// The output folder was not created by this program.
    #[error("`{path}` holds `{found}` and was not made by `lrvd`; name another folder")]
    OutputForeign {
        /// The folder.
        path: PathBuf,
        /// A file or folder in it.
        found: String,
    },
    /// The output folder was removed while the run wrote into it.
    #[error(
        "`{path}` was removed or moved while the run wrote into it, so that parts of its output are missing"
    )]
    OutputGone {
        /// The folder.
        path: PathBuf,
    },
    /// Another process writes into the output folder.
    #[error("another `lrvd` is writing into `{path}`")]
    OutputInUse {
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
}

impl RunError {
    /// Whether a stop request ended a prediction.
    pub(crate) fn is_stopped(&self) -> bool {
        matches!(
            self,
            Self::Train(lrvd_burn::Error::Stopped)
                | Self::Eval(EvalError::Train(lrvd_burn::Error::Stopped))
                | Self::Method(MethodError::Train(lrvd_burn::Error::Stopped))
        )
    }
}
