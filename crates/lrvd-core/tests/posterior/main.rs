//! The posterior against outside numbers and its own invariants.

#![allow(missing_docs, clippy::unwrap_used)]

mod conformance;
mod initialisation;
mod properties;
#[path = "../support/mod.rs"]
mod support;

use support::assert_close;
