//! AdamW over named parameters, with state that pruning can cut and a checkpoint can hold.
//!
//! Burn's own optimiser keeps its state by random parameter ids behind a byte record, holds its
//! betas in f32 and clips per tensor. Here the state is keyed by checkpoint name, scalars are f64
//! as in PyTorch, and the gradient norm is global; a prune slices the moments along the pruned
//! axis, and a resumed run continues bit for bit.

mod adamw;
mod gradients;
mod groups;

pub use adamw::{AdamW, AdamWConfig, Moments};
pub use gradients::NamedGradients;
pub use groups::{GroupRates, ParameterGroups};
