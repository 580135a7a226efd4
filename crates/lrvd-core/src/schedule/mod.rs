//! The learning rate and the weight of the KL term at a given step.
//!
//! Steps count optimiser updates from 0. Every schedule is a checked value: one that exists can be evaluated at
//! any step.

mod kl_weight;
mod learning_rate;

pub use kl_weight::{BatchSize, KlDivisor, KlSchedule, elbo_kl_weight};
pub use learning_rate::LrSchedule;
