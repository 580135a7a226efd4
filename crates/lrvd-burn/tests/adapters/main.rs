//! Adapted layers: passes, divergences, initial values, files, pruning and training of every kind of adapter.

#![cfg(feature = "flex")]
#![allow(clippy::unwrap_used)]

mod adalora;
mod adapter;
mod any_module;
mod by_hand;
mod divergence;
mod draws;
mod extension;
mod extension_context;
mod extension_kl;
mod extension_start;
mod extension_use;
mod flipout;
mod members;
mod merge;
mod observer;
mod optimizer;
mod peft_posterior;
mod prune;
mod quantized;
mod schemes;
mod support;
