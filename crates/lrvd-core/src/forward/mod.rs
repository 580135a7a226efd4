//! Noise in one forward pass, and the gradient through it.
//!
//! Every scheme takes its standard-normal draws as an argument and returns a pass that remembers
//! what the backward needs. Outputs are those of the adapter alone, `scaling · y`, without the
//! frozen layer.
//!
//! | Scheme                              | Law for one token        | Across tokens      |
//! |-------------------------------------|--------------------------|--------------------|
//! | [`MomentMatchedPass`]               | mean and variance only   | independent        |
//! | [`NestedPass`]                      | exact                    | independent        |
//! | [`WeightPass`]                      | exact                    | exact for one draw |
//!
//! A weight draw serves every token it is given: pass the tokens of one sequence for a draw per
//! sequence, those of a whole batch for a draw per batch. A rank of 0 contributes exactly nothing,
//! not even the noise of [`EPS_VARIANCE`](crate::family::EPS_VARIANCE).

mod moment_matched;
mod nested;
mod weight;

pub use moment_matched::MomentMatchedPass;
pub use nested::{NestedNoise, NestedPass};
pub use weight::{WeightNoise, WeightPass, sample_weights};

use crate::posterior::PosteriorGradient;

/// The gradient of a scalar loss with respect to everything that entered a pass.
#[derive(Debug, Clone, PartialEq)]
pub struct ForwardGradient {
    /// With respect to the inputs, `[tokens, d_input]`.
    pub x: Vec<f64>,
    /// With respect to the posterior.
    pub posterior: PosteriorGradient,
}
