//! Why a checkpoint of llama2.c cannot be converted.

use std::path::PathBuf;

use lrvd_burn::files::{FileError, TensorError};

use crate::llama::ConfigError;
use crate::tokenizer::{SpmError, TokenizerError};

/// A checkpoint of llama2.c cannot be converted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Llama2cError {
    /// A file could not be read.
    #[error("cannot read `{file}`")]
    Read {
        /// The file.
        file: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// The folder could not be made.
    #[error("cannot make `{file}`")]
    Write {
        /// The folder.
        file: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// A file is not of its format.
    #[error("`{file}` is not a usable file of llama2.c")]
    File {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        source: Box<Llama2cError>,
    },
    /// The file is shorter or longer than its own sizes say.
    #[error("{wanted} bytes are wanted, found {found}")]
    Length {
        /// Bytes that the sizes ask for.
        wanted: usize,
        /// Bytes of the file.
        found: usize,
    },
    /// A size of the header makes no model.
    #[error("`{name}` is {found}, wanted {wanted}")]
    Size {
        /// Its name in llama2.c.
        name: &'static str,
        /// Its value.
        found: i64,
        /// What it should be.
        wanted: String,
    },
    /// A token has a negative length.
    #[error("token {id} has length {found}")]
    TokenLength {
        /// The token.
        id: usize,
        /// Its length.
        found: i32,
    },
    /// A token is not UTF-8.
    #[error("token {id} is not valid UTF-8")]
    Utf8 {
        /// The token.
        id: usize,
    },
    /// The tokens make no vocabulary.
    #[error("the tokens make no vocabulary")]
    Vocabulary(#[source] SpmError),
    /// A weight does not fill its shape.
    #[error("tensor `{name}` cannot be made")]
    Tensor {
        /// Its name in the new checkpoint.
        name: String,
        /// Why.
        source: TensorError,
    },
    /// The new configuration cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The new tokenizer cannot be built.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// A file could not be written.
    #[error(transparent)]
    Output(#[from] FileError),
}
