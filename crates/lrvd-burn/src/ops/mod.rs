//! The operators of a training step that are worth a hand-written implementation.
//!
//! | Operator                | What is fused                                                     |
//! |-------------------------|-------------------------------------------------------------------|
//! | [`adapted_linear()`]      | a frozen linear layer and its low-rank update, in one pass        |
//! | [`moment_matched_linear()`] | the same with the noise of a rank-tied posterior on its output |
//! | [`gelu()`]                | exact GELU, several times faster than one `erf` call per element  |
//! | [`gated_silu()`]          | the gate of a feed-forward block: `SiLU` times the other factor   |
//! | [`attention()`]           | scores, mask, softmax and mixing, without a matrix of scores      |
//! | [`disentangled_attention()`] | `DeBERTa`'s scores, softmax and mixing; position rows are read in place |
//! | [`layer_norm()`]          | statistics, normalisation and gain, with their gradients          |
//! | [`rms_norm()`]            | the same without centring                                         |
//! | [`dropout()`]             | mask recomputed from its key instead of stored                    |
//! | [`gaussian_draw()`]       | several draws of a weight; the noise is computed again backwards  |
//! | [`standard_normal()`]     | counter-based noise, the same words on every backend              |
//! | [`add_rank_two_noise`]  | moment-matched output noise of the rank-tied posterior            |
//! | [`add_gaussian_noise`]  | the same for a variance without structure                         |
//! | [`row_energy()`]          | weighted sums of squares: the two factors of that noise           |
//! | [`kl_log_uniform()`]      | KL to the log-uniform prior, summed per rank                      |
//!
//! Each is a definition by tensor operations, and fused forms on the backends that have one.
//! On other backends the definition runs, and Burn differentiates it. Results of the CPU backend do not depend on the
//! number of threads.

#[cfg(feature = "flex")]
mod cpu;
#[cfg(feature = "cube")]
mod cube;
mod op;
pub(crate) mod packed;
mod quantized_linear;
mod recompute;
mod value;

mod adamw;
mod adapted_linear;
mod attention;
pub mod disentangled_attention;
mod dropout;
mod gated_silu;
mod gaussian_draw;
mod gelu;
mod kl_log_uniform;
mod moment_matched;
mod norm;
mod rank_two_noise;
mod row_energy;
mod standard_normal;
mod window;

pub(crate) use adamw::{AdamWUpdate, moving_average};
pub(crate) use adapted_linear::packed_linear;
pub use adapted_linear::{LowRank, adapted_linear};
pub use attention::attention;
pub use disentangled_attention::disentangled_attention;
pub use dropout::dropout;
pub use gated_silu::gated_silu;
pub use gaussian_draw::gaussian_draw;
pub use gelu::gelu;
pub use kl_log_uniform::kl_log_uniform;
pub use moment_matched::{OutputNoise, moment_matched_linear};
pub use norm::{layer_norm, rms_norm};
pub use op::by_definition;
pub use packed::Packing;
pub(crate) use quantized_linear::quantized_linear;
pub use rank_two_noise::{Noise, add_gaussian_noise, add_rank_two_noise};
pub(crate) use recompute::recompute;
pub use row_energy::row_energy;
pub use standard_normal::standard_normal;
pub use window::Window;
