//! Metrics for burn-train's learner and dashboard.
//!
//! The loop of this project is its own, because burn-train's cannot promise that a resumed run ends
//! in the same numbers; the display of a run is burn-train's.

mod metric;
mod quantities;

pub use metric::{Measured, Quantity};
pub use quantities::{
    Accuracy, AccuracyMetric, Brier, BrierMetric, ClassesInput, Ece, EceMetric, ExamplesInput,
    ExamplesPerSecond, ExamplesPerSecondMetric, Kl, KlInput, KlMetric, Nll, NllInput, NllMetric,
    RankInput, TotalRank, TotalRankMetric,
};
