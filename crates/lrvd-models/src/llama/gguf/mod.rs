//! A Llama in one file of llama.cpp.
//!
//! A `.gguf` file holds weights, configuration and tokenizer. Here each becomes what the Hugging Face folder of the
//! same model holds, and continues as that: `config.json` as text, `tokenizer.json` and `tokenizer_config.json` as
//! texts, and weights under Hugging Face's names with the rows of the query and key projections in its order.
//!
//! | File | What is there |
//! |---|---|
//! | `model` | the file, and its weights under other names |
//! | `config` | `llama.*` keys as `config.json` |
//! | `tokenizer` | `tokenizer.ggml.*` keys as `tokenizer.json` and `tokenizer_config.json` |
//! | `byte_level` | the byte-level tokenizers |
//! | `adapter` | the other way: a low-rank adapter for llama.cpp |

mod adapter;
mod byte_level;
mod config;
mod error;
mod model;
mod tokenizer;

pub use adapter::{GgufAdapter, GgufAdapterError, write_gguf_adapter};
pub use error::GgufModelError;
pub use model::GgufModel;
pub use tokenizer::TokenizerFiles;
