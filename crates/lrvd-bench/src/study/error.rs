//! What can go wrong in a study.

use std::path::PathBuf;

use crate::io::IoError;
use crate::run::RunError;
use crate::suite::SuiteError;
use crate::text::UnknownName;

/// A study cannot start or go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StudyError {
    /// An arm.
    #[error("arm `{arm}`")]
    Arm {
        /// Its label.
        arm: String,
        /// What is wrong.
        source: Box<SuiteError>,
    },
    /// An arm that the study does not have.
    #[error(transparent)]
    UnknownName(#[from] UnknownName),
    /// Data, a model or a device.
    #[error(transparent)]
    Suite(#[from] SuiteError),
    /// The output folder.
    #[error(transparent)]
    Run(#[from] RunError),
    /// Files.
    #[error(transparent)]
    Io(#[from] IoError),
    /// The table cannot be written.
    #[error("cannot write `{path}`")]
    Table {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: csv::Error,
    },
}
