//! Changes of basis that leave the update `B·A` alone, and those that leave the posterior alone.
//!
//! The product of the factors does not change under `A → R·A, B → B·R⁻¹` for any invertible `R`. A
//! variational family breaks most of these symmetries: independent rows stay independent only under few.

mod action;
mod singular;

pub use action::{DiagonalAction, Gauge, PushForward, push_forward};
pub use singular::{SingularFactors, singular_factors};
