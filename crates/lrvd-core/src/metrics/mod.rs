//! Measures of predictions: how good, how calibrated and how uncertain they are.
//!
//! Everything reads row-major `[n, n_classes]` slices of probabilities (or log-probabilities) in `f64`, and class
//! indices. Inputs are checked once, where they enter; what cannot be computed is an [`Error`](crate::Error), never NaN.

mod calibration;
mod classification;
mod correlation;
mod predictions;
mod ranking;
mod selective;
mod summary;
mod uncertainty;

pub use calibration::{Binning, DEFAULT_BINS, ReliabilityBin, ReliabilityDiagram, ece, ece_floor};
pub use classification::{BinaryCounts, accuracy, f1_macro};
pub use correlation::{average_ranks, pearson, spearman};
pub use predictions::{NLL_FLOOR, Predictions, ROW_SUM_TOLERANCE, argmax_rows};
pub use ranking::auroc;
pub use selective::{RiskCoverage, RiskCoveragePoint, error_rate_bound};
pub use summary::{mean, sample_sd};
pub use uncertainty::{
    Uncertainty, entropy, log_mean_probability, log_softmax, mean_probability, softmax, uncertainty,
};
