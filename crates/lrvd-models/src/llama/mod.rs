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
//! | `generate` | greedy continuation |
//! | `llama2c` | checkpoints of llama2.c, converted |
//! | `gguf` | a model in one file of llama.cpp |
//! | `rotary_rows` | the two orders of the rows of query and key projections |

mod attention;
mod cache;
mod causal_lm;
mod choice;
mod config;
mod generate;
pub mod gguf;
mod head;
mod layer;
pub mod llama2c;
mod mlp;
mod model;
mod rope;
mod rotary_rows;
mod visible;

pub use cache::KvCache;
pub use causal_lm::LlamaForCausalLm;
pub use choice::{ChoiceError, LlamaChoice};
pub use config::{ConfigError, Llama3Scaling, LlamaConfig};
pub use generate::{GenerateError, GenerateOptions};
pub use model::LlamaModel;
pub use rope::Rotary;
pub use rotary_rows::{rows_in_halves, rows_in_pairs};

/// The linear layers that published experiments adapt, by the end of their path.
pub const ADAPTER_TARGETS: [&str; 3] = ["q_proj", "v_proj", "lm_head"];
