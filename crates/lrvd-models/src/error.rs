//! Errors of this crate.

use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A model, tokenizer or template cannot be read or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages say what the fields are")]
pub enum Error {
    /// A file cannot be read.
    #[error("cannot read `{file}`")]
    Read { file: PathBuf, source: io::Error },
    /// A file is not JSON of the expected form.
    #[error("invalid JSON in `{file}`")]
    Json { file: PathBuf, source: serde_json::Error },
    /// A value of a file is missing, of another type, out of range, or contradicts another.
    #[error("`{file}`: `{key}` should be {expected}, found {found}")]
    Format { file: PathBuf, key: String, expected: String, found: String },
    /// A value of a file changes the result in a way that is not supported.
    #[error("`{file}`: `{key}` is `{found}`, supported: {supported}")]
    Unsupported { file: PathBuf, key: String, found: String, supported: String },
    /// The tokenizer of a file or folder cannot do what a call asks for.
    #[error("tokenizer `{file}` {reason}")]
    Tokenizer { file: PathBuf, reason: String },
    /// A text, prompt or conversation cannot be used.
    #[error("{0}")]
    Text(String),
    /// An argument is out of range.
    #[error("`{name}` should be {expected}, found {found}")]
    Argument { name: &'static str, expected: String, found: String },
    /// An adapter cannot be used or written in this way.
    #[error("{0}")]
    Adapter(String),
    /// The caller stopped a computation before its end.
    #[error("stopped before the texts were finished")]
    Stopped,
    /// Files of tensors, tensors that do not fit the model, adapters.
    #[error(transparent)]
    Burn(#[from] lrvd_burn::Error),
    /// An argument of a formula, or logits that are not finite.
    #[error(transparent)]
    Core(#[from] lrvd_core::Error),
}

impl Error {
    /// [`Error::Argument`].
    pub fn argument(name: &'static str, expected: impl Into<String>, found: impl Display) -> Self {
        Self::Argument { name, expected: expected.into(), found: found.to_string() }
    }

    pub(crate) fn read(file: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Read { file: file.into(), source }
    }

    pub(crate) fn json(file: &Path) -> impl FnOnce(serde_json::Error) -> Self {
        move |source| Self::Json { file: file.into(), source }
    }

    pub(crate) fn format(
        file: &Path,
        key: impl Into<String>,
        expected: impl Into<String>,
        found: impl Display,
    ) -> Self {
        Self::Format {
            file: file.into(),
            key: key.into(),
            expected: expected.into(),
            found: found.to_string(),
        }
    }

    pub(crate) fn unsupported(
        file: &Path,
        key: impl Into<String>,
        found: impl Display,
        supported: impl Into<String>,
    ) -> Self {
        Self::Unsupported {
            file: file.into(),
            key: key.into(),
            found: found.to_string(),
            supported: supported.into(),
        }
    }

    pub(crate) fn tokenizer(file: &Path, reason: impl Into<String>) -> Self {
        Self::Tokenizer { file: file.into(), reason: reason.into() }
    }

    /// An error of the `tokenizers` library at an `action`.
    pub(crate) fn library<E: Display>(action: &str, file: &Path) -> impl Fn(E) -> Self + Copy {
        move |reason| Self::tokenizer(file, format!("cannot {action}: {reason}"))
    }
}
