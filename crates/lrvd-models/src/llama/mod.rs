//! Llama: Llama 1 to 3 and models of that architecture.
//!
//! | file | what |
//! |---|---|
//! | `config` | `config.json`, typed; what is not supported is refused by name |
//! | `rope` | rotary frequencies and their stretching; turns of a batch |
//! | `visible` | which keys a query sees: causality and padding |
//! | `attention`, `mlp`, `layer`, `model` | the decoder |
//! | `cache` | keys and values of what was read |
//! | `causal_lm`, `head` | the head over the vocabulary, and over a few answers only |
//! | `choice` | questions with a few answers, for training and evaluation |
//! | `score` | a head that predicts a number |
//! | `text` | which columns of a batch are asked for their next token, and their logits alone |
//! | `drawn` | posteriors at given draws |
//! | `generate`, `choose` | continuation: greedy or sampled, with draws |
//! | `gguf` | a model in one file of llama.cpp |
//! | `rotary_rows` | the two orders of the rows of query and key projections |

mod attention;
mod cache;
mod causal_lm;
mod choice;
mod choose;
mod config;
mod drawn;
mod generate;
pub mod gguf;
mod head;
mod layer;
mod mlp;
mod model;
mod rope;
mod rotary_rows;
mod score;
mod text;
mod visible;

pub use cache::KvCache;
pub use causal_lm::LlamaForCausalLm;
pub use choice::{ChoiceError, LlamaChoice};
pub use choose::{TokenChoice, TokenSampling};
pub use config::{ConfigError, Llama3Scaling, LlamaConfig};
pub use generate::{GenerateError, GenerateOptions, GeneratedText, GeneratedToken};
pub use model::LlamaModel;
pub use rope::Rotary;
pub use rotary_rows::{rows_in_halves, rows_in_pairs};
pub use score::LlamaScore;
pub use text::TextBatch;

/// The linear layers of every block, by the end of their path: what is adapted for language modelling. The head is not
/// among them, as in other tools' `all-linear`.
pub const BLOCK_TARGETS: [&str; 7] =
    ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"];
/// The linear layers that published experiments adapt, by the end of their path.
pub const ADAPTER_TARGETS: [&str; 3] = ["q_proj", "v_proj", "lm_head"];
