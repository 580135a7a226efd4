//! The posterior against outside numbers, its own derivatives and its laws.

#![allow(missing_docs, clippy::unwrap_used)]

mod conformance;
mod golden_energy;
mod golden_forward;
mod golden_gauge;
mod golden_kl;
mod golden_moments;
mod gradients;
mod gradients_priors;
mod initialisation;
mod properties;
#[path = "../support/mod.rs"]
mod shared;
mod support;
