//! What can be wrong with settings.

use std::path::PathBuf;

use lrvd_core::ParameterError;

/// Settings cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SettingError {
    /// A setting does not exist.
    #[error("unknown setting `{key}`; wanted one of {wanted}")]
    Unknown {
        /// As given, with dots.
        key: String,
        /// What there is.
        wanted: String,
    },
    /// A setting has the wrong type or an unknown value.
    #[error("setting `{key}` cannot be `{value}`: {reason}")]
    Setting {
        /// The key, with dots.
        key: String,
        /// As given.
        value: String,
        /// What is wanted.
        reason: String,
    },
    /// A `KEY=VALUE` has no key or no equals sign.
    #[error("`{found}` is not of the form `key=value`")]
    Assignment {
        /// As given.
        found: String,
    },
    /// The preset is set like a setting.
    #[error("the preset is chosen by `--preset NAME`")]
    Preset,
    /// The settings of a method are not what it knows.
    #[error("settings `methods.{method}`: {source}")]
    Method {
        /// Key of the method.
        method: String,
        /// What is wrong with them.
        source: serde_json::Error,
    },
    /// A number is out of range.
    #[error(transparent)]
    Range(#[from] ParameterError),
    /// A settings file cannot be read.
    #[error("cannot read `{file}`: {source}")]
    Read {
        /// The file.
        file: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A settings file is not TOML.
    #[error("`{file}` is not TOML")]
    Toml {
        /// The file.
        file: PathBuf,
        /// Where and why.
        source: Box<toml::de::Error>,
    },
}
