//! Measures of predictions: accuracy, calibration and uncertainty.
//!
//! Everything reads row-major `[n, n_classes]` slices of probabilities (or log-probabilities) in `f64`, and class
//! indices. Inputs are checked once, where they enter; what cannot be computed is an [`Error`](crate::Error), never NaN.

mod calibration;
mod comparison;
mod label_sets;
mod outcomes;
mod outliers;
mod predictions;
mod probability;
mod selective;
mod statistics;

pub use calibration::{ReliabilityBin, ReliabilityDiagram, ece_floor};
pub use comparison::{Difference, LEVEL, groups_p, holm, pseudo_values};
pub use label_sets::{LabelSetMetrics, f1_threshold};
pub use outcomes::{ClassScores, Outcome};
pub use outliers::{ClassDistance, ClassMoments, conformal_p, conformal_radius};
pub use predictions::{NLL_FLOOR, Predictions, Score};
pub use probability::{
    ROW_SUM_TOLERANCE, Uncertainty, argmax_rows, choice_confidence, expected_level, free_energy,
    log_softmax, mean_probability, score_confidence, softmax, uncertainty,
};
pub use selective::{RiskCoverage, RiskCoveragePoint};
pub use statistics::{
    Aurocs, auroc, mean, mean_and_variance, pearson, r_squared, sample_sd, spearman,
};
