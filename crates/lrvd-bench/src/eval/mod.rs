//! Evaluation: predictions at the posterior mean and at Monte Carlo draws, metrics, analyses.

mod analysis;
mod memory;
mod metrics;
mod predict;
mod prepare;

pub use analysis::{energy_records, statistic_record};
pub use memory::peak_memory;
pub use metrics::{Scored, label_number, mean_metrics, score_draws};
pub use predict::{Batching, DrawSeed, evaluate_mean, predict_draws, predict_logits, predict_mean};
pub use prepare::PreparedTask;
