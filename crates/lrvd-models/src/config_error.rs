//! Why a `config.json` cannot be used.

use std::path::PathBuf;

/// A `config.json` cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file could not be read.
    #[error("cannot read `{file}`")]
    Read {
        /// The file.
        file: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// The file does not hold a JSON object.
    #[error("`{file}` is not a JSON object")]
    Json {
        /// The file.
        file: PathBuf,
        /// Line, column and reason.
        source: serde_json::Error,
    },
    /// A key without a default is absent.
    #[error("`{file}` has no `{key}`")]
    Missing {
        /// The file.
        file: PathBuf,
        /// The key.
        key: &'static str,
    },
    /// A value has the wrong type.
    #[error("`{file}`: `{key}` should be {wanted}, found `{found}`")]
    Type {
        /// The file.
        file: PathBuf,
        /// The key.
        key: &'static str,
        /// What may stand there.
        wanted: &'static str,
        /// What stands there.
        found: String,
    },
    /// A value is out of range, or contradicts another.
    #[error("`{file}`: `{key}` is {found}, wanted {wanted}")]
    Range {
        /// The file.
        file: PathBuf,
        /// The key.
        key: &'static str,
        /// The value.
        found: String,
        /// What it should be.
        wanted: String,
    },
    /// The settings of the relative positions are out of range.
    #[error("`{file}` cannot be used")]
    Positions {
        /// The file.
        file: PathBuf,
        /// Which setting, and its range.
        source: PositionRangeError,
    },
    /// A value would change the result in a way that is not supported.
    #[error("`{file}`: `{key}` is `{value}`, supported: {supported}")]
    Unsupported {
        /// The file.
        file: PathBuf,
        /// The key.
        key: &'static str,
        /// The value.
        value: String,
        /// Values that are supported.
        supported: &'static str,
    },
}

/// The settings of the relative positions are out of range.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{key}` is {found}, wanted {wanted}")]
pub struct PositionRangeError {
    /// The setting, in the spelling of `config.json`.
    pub key: &'static str,
    /// Its value.
    pub found: usize,
    /// What it should be.
    pub wanted: String,
}
