//! Adapted layers: passes, divergences, initial values, files, pruning and training of every kind of adapter.

#![cfg(feature = "flex")]
#![allow(clippy::unwrap_used)]

mod adalora;
mod adapter;
mod any_module;
mod divergence;
mod extension;
mod flipout;
mod members;
mod observer;
mod optimizer;
mod peft_posterior;
mod prune;
mod pytorch;
mod quantized;
mod schemes;
mod start;
mod support;
