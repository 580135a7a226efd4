//! Pretrained models with adaptable layers, on Burn.
//!
//! Names are Hugging Face's: a parameter is called what its checkpoint calls it, and a module path
//! is what a PEFT file calls it. Nothing here trains and nothing opens a network connection.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod auto;
mod batch;
pub mod chat;
pub mod deberta;
mod error;
mod json;
pub mod llama;
mod norm;
mod rope;
mod source;
pub mod tokenizer;

pub use auto::AutoModel;
pub use batch::{Prefixes, ScoredOptions, TokenBatch};
pub use error::{Error, Result};
pub use norm::{LayerNorm, RmsNorm};
pub use source::{Loaded, Precision, WeightSource};

/// The program of the README, which the documentation tests compile.
#[cfg(all(doctest, feature = "flex"))]
#[doc = include_str!("../README.md")]
struct Readme;
