//! Measures of predictions: how good, how calibrated and how uncertain they are.
//!
//! Everything reads row-major `[n, n_classes]` slices of probabilities (or log-probabilities) in `f64`, and class
//! indices. Inputs are checked once, where they enter; what cannot be computed is an [`Error`](crate::Error), never NaN.

mod calibration;
mod classification;
mod outliers;
mod predictions;
mod selective;
mod statistics;
mod uncertainty;

pub use calibration::{Binning, DEFAULT_BINS, ReliabilityBin, ReliabilityDiagram, ece, ece_floor};
pub use classification::{BinaryCounts, f1_macro};
pub use outliers::{Aurocs, ClassDistance, conformal_p, free_energy};
pub use predictions::{NLL_FLOOR, Predictions, ROW_SUM_TOLERANCE, argmax_rows};
pub use selective::{RiskCoverage, RiskCoveragePoint, error_rate_bound};
pub use statistics::{auroc, average_ranks, mean, pearson, sample_sd, spearman};
pub use uncertainty::{Uncertainty, entropy, log_softmax, mean_probability, softmax, uncertainty};
