//! GGUF, the format of llama.cpp: settings by key, and tensors that may be quantised in blocks.
//!
//! Versions 2 and 3, little-endian. Nothing is allocated beyond what the file's own length can hold, and a quantised
//! tensor is widened to single precision when it is read. The format is llama.cpp's `docs/gguf.md`, the blocks are
//! those of its `ggml-quants.c`; both are held to the Python package `gguf`.

mod blocks;
mod header;
mod write;

pub use blocks::GgufType;
pub use header::GgufValue;
pub(super) use header::{Entry, read_header, unusable};
pub use write::{GgufField, write_gguf};
