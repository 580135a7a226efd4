//! Errors of adapter folders.

use std::path::PathBuf;

use crate::files::{FileError, LoadError, TensorError};

/// An adapter folder cannot be read, does not fit, or cannot be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PeftError {
    /// A file cannot be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// The tensors fit neither their configuration nor the model.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// A value of the configuration is of the wrong form or out of range.
    #[error("`{file}`: `{key}` should be {wanted}, found `{found}`")]
    Value {
        /// The file.
        file: PathBuf,
        /// Key of the value.
        key: String,
        /// The form wanted.
        wanted: &'static str,
        /// The value as JSON; `nothing` where the key is absent.
        found: String,
    },
    /// The configuration asks for something that would change the result and is not there.
    #[error("`{file}`: `{key}` = `{value}` is not supported: {reason}")]
    Unsupported {
        /// The file.
        file: PathBuf,
        /// The key that asks for it.
        key: String,
        /// Its value as JSON.
        value: String,
        /// What it would change.
        reason: &'static str,
    },
    /// The configuration has a key that this version does not know, with a value that says it
    /// matters.
    #[error(
        "`{file}`: unknown key `{key}` = `{value}`; only null, false or empty can be passed over"
    )]
    UnknownKey {
        /// The file.
        file: PathBuf,
        /// The key.
        key: String,
        /// Its value as JSON.
        value: String,
    },
    /// A pattern is not a regular expression that can be evaluated here.
    #[error("`{key}` has the pattern `{pattern}`, which cannot be used")]
    Pattern {
        /// The configuration key that holds it.
        key: &'static str,
        /// The pattern.
        pattern: String,
        /// Where and why.
        #[source]
        source: Box<regex::Error>,
    },
    /// A configuration that was read contradicts itself.
    #[error("`{file}` cannot be used")]
    Config {
        /// The file.
        file: PathBuf,
        /// Which key, and why.
        #[source]
        source: Box<PeftError>,
    },
    /// A tensor has an element type that its role does not allow.
    #[error("`{file}`: tensor `{tensor}` cannot be used")]
    Tensor {
        /// The file.
        file: PathBuf,
        /// The tensor.
        tensor: String,
        /// Wanted and found.
        #[source]
        source: TensorError,
    },
    /// There is no adapted layer to write.
    #[error("the adapter has no module, so there is nothing that PEFT could load")]
    NoModule,
    /// A tensor outside the adapted layers is not covered by `modules_to_save`, so PEFT would not
    /// load it.
    #[error("`{name}` lies in none of the `modules_to_save` {modules:?}")]
    NotSaved {
        /// The parameter.
        name: String,
        /// The modules.
        modules: Vec<String>,
    },
    /// A module does not fit itself or the layout asked for.
    #[error("module `{path}`: `{name}` should be {wanted}, found {found}")]
    Module {
        /// Path of the module.
        path: String,
        /// What is wrong.
        name: &'static str,
        /// What it should be.
        wanted: String,
        /// What it is.
        found: String,
    },
    /// The layout does not exist for this kind of adapter.
    #[error("the layout `{layout}` needs an adapter of the type `{wanted}`, found `{found}`")]
    Layout {
        /// The layout asked for.
        layout: &'static str,
        /// The adapter type that it is for.
        wanted: &'static str,
        /// The adapter type there is.
        found: &'static str,
    },
    /// A posterior file does not hold what its own header says.
    #[error("`{file}`: `{key}` should be {wanted}, found {found}")]
    Posterior {
        /// The file.
        file: PathBuf,
        /// Key of the header, or a tensor.
        key: String,
        /// What it should be.
        wanted: String,
        /// What it is.
        found: String,
    },
    /// A posterior header is not the JSON that it should be.
    #[error("`{file}` has a posterior header that cannot be read")]
    PosteriorHeader {
        /// The file.
        file: PathBuf,
        /// Where and why.
        #[source]
        source: serde_json::Error,
    },
}
