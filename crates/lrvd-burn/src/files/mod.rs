//! Tensors between files and the host, whole and checked.
//!
//! Tensors are in host memory, on no device. Reading is strict: a file that does
//! not add up is a typed error that names the file and the tensor. Writing is atomic: a reader sees
//! the old state or the new one.

mod atomic;
mod gguf;
mod gguf_file;
pub(crate) mod host_tensor;
mod json;
mod limited;
mod lock;
pub(crate) mod ordered_map;
mod safetensors_file;
#[cfg(test)]
mod tests;
mod weight_store;

pub use atomic::{AtomicDir, check_link, flushes, replace_with, write_atomic};
pub use gguf_file::{GgufField, GgufFile, write_gguf};
pub use host_tensor::{HostDType, HostTensor};
pub use json::{JsonMismatch, from_json, is_unset};
pub use limited::{
    SETTINGS_LIMIT, VOCABULARY_LIMIT, first_file, is_dir, is_file, is_there, open_file,
    read_limited, read_text_limited, reject_pointer,
};
pub use lock::{FileLock, host_name, lacks_locks, silence};
pub(crate) use safetensors_file::write_hashed;
pub use safetensors_file::write_safetensors;
pub use weight_store::WeightStore;
