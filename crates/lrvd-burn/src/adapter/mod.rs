//! Adapted linear layers: a frozen base and an optional low-rank adapter with or without a posterior.
//!
//! An adapter is a [`Reparameterization`](burn::module::Reparameterization) of the weight's `Param`, as Burn's own LoRA is
//! (`Module::apply_lora`): `Param::val` composes the dense weight `W + c·A·B`. A composed weight cannot
//! express noise on activations or draws per sequence, and autodiff forms a full-size gradient of it. [`AdaptedLinear`]
//! therefore reads the base and applies the update to activations in rank space.

mod activation;
mod attached;
mod config;
mod divergence;
mod fresh;
mod initialisation;
mod kind;
mod linear;
mod noise;
mod op;
mod prepared;
mod schema;

pub use attached::{AdapterSlot, Attached};
pub(crate) use attached::{Attach, set as set_attached};
pub use config::{AdapterConfig, AdapterKind};
pub use divergence::{ArdHyper, Prior, widened};
pub use initialisation::{adapter_dtype, initial_uniform};
pub(crate) use kind::posterior_schemas;
pub use kind::{Extension, Gaussian, LowRankAdapter, NoiseMap};
pub use linear::{AdaptedLinear, BaseBits};
pub use noise::LayerNoise;
pub use op::{
    OpExtension, OpLayer, OpParameter, OpValue, PreparedUpdate, UpdateOp, repeat_for_members,
};
pub use prepared::PreparedLinear;
pub(crate) use schema::Sizes;
pub use schema::{Axis, ParameterSchema};
