//! Adapted linear layers: a frozen base and an optional low-rank adapter with or without a posterior.
//!
//! | file | what |
//! |---|---|
//! | `config`, `start` | what to attach: method, family, rank, scaling, initial values |
//! | `posterior` | the noise parameters of a variational adapter, one variant per family |
//! | `low_rank` | factors A and B, AdaLoRA's singular values, weight draws |
//! | `activation` | moment-matched and nested noise on activations |
//! | `flipout` | one weight draw, turned by signs for every token |
//! | `linear`, `prepared` | [`AdaptedLinear`] and the per-pass [`PreparedLinear`] |
//! | `divergence`, `wide` | KL divergence and its priors, as tensors |
//! | `extension` | what the uncertainty baselines add to an adapter |
//! | `observer` | inputs and gradients of the factors, for curvature |
//! | `streams` | where their noise comes from |
//! | `convert` | merging, and exchange with Burn's own `apply_lora` |
//!
//! Burn 0.22 has a LoRA of its own, `Module::apply_lora`. It composes the dense weight
//! `W + scale·(a·b)` on every forward and lets autodiff form a dense weight gradient. That cannot
//! express noise on activations, draws per sequence or exact noise regeneration, and it costs a
//! full-size gradient per adapted weight; here the base stays untouched and the update is applied
//! to activations in rank space. `convert` translates between the two.

mod activation;
mod config;
mod convert;
mod divergence;
mod extension;
mod flipout;
mod linear;
mod low_rank;
mod observer;
mod posterior;
mod prepared;
mod start;
mod streams;
mod wide;

pub use config::{AdapterConfig, AdapterKind};
pub use divergence::{ArdHyper, Prior};
pub use extension::{
    AdapterMembers, ContextualGaussian, ElementGaussian, Extension, ExtensionError, ScaleGaussian,
    repeat_for_members,
};
pub use linear::{AdaptedLinear, AdapterSlot};
pub use low_rank::LowRankAdapter;
pub use observer::{ContextDivergence, ObservedUse, Observer};
pub(crate) use posterior::select_plain;
pub use posterior::{ElementParameters, Posterior, RankParameters};
pub use prepared::PreparedLinear;
pub use streams::AdapterStream;
pub use wide::adapter_dtype;
