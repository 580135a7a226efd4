//! Models, tokenizers and files of llama.cpp as a caller uses them.

#![allow(clippy::unwrap_used)]

mod checkpoints;
mod config;
mod deberta;
mod gguf;
mod llama;
mod options;
mod passes;
mod support;
mod tokenizer;
