//! What can be wrong with settings.

use std::ops::Bound;
use std::path::PathBuf;

use super::range::words;
use crate::text::UnknownName;

/// Settings cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SettingError {
    /// A setting does not exist.
    #[error(transparent)]
    Unknown(#[from] UnknownName),
    /// A setting has no parts that could be set.
    #[error("unknown setting `{key}`; there is `{parent}`, which has no parts")]
    NoParts {
        /// As given, with dots.
        key: String,
        /// The setting above it.
        parent: String,
    },
    /// A setting is gone, and another one replaces it.
    #[error("setting `{key}` no longer exists; `{by}` replaces it (`lrvd config show`)")]
    Replaced {
        /// As given.
        key: &'static str,
        /// What to set instead.
        by: &'static str,
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
    /// A settings file is for another kind of training.
    #[error("the settings file is for the task `{found}`, and this is `{wanted}`")]
    Task {
        /// In the file.
        found: &'static str,
        /// What the settings are for.
        wanted: &'static str,
    },
    /// A number is out of range.
    #[error("setting `{key}` is {value}, wanted {}", words(*low, *high))]
    Range {
        /// The setting, with dots.
        key: String,
        /// Its value.
        value: String,
        /// What it may be at least.
        low: Bound<f64>,
        /// What it may be at most.
        high: Bound<f64>,
    },
    /// Two settings do not go together.
    #[error("setting `{key}` is {value}: {reason}")]
    Pair {
        /// The setting, with dots.
        key: &'static str,
        /// Its value.
        value: String,
        /// What it does not go with.
        reason: String,
    },
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
