//! Training a model of one's own: resume bit for bit, prunes, checkpoints, sources of batches.

#![cfg(feature = "flex")]
#![allow(missing_docs, clippy::unwrap_used)]

mod checkpoints;
mod loop_;
mod net;
mod rank_path;
mod resume;
mod saved;
mod tokens;
