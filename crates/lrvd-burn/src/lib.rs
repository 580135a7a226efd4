//! Variational low-rank adapters for Burn.
//!
//! [`BayesLora`] puts adapters with a Gaussian posterior over their rank directions on the linear layers of any Burn module.
//! The result is a [`Tuned`] model: it is trained by any of Burn's optimizers, loses the ranks that are mostly noise, is saved
//! as PEFT saves, and predicts with as many draws from the posterior as asked for.
//!
//! | Module | Content |
//! |---|---|
//! | [`train`] | the ready-made loop: checkpoints, exact resume, prediction |
//! | [`adapter`], [`nn`] | adapters of a layer, their forward pass and divergence |
//! | [`sampling`] | noise of one forward pass |
//! | [`model`], [`parameters`] | walks over the layers and parameters of a model |
//! | [`objective`], [`optimizer`] | the objective, and an AdamW as PyTorch's |
//! | [`prune`] | removal of ranks |
//! | [`peft`], [`files`] | adapters and tensors on disk |
//! | [`ops`] | fused operators |
//! | [`device`], [`text`] | devices by name; names from files, for terminals and Markdown |
//! | `burn_train` | metrics and a step for burn-train's learner (feature `train`) |
//! | `schema` | JSON schemas of settings files (feature `schema`) |

#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod adapter;
mod bayes_lora;
#[cfg(feature = "train")]
pub mod burn_train;
pub mod device;
pub mod error;
pub mod files;
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
mod selection;
pub mod text;
pub mod train;
mod tuned;

pub use burn;
pub use lrvd_core as core;

pub use bayes_lora::BayesLora;
pub use error::Error;
pub use selection::Selection;
pub use train::{Prediction, Run, TrainConfig};
pub use tuned::{Adaptation, Tuned};

/// The examples of the README, the guides and the tutorials, run as tests.
#[cfg(all(doctest, feature = "flex"))]
mod guides {
    #[doc = include_str!("../README.md")]
    struct Readme;
    #[doc = include_str!("../../../docs/guides/first-adapter.md")]
    struct FirstAdapter;
    #[doc = include_str!("../../../docs/tutorials/own-model.md")]
    struct OwnModel;
}
