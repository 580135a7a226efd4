//! What can go wrong between a record and a file.

use std::path::PathBuf;

use crate::io::IoError;

/// A record that cannot be written, read or understood.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The file cannot be read or written.
    #[error(transparent)]
    Io(#[from] IoError),
    /// The file is JSON of another shape, or no JSON.
    #[error("`{path}` is not a results file of schema version {wanted}: {message}")]
    Parse {
        /// The file.
        path: PathBuf,
        /// The schema version this program writes.
        wanted: u32,
        /// Field, line and column as the parser names them.
        message: String,
    },
    /// The file was written by another version of the schema.
    #[error("`{path}` has schema version {found}, this program reads version {wanted}")]
    Version {
        /// The file.
        path: PathBuf,
        /// The version this program reads.
        wanted: u32,
        /// The version in the file.
        found: u64,
    },
}
