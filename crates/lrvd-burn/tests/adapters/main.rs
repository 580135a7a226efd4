//! Adapted layers: passes, divergences, initial values, files, pruning and training of every kind of adapter.

#![cfg(feature = "flex")]
#![allow(clippy::unwrap_used)]

mod any_module;
mod divergence;
mod files;
mod layers;
mod optimizer;
mod packing;
mod passes;
mod prune;
mod pytorch;
mod start;
mod support;
mod tuned;
mod walks;
