//! Models, tokenizers and files of llama.cpp as a caller uses them.

#![allow(clippy::unwrap_used)]

mod answers;
mod draws;
mod first_token;
mod gguf;
mod language;
mod llama;
mod loading;
mod recompute;
mod shared_keys;
mod stories260k;
mod support;
mod tokenizer;
