//! The error of this crate, and the report on every tensor of a load.

use std::fmt::{self, Display};
use std::io;
use std::path::{Path, PathBuf};

use lrvd_core::error::quoted;

use crate::sampling::Scheme;

/// Names listed per kind in a message; the rest is counted.
const LISTED: usize = 20;

/// Adapters, their files or their training cannot be used as given.
///
/// # Examples
///
/// ```
/// # use lrvd_burn::burn::nn::{Linear, LinearConfig};
/// # use lrvd_burn::burn::tensor::Device;
/// use lrvd_burn::{BayesLora, Error};
///
/// let net: Vec<Linear> = vec![LinearConfig::new(4, 3).init(&Device::flex())];
/// match BayesLora::new(8).targets(["0"]).attach(net, 7) {
///     Err(Error::RankTooLarge { layer, rank, .. }) => assert_eq!((layer.as_str(), rank), ("0", 8)),
///     other => panic!("{other:?}"),
/// }
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages say what the fields are")]
pub enum Error {
    /// An argument or a setting is out of range or excludes another.
    #[error("`{name}` should be {expected}, found {found}")]
    Argument { name: &'static str, expected: String, found: String },
    /// Targets that match no layer or module of the model.
    #[error("the targets {} match nothing in the model, which has {}", quoted(.targets), quoted(.known))]
    UnknownTargets { targets: Vec<String>, known: Vec<String> },
    /// A rank above the smaller width of a layer.
    #[error(
        "rank {rank} is above {width}, the smaller width of layer `{layer}` ({d_input} to {d_output}): take {width} or \
         less, or leave that layer out of the targets",
        width = .d_input.min(.d_output)
    )]
    RankTooLarge { layer: String, rank: usize, d_input: usize, d_output: usize },
    /// A layer that is to get an adapter has one.
    #[error("layer `{layer}` has an adapter: detach it, or choose other targets")]
    AlreadyAdapted { layer: String },
    /// Two layers of a model have one path.
    #[error(
        "two layers of the model have the path `{layer}`: a path names one layer in files, noise and optimizer state"
    )]
    DuplicateLayer { layer: String },
    /// The composed weight of a `burn::nn::Linear` cannot be sampled in this way.
    #[error(
        "layer `{layer}` does not support sampling {scheme}; use one draw per batch or a `lrvd_burn::nn::Linear`"
    )]
    UnsupportedScheme { layer: String, scheme: Scheme },
    /// A layer or its adapter does not allow the operation; `what` continues the sentence.
    #[error("layer `{layer}` {what}")]
    Layer { layer: String, what: String },
    /// A value of a module of an adapter, such as a shape or a rank.
    #[error("module `{module}`: `{name}` should be {expected}, found {found}")]
    Module { module: String, name: String, expected: String, found: String },
    /// A tensor has another shape or element type.
    #[error("expected {expected}, found {found}")]
    Tensor { expected: String, found: String },
    /// Rank search with a method whose adapters have no posterior.
    #[error("rank search needs adapters with a posterior; use `bayes-lora`")]
    NoPosterior,
    /// Training or evaluation of examples without labels.
    #[error("cannot train: the examples have no labels")]
    NoLabels,
    /// The labels of the examples are of another kind.
    #[error("the examples have {found}, expected {expected}")]
    Labels { expected: &'static str, found: &'static str },
    /// An entry of a checkpoint does not fit the model, the method or the data; `what` continues the sentence.
    #[error("checkpoint entry `{entry}` {what}")]
    Checkpoint { entry: String, what: String },
    /// A device is unknown or not available; `what` continues the sentence.
    #[error("device `{device}` {what}")]
    Device { device: String, what: String },
    /// The operating system cannot read or write a file or folder; `action` is a verb.
    #[error("cannot {action} `{path}`")]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    /// Another process holds the lock on a file or folder.
    #[error("`{path}` is in use by {by}: wait for it to end or stop it")]
    InUse { path: PathBuf, by: String },
    /// A file or folder is absent, broken or of another format; `what` continues the sentence.
    #[error("`{path}` {what}")]
    File { path: PathBuf, what: String },
    /// A valid file has something that is not supported; `what` continues the sentence.
    #[error("`{path}` {what}")]
    Unsupported { path: PathBuf, what: String },
    /// A key of a configuration has a value that would change the result and is not supported.
    #[error("`{path}` has `{key}` = `{value}`, which is not supported: {effect}")]
    UnsupportedKey { path: PathBuf, key: String, value: String, effect: &'static str },
    /// Stored tensors do not fit the model or their configuration.
    #[error("{0}")]
    Load(Box<LoadReport>),
    /// Training left the finite numbers; `name` is `loss` or `gradient norm`, steps count from 0.
    #[error("the {name} is {value} at step {step}: lower the learning rate or the KL weight")]
    Diverged { name: &'static str, step: usize, value: f64 },
    /// The caller ended a prediction, through a [`PassWatch`](crate::train::PassWatch).
    #[error("stopped before all answers were computed")]
    Stopped,
    /// Argument outside the domain of a formula of `lrvd_core`.
    #[error(transparent)]
    Core(#[from] lrvd_core::Error),
    /// An error of the caller's data or method.
    #[error(transparent)]
    Other(Box<dyn std::error::Error + Send + Sync>),
}

impl Error {
    /// [`Error::Other`].
    pub fn other(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Other(error.into())
    }

    /// [`Error::Argument`].
    pub fn argument(name: &'static str, expected: impl Display, found: impl Display) -> Self {
        Self::Argument { name, expected: expected.to_string(), found: found.to_string() }
    }

    /// [`Error::Io`].
    pub fn io(action: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Io { action, path: path.to_path_buf(), source }
    }

    /// A file or folder that another run has locked.
    pub(crate) fn in_use(path: &Path) -> Self {
        Self::InUse { path: path.to_path_buf(), by: "another run".to_owned() }
    }

    /// [`Error::File`].
    pub fn file(path: impl Into<PathBuf>, what: impl Into<String>) -> Self {
        Self::File { path: path.into(), what: what.into() }
    }

    /// A file without the tensor `tensor`.
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

    /// A checkpoint whose entry `name` is missing or does not fit.
    pub fn checkpoint_entry(name: &str) -> Self {
        Self::Checkpoint { entry: name.to_owned(), what: "is missing or does not fit".to_owned() }
    }

    /// A model whose logits are those of tokens, where those of whole rows are needed.
    pub(crate) fn token_logits() -> Self {
        Self::Labels {
            expected: "a label per row (`token_answers` measures tokens)",
            found: "tokens as labels",
        }
    }

    /// [`Error::Layer`].
    pub(crate) fn layer(layer: &str, what: impl Into<String>) -> Self {
        Self::Layer { layer: layer.to_owned(), what: what.into() }
    }

    /// [`Error::Module`].
    pub(crate) fn module(
        path: &str,
        name: &str,
        expected: impl Display,
        found: impl Display,
    ) -> Self {
        let expected = expected.to_string();
        let found = found.to_string();
        Self::Module { module: path.to_owned(), name: name.to_owned(), expected, found }
    }

    /// [`Error::Tensor`].
    pub(crate) fn tensor(expected: impl Display, found: impl Display) -> Self {
        Self::Tensor { expected: expected.to_string(), found: found.to_string() }
    }
}

/// Fate of every tensor of a load.
///
/// Strict: [`into_result`](Self::into_result) accepts only a report without missing, unexpected,
/// mis-shaped or non-finite tensors. Ignored tensors are allowed, but reported.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LoadReport {
    /// Source of the tensors, usually a path.
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

    /// `true` if nothing is missing, unexpected, mis-shaped or not finite.
    pub fn is_clean(&self) -> bool {
        self.missing.is_empty()
            && self.unexpected.is_empty()
            && self.mis_shaped.is_empty()
            && self.non_finite.is_empty()
    }

    /// Notes a tensor that has another shape than expected; `true` if it has this shape.
    pub fn check_shape(&mut self, name: &str, expected: &[usize], found: &[usize]) -> bool {
        if expected != found {
            self.mis_shaped.push(format!("`{name}`: expected {expected:?}, found {found:?}"));
        }
        expected == found
    }

    /// Notes the first `non_finite` value of a tensor, with its index; `true` if there is none.
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

/// Faults of the load and ignored tensors; applied ones are not listed.
impl Display for LoadReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let in_ticks = |names: &[String]| -> Vec<String> {
            names.iter().map(|name| format!("`{name}`")).collect()
        };
        write!(f, "`{}` does not hold the expected tensors", self.source)?;
        let lists: [(&str, &[String]); 5] = [
            ("missing", &in_ticks(&self.missing)),
            ("unexpected", &in_ticks(&self.unexpected)),
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
