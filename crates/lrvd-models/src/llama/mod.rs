//! Llama: Llama 1 to 3, `SmolLM2`, Mistral, Qwen2, Qwen2.5 and Qwen3.

mod cache;
mod causal_lm;
mod choose;
mod config;
mod family;
mod generate;
pub mod gguf;
mod head;
mod layer;
mod model;

pub use cache::KvCache;
pub use causal_lm::LlamaForCausalLm;
pub use choose::{GeneratedToken, TokenSampling};
pub use config::{Llama3Scaling, LlamaConfig, SlidingWindow};
pub use family::LlamaFamily;
pub use generate::{ContinueFn, GenerateOptions, GeneratedText};
pub use head::LlamaScore;
pub use model::LlamaModel;

/// The linear layers of every block, by the end of their path: what is adapted for language modelling. The head is not
/// among them, as in other tools' `all-linear`.
pub const BLOCK_TARGETS: [&str; 7] =
    ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"];
/// The linear layers that published experiments adapt, by the end of their path.
pub const ADAPTER_TARGETS: [&str; 3] = ["q_proj", "v_proj", "lm_head"];
