//! Measures of predictions: how good, how calibrated and how uncertain they are.
//!
//! Everything reads row-major `[n, n_classes]` slices of probabilities (or log-probabilities) in `f64`, and class
//! indices. Inputs are checked once, where they enter; what cannot be computed is a [`MetricError`], never NaN.
//!
//! | File            | Holds                                                                        |
//! |-----------------|------------------------------------------------------------------------------|
//! | `classification`| accuracy, F1, Matthews correlation from predicted classes                     |
//! | `correlation`   | Pearson and Spearman                                                         |
//! | `predictions`   | checked probabilities with labels: NLL, Brier score, confidences               |
//! | `calibration`   | reliability bins, expected calibration error and its floor, three conventions  |
//! | `ranking`       | area under the ROC curve of a score: out of distribution against in          |
//! | `selective`     | risk-coverage curve, its area, threshold for a target risk, with a bound      |
//! | `uncertainty`   | softmax, Monte Carlo average, entropies, mutual information                  |
//! | `summary`       | mean, sample standard deviation, median over seeds                           |

mod calibration;
mod check;
mod classification;
mod correlation;
mod error;
mod predictions;
mod ranking;
mod selective;
mod summary;
mod uncertainty;

pub use calibration::{Binning, DEFAULT_BINS, ReliabilityBin, ReliabilityDiagram, ece, ece_floor};
pub use classification::{BinaryCounts, accuracy, f1_macro};
pub use correlation::{average_ranks, pearson, spearman};
pub use error::MetricError;
pub use predictions::{NLL_FLOOR, Predictions, ROW_SUM_TOLERANCE, argmax_rows};
pub use ranking::auroc;
pub use selective::{RiskCoverage, RiskCoveragePoint, error_rate_bound};
pub use summary::{mean, median, sample_sd};
pub use uncertainty::{
    Uncertainty, entropy, log_mean_probability, log_softmax, mean_probability, softmax, uncertainty,
};
