//! Evaluation: predictions at the posterior mean and at Monte Carlo draws, metrics, analyses.

mod analysis;
mod context;
mod memory;
mod metrics;
mod selective;

pub use analysis::{energy_records, statistic_record};
pub use context::RunContext;
pub use memory::PeakMemory;
pub use metrics::{Scored, label_number, score_draws};
pub use selective::selective_records;
