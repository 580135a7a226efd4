//! The error of this crate, and the report on every tensor of a load.

use std::fmt::{self, Display};
use std::io;
use std::path::{Path, PathBuf};

/// Names listed per kind in a message; the rest is counted.
const LISTED: usize = 20;

/// Adapters, their files or their training cannot be used as given.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An argument or a setting is out of range, or two of them exclude each other.
    #[error("{0}")]
    Argument(String),
    /// The operation is not defined for this adapter, method or scheme.
    #[error("{0}")]
    Undefined(String),
    /// A tensor or a module has another shape, length or element type than expected.
    #[error("{0}")]
    Shape(String),
    /// The state to restore does not belong to this model, method or data.
    #[error("{0}")]
    State(String),
    /// The operating system cannot read or write a file or folder.
    #[error("cannot {action} `{path}`")]
    Io {
        /// What was tried, as a verb.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// Another process holds the lock on a file or folder.
    #[error("`{path}` is in use by {by}: wait for it to end or stop it")]
    InUse {
        /// The file or folder.
        path: PathBuf,
        /// The other process.
        by: String,
    },
    /// A file or folder is absent, broken or of another format.
    #[error("`{path}` {what}")]
    File {
        /// The file or folder.
        path: PathBuf,
        /// What is wrong: the rest of a sentence that starts with the path.
        what: String,
    },
    /// A file is valid and has something that this version does not support.
    #[error("`{path}` {what}")]
    Unsupported {
        /// The file.
        path: PathBuf,
        /// What is not supported: the rest of a sentence that starts with the path.
        what: String,
    },
    /// Stored tensors do not fit the model or their configuration.
    #[error("{0}")]
    Load(Box<LoadReport>),
    /// Training left the finite numbers.
    #[error("the {name} is {value} at step {step}: lower the learning rate or the KL weight")]
    Diverged {
        /// `loss` or `gradient norm`.
        name: &'static str,
        /// Step, from 0.
        step: usize,
        /// The value.
        value: f64,
    },
    /// The caller ended a prediction, through a [`PassWatch`](crate::train::PassWatch).
    #[error("stopped before all answers were computed")]
    Stopped,
    /// An argument that a formula of `lrvd_core` is not defined on.
    #[error(transparent)]
    Core(#[from] lrvd_core::Error),
    /// An error of the caller's data or method.
    #[error(transparent)]
    Other(Box<dyn std::error::Error + Send + Sync>),
}

impl Error {
    /// Wraps an error of the caller's data or method.
    pub fn other(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Other(error.into())
    }

    /// An error of the operating system: `action` is a verb.
    pub fn io(action: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Io { action, path: path.to_path_buf(), source }
    }

    /// A file or folder that is locked.
    pub(crate) fn in_use(path: &Path) -> Self {
        Self::InUse { path: path.to_path_buf(), by: "another run".to_owned() }
    }

    /// A file that cannot be used: `what` continues a sentence that starts with the path.
    pub fn file(path: impl Into<PathBuf>, what: impl Into<String>) -> Self {
        Self::File { path: path.into(), what: what.into() }
    }

    /// A file without the tensor that was asked for.
    pub fn no_tensor(path: &Path, tensor: &str) -> Self {
        Self::file(path, format!("has no tensor `{tensor}`"))
    }

    /// A file that is not the JSON that it should be.
    pub(crate) fn json(path: &Path, source: serde_json::Error) -> Self {
        Self::file(path, format!("has invalid JSON: {source}"))
    }

    /// A file whose `key` has another value than it should.
    pub(crate) fn value(
        path: &Path,
        key: &str,
        expected: impl Display,
        found: impl Display,
    ) -> Self {
        Self::file(path, format!("should have {expected} as `{key}`, found {found}"))
    }

    /// A checkpoint without the entry `name`, or with one that does not fit.
    pub fn checkpoint_entry(name: &str) -> Self {
        Self::State(format!("the checkpoint has no usable entry `{name}`"))
    }

    /// A model whose logits are those of tokens, where those of whole rows are needed.
    pub(crate) fn token_logits() -> Self {
        Self::Undefined("tokens have no logits by row; `token_answers` measures them".to_owned())
    }

    /// A module whose `name` is not what it should be.
    pub(crate) fn module(
        path: &str,
        name: &str,
        expected: impl Display,
        found: impl Display,
    ) -> Self {
        Self::Shape(format!("module `{path}`: `{name}` should be {expected}, found {found}"))
    }
}

/// What became of every tensor of a load.
///
/// Strict: [`into_result`](Self::into_result) accepts only a report without missing, unexpected,
/// mis-shaped or non-finite tensors. Ignored tensors are allowed, but reported.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LoadReport {
    /// What was loaded, usually a path.
    pub source: String,
    /// Tensors that were used.
    pub applied: Vec<String>,
    /// Expected tensors that are missing.
    pub missing: Vec<String>,
    /// Tensors that are there and not expected.
    pub unexpected: Vec<String>,
    /// Tensors of the wrong shape, each with the expected and the found one.
    pub mis_shaped: Vec<String>,
    /// Tensors with values that are not finite, each with the row-major index of the first and the value.
    pub non_finite: Vec<String>,
    /// Tensors that are known and deliberately not used, each with its shape and the reason.
    pub ignored: Vec<String>,
}

impl LoadReport {
    /// An empty report on `source`.
    pub fn new(source: impl Display) -> Self {
        Self { source: source.to_string(), ..Self::default() }
    }

    /// Whether nothing is missing, unexpected, mis-shaped or not finite.
    pub fn is_clean(&self) -> bool {
        self.missing.is_empty()
            && self.unexpected.is_empty()
            && self.mis_shaped.is_empty()
            && self.non_finite.is_empty()
    }

    /// Whether a tensor has the expected shape; notes one that has not.
    pub fn check_shape(&mut self, name: &str, expected: &[usize], found: &[usize]) -> bool {
        if expected != found {
            self.mis_shaped.push(format!("`{name}`: expected {expected:?}, found {found:?}"));
        }
        expected == found
    }

    /// Whether a tensor has no `non_finite` value; notes one that has, with its index.
    pub fn check_finite(&mut self, name: &str, non_finite: Option<(usize, f64)>) -> bool {
        if let Some((index, value)) = non_finite {
            self.non_finite.push(format!("`{name}`: {value} at index {index}"));
        }
        non_finite.is_none()
    }

    /// The report itself if it is clean.
    pub fn into_result(self) -> Result<Self, Error> {
        if self.is_clean() { Ok(self) } else { Err(Error::Load(Box::new(self))) }
    }
}

/// What is wrong with the load, and what was passed over; what was applied is not listed.
impl Display for LoadReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quoted = |names: &[String]| -> Vec<String> {
            names.iter().map(|name| format!("`{name}`")).collect()
        };
        write!(f, "`{}` does not hold the expected tensors", self.source)?;
        let lists: [(&str, &[String]); 5] = [
            ("missing", &quoted(&self.missing)),
            ("unexpected", &quoted(&self.unexpected)),
            ("mis-shaped", &self.mis_shaped),
            ("not finite", &self.non_finite),
            ("ignored", &self.ignored),
        ];
        for (kind, items) in lists.into_iter().filter(|(_, items)| !items.is_empty()) {
            write!(f, "\n{kind} ({}):", items.len())?;
            for item in items.iter().take(LISTED) {
                write!(f, "\n  {item}")?;
            }
            if let more @ 1.. = items.len().saturating_sub(LISTED) {
                write!(f, "\n  and {more} more")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn every_kind_makes_the_load_fail_and_is_listed() {
        let mut report = LoadReport::new("m.safetensors");
        report.applied.push("good".into());
        report.ignored.push("`b` [2]: copy".into());
        let mut report = report.into_result().unwrap();
        report.missing.push("gone".into());
        report.unexpected = (0..21).map(|i| format!("t{i}")).collect();
        assert!(!report.check_shape("w", &[2, 3], &[3, 2]) && report.check_shape("v", &[1], &[1]));
        assert!(!report.check_finite("n", Some((4, f64::NAN))) && report.check_finite("o", None));
        let listed: Vec<String> = (0..20).map(|i| format!("  `t{i}`")).collect();
        let expected = format!(
            "`m.safetensors` does not hold the expected tensors\nmissing (1):\n  `gone`\nunexpected (21):\n{}\n  \
             and 1 more\nmis-shaped (1):\n  `w`: expected [2, 3], found [3, 2]\nnot finite (1):\n  `n`: NaN at index \
             4\nignored (1):\n  `b` [2]: copy",
            listed.join("\n")
        );
        assert_eq!(report.into_result().unwrap_err().to_string(), expected);
    }
}
