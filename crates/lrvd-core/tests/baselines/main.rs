//! The baselines against outside numbers.

#![allow(missing_docs, clippy::unwrap_used)]

mod adalora;
mod adapters;
mod laplace;
mod predictions;
#[path = "../support/mod.rs"]
mod shared;
mod support;
