//! The posterior against printed numbers, its own derivatives and its laws.

#![allow(missing_docs, clippy::unwrap_used)]

mod conformance;
mod gradients;
mod gradients_priors;
mod initialisation;
mod properties;
#[path = "../support/mod.rs"]
mod support;
