//! A Llama in one file of llama.cpp.
//!
//! A `.gguf` file holds weights, configuration and tokenizer. Each is converted to what the Hugging Face folder of
//! the same model holds: `config.json`, `tokenizer.json` and `tokenizer_config.json` as texts, and weights under Hugging Face's names with the rows of the query and key projections in its order.

mod adapter;
mod config;
mod model;
mod names;
mod tokenizer;

pub use adapter::{GgufAdapter, write_gguf_adapter};
pub use model::GgufModel;
pub use names::{rows_in_halves, rows_in_pairs};
pub use tokenizer::TokenizerFiles;
