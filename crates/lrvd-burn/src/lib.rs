//! Variational low-rank adapters for Burn.
//!
//! A pretrained linear layer becomes an [`adapter::AdaptedLinear`]: its frozen weight plus an
//! optional low-rank update, which may carry a Gaussian posterior over its rank directions. The
//! posterior says which directions matter; [`prune()`] removes the others for real.
//!
//! | Module | What it answers |
//! |---|---|
//! | [`adapter`] | what is attached to a layer, and its forward pass and KL |
//! | [`train`] | the loop, checkpoints, resume and prediction, for any model |
//! | [`sampling`] | how noise enters one forward pass |
//! | [`tune`], [`nn`] | how any Burn module is fine-tuned |
//! | [`model`], [`parameters`] | how a model of yours takes part |
//! | [`objective`], [`optimizer`] | what is minimised, and by what |
//! | [`mod@prune`], [`adalora`] | how ranks are pruned |
//! | [`gauge`] | adapters rotated to the singular directions of their update |
//! | [`peft`], [`files`] | how adapters come from and go to disk |
//! | [`text`] | names from files, for terminals and Markdown |
//! | [`ops`] | the fused operators |
//! | [`device`] | devices by name |
//! | `burn_train` | metrics and a step for burn-train's learner (feature `train`) |
//! | `schema` | JSON schemas of what settings files hold (feature `schema`) |

pub mod adalora;
pub mod adapter;
#[cfg(feature = "train")]
pub mod burn_train;
pub mod device;
pub mod error;
pub mod files;
pub mod gauge;
pub mod host;
pub mod model;
pub mod nn;
pub mod objective;
pub mod ops;
pub mod optimizer;
pub mod parameters;
pub mod peft;
pub mod prune;
pub mod sampling;
#[cfg(feature = "schema")]
pub mod schema;
pub mod selection;
pub mod text;
pub mod train;
pub mod tune;

pub use burn;
pub use lrvd_core as core;

pub use error::Error;

pub use adapter::{AdaptedLinear, AdapterConfig, AdapterKind, Prior};
pub use model::{NamedModule, attach_adapters, ranks, total_kl};
pub use sampling::{Pass, Scheme};
pub use selection::Selection;
pub use train::{BayesLora, Prediction, Run, TrainConfig};
pub use tune::{attach, kl, load, predict, prune, save, trainable, unfreeze, with_pass};

/// The examples of the guides and of the README, run as tests.
#[cfg(all(doctest, feature = "flex"))]
mod guides {
    #[doc = include_str!("../README.md")]
    struct Readme;
    #[doc = include_str!("../../../docs/guides/first-adapter.md")]
    struct FirstAdapter;
}
