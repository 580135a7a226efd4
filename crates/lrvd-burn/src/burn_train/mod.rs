//! What burn-train shows and drives: metrics for its learner and dashboard, and a step for its learner.
//!
//! The loop of this project is its own, because burn-train's cannot promise that a resumed run ends
//! in the same numbers; the display of a run, and the way in for those who keep burn-train's
//! `Learner`, are burn-train's.

mod gradients;
mod learner;
mod metric;
mod output;
mod quantities;

pub use learner::Learning;
pub use metric::{Measured, Quantity};
pub use output::StepOutput;
pub use quantities::{
    Accuracy, AccuracyMetric, Brier, BrierMetric, ClassesInput, Ece, EceMetric, ExamplesInput,
    ExamplesPerSecond, ExamplesPerSecondMetric, Kl, KlInput, KlMetric, Nll, NllInput, NllMetric,
    RankInput, TotalRank, TotalRankMetric,
};
