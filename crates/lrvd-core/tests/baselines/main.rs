//! The baselines against outside numbers, their own derivatives and their laws.

#![allow(missing_docs, clippy::unwrap_used)]

mod adapters;
mod flipout;
mod gradients;
mod laplace;
mod laplace_curvature;
mod predictions;
#[path = "../support/mod.rs"]
mod shared;
mod support;
