//! Errors of files of tensors and of the folders they lie in.

use std::io;
use std::path::{Path, PathBuf};

use lrvd_core::error::quoted;

use super::gguf::GgufError;
use super::host_tensor::{HostDType, TensorError};

/// Checks that there is something at `path`, before a reader says what it is not.
///
/// # Errors
///
/// [`FileError::Absent`] if there is nothing, [`FileError::Io`] if that cannot be told.
pub fn must_exist(path: &Path) -> Result<(), FileError> {
    match path.try_exists() {
        Ok(true) => Ok(()),
        Ok(false) => Err(FileError::Absent { path: path.to_path_buf() }),
        Err(source) => Err(FileError::io("look at", path, source)),
    }
}

/// A file or a folder cannot be read, does not add up, or cannot be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// The operating system refused.
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
    /// What should be read is not there.
    #[error("`{path}` does not exist")]
    Absent {
        /// The file or folder.
        path: PathBuf,
    },
    /// The file ends before its own header says it does.
    #[error("`{file}` is cut short: {wanted} bytes wanted, {found} found")]
    Truncated {
        /// The file.
        file: PathBuf,
        /// Bytes that the header asks for.
        wanted: u64,
        /// Bytes that are there.
        found: u64,
    },
    /// The file goes on after its last tensor.
    #[error("`{file}` has bytes that belong to no tensor: {wanted} bytes wanted, {found} found")]
    TrailingBytes {
        /// The file.
        file: PathBuf,
        /// Bytes that the header accounts for.
        wanted: u64,
        /// Bytes that are there.
        found: u64,
    },
    /// The header claims to be longer than any real one.
    #[error("the header of `{file}` claims {length} bytes, above the limit of {limit}")]
    HeaderTooLong {
        /// The file.
        file: PathBuf,
        /// Length claimed.
        length: u64,
        /// Largest length accepted.
        limit: u64,
    },
    /// The header of a safetensors file does not parse, or its tensors overlap, leave a hole or have another size
    /// than shape and type say.
    #[error("`{file}` has a header that cannot be used")]
    Header {
        /// The file.
        file: PathBuf,
        /// Where and why.
        #[source]
        source: serde_json::Error,
    },
    /// A JSON text does not parse.
    #[error("`{file}` holds JSON that cannot be read")]
    Json {
        /// The file.
        file: PathBuf,
        /// Where and why.
        #[source]
        source: serde_json::Error,
    },
    /// An element type that this reader does not know.
    #[error("`{file}`: tensor `{tensor}` has the element type `{dtype}`, which is not supported")]
    UnknownDType {
        /// The file.
        file: PathBuf,
        /// The tensor.
        tensor: String,
        /// The type.
        dtype: HostDType,
    },
    /// The tensor is not in the file.
    #[error("`{file}` has no tensor `{tensor}`")]
    NoTensor {
        /// The file or folder.
        file: PathBuf,
        /// The tensor asked for.
        tensor: String,
    },
    /// Two tensors would have one name.
    #[error("`{file}`: two tensors are called `{tensor}`")]
    DuplicateTensor {
        /// The file or folder.
        file: PathBuf,
        /// The name.
        tensor: String,
    },
    /// The name cannot be written, because the format keeps it for itself.
    #[error("a tensor cannot be called `{tensor}` in `{file}`")]
    ReservedName {
        /// The file.
        file: PathBuf,
        /// The name.
        tensor: String,
    },
    /// The folder holds none of the known weight files.
    #[error(
        "`{dir}` has no weights: wanted `model.safetensors`, `pytorch_model.bin` or either's \
         `.index.json`"
    )]
    NoWeights {
        /// The folder.
        dir: PathBuf,
    },
    /// A file of `torch.save` that cannot be read.
    #[error("`{file}` is not a PyTorch file of tensors: {reason}")]
    Pytorch {
        /// The file.
        file: PathBuf,
        /// What the reader says.
        reason: String,
    },
    /// A file of llama.cpp that cannot be read.
    #[error("`{file}` is not a usable GGUF file: {source}")]
    Gguf {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        source: GgufError,
    },
    /// Only tensors of floats can be written in this format.
    #[error("tensor `{tensor}` cannot be written to `{file}`")]
    NotFloat {
        /// The file.
        file: PathBuf,
        /// The tensor.
        tensor: String,
        /// Why.
        source: TensorError,
    },
    /// An adapter is there in its pickled form only.
    #[error("`{dir}` holds only pickled weights (`{found}`): wanted safetensors")]
    Pickle {
        /// The folder.
        dir: PathBuf,
        /// The pickled file.
        found: String,
    },
    /// The index names a file that is not there.
    #[error(
        "`{index}` names the shard `{shard}`, which is not there ({n_tensors} tensors, `{first}` first)"
    )]
    MissingShard {
        /// The index.
        index: PathBuf,
        /// File name of the shard.
        shard: String,
        /// Number of tensors that the index puts there.
        n_tensors: usize,
        /// The first of them by name.
        first: String,
    },
    /// The index puts a tensor into a shard that does not have it.
    #[error("`{index}` puts {} into `{shard}`, which does not have them", quoted(.tensors))]
    NotInShard {
        /// The index.
        index: PathBuf,
        /// File name of the shard.
        shard: String,
        /// The tensors.
        tensors: Vec<String>,
    },
    /// A shard has a tensor that the index does not put there.
    #[error("`{shard}` has {}, which `{index}` does not put there", quoted(.tensors))]
    NotInIndex {
        /// The index.
        index: PathBuf,
        /// File name of the shard.
        shard: String,
        /// The tensors.
        tensors: Vec<String>,
    },
    /// The index names a file outside its folder.
    #[error("`{index}` names the shard `{shard}`: wanted a file name without a folder")]
    ShardName {
        /// The index.
        index: PathBuf,
        /// The name.
        shard: String,
    },
    /// What should be created is there already.
    #[error("`{path}` is there already")]
    Exists {
        /// The file or folder.
        path: PathBuf,
    },
    /// The path does not end in a name that can be written.
    #[error("`{path}` does not end in the name of a file or folder")]
    NoName {
        /// The path.
        path: PathBuf,
    },
}

impl FileError {
    /// An action that may help, for errors that know one.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Pickle { .. } => Some(
                "convert the adapter once where PEFT is available: load it and call `save_pretrained(folder)`",
            ),
            Self::Truncated { .. }
            | Self::MissingShard { .. }
            | Self::Gguf { source: GgufError::Short { .. }, .. } => {
                Some("the download or copy may have been cut off: fetch the file again")
            }
            _ => None,
        }
    }

    /// Wraps an error of the operating system.
    pub(crate) fn io(action: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Io { action, path: path.to_path_buf(), source }
    }

    pub(super) fn no_tensor(file: &Path, tensor: &str) -> Self {
        Self::NoTensor { file: file.to_path_buf(), tensor: tensor.to_owned() }
    }
}
