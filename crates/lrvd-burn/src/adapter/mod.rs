//! Adapted linear layers: a frozen base and an optional low-rank adapter with or without a posterior.
//!
//! Burn 0.22 has a LoRA, `Module::apply_lora`. It composes the dense weight
//! `W + scale·(a·b)` on every forward and lets autodiff form a dense weight gradient. That cannot
//! express noise on activations, draws per sequence or exact noise regeneration, and it costs a
//! full-size gradient per adapted weight; here the base stays untouched and the update is applied
//! to activations in rank space.

mod activation;
mod config;
mod divergence;
mod flipout;
mod initialisation;
mod kind;
mod layer_noise;
mod linear;
mod merge;
mod observer;
mod prepared;
mod schema;
mod streams;
mod wide;

pub use config::{AdapterConfig, AdapterKind};
pub use divergence::{ArdHyper, Prior};
pub(crate) use kind::posterior_schemas;
pub use kind::{
    Adapter, AdapterMembers, ContextualGaussian, ElementGaussian, ElementParameters, Extension,
    LowRankAdapter, Posterior, RankParameters, ScaleGaussian, repeat_for_members,
};
pub use linear::{AdaptedLinear, AdapterSlot};
pub use observer::{ContextDivergence, ObservedUse, Observer};
pub use prepared::PreparedLinear;
pub use schema::{Axis, ParameterSchema};
pub(crate) use schema::{RankCut, Sizes};
pub use streams::AdapterStream;
pub use wide::adapter_dtype;
