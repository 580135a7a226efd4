//! GGUF, the format of llama.cpp: settings by key, and tensors that may be quantised in blocks.
//!
//! Versions 2 and 3, little-endian. Nothing is allocated beyond what the file's own length can hold, and a quantised
//! tensor is dequantised to single precision when it is read. The format is llama.cpp's `docs/gguf.md`, the blocks are
//! those of its `ggml-quants.c`; both are held to the Python package `gguf`.

mod blocks;
mod header;

pub(super) use blocks::GgufType;
pub(super) use header::{ALIGNMENT, Entry, GgufValue, MAGIC, read_header, unusable};
