//! Pretrained models with adaptable layers, on Burn.
//!
//! | Module | What it answers |
//! |---|---|
//! | [`deberta`] | DeBERTa-v2 and v3: configuration, encoder, sequence classification |
//! | [`llama`] | Llama: configuration, decoder, language-modelling head, answers, generation |
//! | [`AutoClassifier`], [`TokenBatch`] | either model as a classifier, and what it reads |
//! | [`chat`] | conversations as the text that a model was trained on, by its own template |
//! | [`tokenizer`] | text to ids, from `tokenizer.json` or straight from a SentencePiece model |
//! | [`source`] | where a model's weights come from, strictly |
//!
//! Names are Hugging Face's: a parameter is called what its checkpoint calls it, and a module path
//! is what a PEFT file calls it. Nothing here trains and nothing opens a network connection.

mod auto;
mod batch;
pub mod chat;
mod config_error;
mod config_reader;
pub mod deberta;
mod error;
pub mod llama;
mod norm;
pub mod source;
pub mod tokenizer;

pub use auto::AutoClassifier;
pub use batch::TokenBatch;
pub use error::LoadError;
pub use norm::{LayerNorm, RmsNorm};
pub use source::WeightSource;
