//! What can go wrong while a model is loaded.

use std::path::PathBuf;

use burn::tensor::DType;

/// A checkpoint cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// A file is broken or absent, or its tensors are missing, left over, mis-shaped or not finite.
    #[error(transparent)]
    File(#[from] lrvd_burn::Error),
    /// A tensor is not what its header says.
    #[error("`{file}`, tensor `{name}`: {source}")]
    Tensor {
        /// The checkpoint.
        file: PathBuf,
        /// The tensor.
        name: String,
        /// What is wrong.
        source: lrvd_burn::Error,
    },
    /// The device does not compute in the float type that was asked for.
    #[error("the device does not compute in `{dtype:?}`")]
    Precision {
        /// The float type.
        dtype: DType,
    },
    /// The configuration asks for more layers than the weights have tensors.
    #[error(
        "`{file}`: `num_hidden_layers` is {found}, more than the {tensors} tensors of the weights"
    )]
    Depth {
        /// The configuration.
        file: PathBuf,
        /// Its number of layers.
        found: usize,
        /// Tensors beside it.
        tensors: usize,
    },
}
