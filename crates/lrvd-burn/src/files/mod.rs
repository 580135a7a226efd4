//! How do tensors get from files to the host and back, whole and checked?
//!
//! Everything here is host memory only; nothing knows a device. Reading is strict: a file that does
//! not add up is a typed error that names the file and the tensor. Writing is atomic: a reader sees
//! the old state or the new one.
//!
//! | Module | Answers |
//! |---|---|
//! | `host_dtype`, `host_tensor` | raw little-endian values with a shape |
//! | `header`, `tensor_file` | one `.safetensors` file, read tensor by tensor |
//! | `pytorch_file`, `weight_file` | a file of `torch.save`, and either format |
//! | `checkpoint_dir` | a checkpoint folder: one file, or shards with an index |
//! | `load_report` | which tensors were applied, missing, unexpected, mis-shaped, not finite |
//! | `write`, `atomic_dir` | files and folders that are whole or absent |
//! | `json` | JSON that keeps the order of its keys and refuses duplicates |

mod atomic_dir;
mod checkpoint_dir;
mod error;
mod header;
mod host_dtype;
mod host_tensor;
pub(crate) mod json;
mod load_report;
mod pytorch_file;
mod tensor_file;
mod weight_file;
mod write;

pub use atomic_dir::{AtomicDir, recover_dir};
pub use checkpoint_dir::WeightStore;
pub use error::FileError;
pub use host_dtype::HostDType;
pub use host_tensor::{HostTensor, TensorError};
pub use load_report::{IgnoredTensor, LoadError, LoadReport, MisShaped, NonFinite};
pub use tensor_file::TensorFile;
pub use write::{write_atomic, write_safetensors};
