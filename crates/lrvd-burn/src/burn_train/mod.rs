//! Metrics for burn-train's learner and dashboard, and a step for its learner.
//!
//! The loop of [`train`](crate::train) is separate, because burn-train's cannot promise that a resumed run ends
//! in the same numbers; a run can be displayed by burn-train, and its `Learner` can train by this crate's methods.

mod learner;
mod metrics;

pub use learner::Learning;
pub use metrics::{StepMetric, StepOutput};
