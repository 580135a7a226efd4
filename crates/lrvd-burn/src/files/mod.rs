//! Tensors between files and the host, whole and checked.
//!
//! Everything here is host memory only; nothing knows a device. Reading is strict: a file that does
//! not add up is a typed error that names the file and the tensor. Writing is atomic: a reader sees
//! the old state or the new one.

mod atomic_dir;
mod checkpoint_dir;
mod gguf;
pub(crate) mod host_tensor;
pub(crate) mod ordered_map;
mod tensor_file;
mod weight_file;
mod write;

pub use crate::error::{IgnoredTensor, LoadReport, MisShaped, NonFinite};
pub use atomic_dir::{AtomicDir, recover_dir};
pub use checkpoint_dir::WeightStore;
pub use gguf::{GgufField, GgufFile, GgufType, GgufValue, write_gguf};
pub use host_tensor::{HostDType, HostTensor, is_float};
pub use tensor_file::TensorFile;
pub use write::{replace_with, write_atomic, write_safetensors};

/// What is wrong with a path like `/`.
const NO_NAME: &str = "does not end in the name of a file or folder";
