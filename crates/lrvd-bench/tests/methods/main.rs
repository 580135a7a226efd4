//! Every fine-tuning method on tiny random models: parameter counts, objectives against their
//! definitions, updates by hand, predictions, resumed runs.

#![allow(missing_docs, clippy::unwrap_used)]

mod every;
mod harness;
mod ops;
mod posthoc;
mod steps;
