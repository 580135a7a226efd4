//! Tensors between files and the host, whole and checked.
//!
//! Everything here is host memory only; nothing knows a device. Reading is strict: a file that does
//! not add up is a typed error that names the file and the tensor. Writing is atomic: a reader sees
//! the old state or the new one.
//!
//! | Module | What is there |
//! |---|---|
//! | `host_tensor` | raw little-endian values with a shape |
//! | `tensor_file` | one `.safetensors` file, read tensor by tensor |
//! | `weight_file` | that, a file of `torch.save`, or one of llama.cpp |
//! | `gguf` | files of llama.cpp |
//! | `checkpoint_dir` | a checkpoint folder: one file, or shards with an index |
//! | `load_report` | which tensors were applied, missing, unexpected, mis-shaped, not finite |
//! | `write`, `atomic_dir` | files and folders that are whole or absent |
//! | `pairs` | JSON objects that keep the order of their keys and refuse duplicates |

mod atomic_dir;
mod checkpoint_dir;
mod error;
mod gguf;
mod host_tensor;
mod load_report;
pub(crate) mod pairs;
mod tensor_file;
mod weight_file;
mod write;

pub use atomic_dir::{AtomicDir, recover_dir};
pub use checkpoint_dir::WeightStore;
pub use error::{FileError, must_exist};
pub use gguf::{GgufError, GgufField, GgufFile, GgufType, GgufValue, write_gguf};
pub use host_tensor::{HostDType, HostTensor, TensorError, is_float};
pub use load_report::{IgnoredTensor, LoadError, LoadReport, MisShaped, NonFinite};
pub use tensor_file::TensorFile;
pub use write::{write_atomic, write_safetensors};
