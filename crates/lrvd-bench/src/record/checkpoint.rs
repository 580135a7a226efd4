//! What is measured at one checkpoint of one run.
//!
//! The last and the best checkpoint are two records of the same shape: ranks, metrics and statistics in one
//! record all belong to the same weights.

use std::collections::BTreeMap;

use lrvd_core::metrics::{ReliabilityDiagram, ece_floor};
use serde::{Deserialize, Serialize};

use super::real;

/// The two checkpoints of a run; null where the run stopped before its first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Checkpoints {
    pub last: Option<CheckpointRecord>,
    /// The best by the validation metric: chosen on the data it is reported on, so optimistic.
    pub best: Option<CheckpointRecord>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CheckpointRecord {
    pub step: u64,
    /// Effective rank by module path; modules of rank 0 are listed.
    pub ranks: BTreeMap<String, u32>,
    pub total_rank: u64,
    /// `total_rank / n_modules`: the "rank" of the paper's first table.
    #[serde(with = "real")]
    pub average_rank: f64,
    /// `100 * average_rank / initial_rank`.
    #[serde(with = "real")]
    pub percent_rank: f64,
    /// Metrics by number of posterior draws; 0 is the posterior mean.
    pub metrics: BTreeMap<u32, Metrics>,
    /// Reliability bins by number of posterior draws; empty for regression.
    pub reliability: BTreeMap<u32, Reliability>,
    /// Selective prediction by number of posterior draws; empty for regression.
    pub selective: BTreeMap<u32, SelectiveRecord>,
    /// Seconds to answer the validation split, by number of posterior draws.
    pub predict_seconds: BTreeMap<u32, f64>,
    /// The relevance statistic of every component; null for methods that have none.
    pub statistics: Option<StatisticRecord>,
    /// Energy captured by ordered components, by module path; empty for methods that learn no order.
    pub energy: BTreeMap<String, EnergyRecord>,
}

/// Validation metrics at one number of draws; a null is a metric the task does not have.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Metrics {
    pub n: u64,
    #[serde(with = "real")]
    pub accuracy: Option<f64>,
    /// Mean over classes of the F1 score, 0 where it is undefined.
    #[serde(with = "real")]
    pub macro_f1: Option<f64>,
    /// The task's own metrics by name: `matthews`, `f1`; `pearson`, `spearman`, `mse` for regression.
    #[serde(with = "real")]
    pub standard: BTreeMap<String, f64>,
    /// Negative log-likelihood, nats per example.
    #[serde(with = "real")]
    pub nll: Option<f64>,
    /// Expected calibration error, 15 bins, a fraction.
    #[serde(with = "real")]
    pub ece: Option<f64>,
    /// Brier score, summed over classes, in `[0, 2]`.
    #[serde(with = "real")]
    pub brier: Option<f64>,
    /// Mean predictive entropy, nats.
    #[serde(with = "real")]
    pub entropy: Option<f64>,
    /// Mean mutual information between prediction and weights, nats; null without draws.
    #[serde(with = "real")]
    pub mutual_information: Option<f64>,
}

/// Answering only where the model is sure: risk against coverage.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SelectiveRecord {
    /// Area under the risk-coverage curve; 0 is perfect.
    #[serde(with = "real")]
    pub area: f64,
    /// The confidence to ask for, by the share of wrong answers that is accepted.
    pub targets: Vec<SelectiveTarget>,
    /// Coverage and risk of the curve, thinned to at most a hundred points.
    pub curve: Vec<(f64, f64)>,
}

/// What a wanted risk costs in coverage.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SelectiveTarget {
    /// Largest share of wrong answers among those given.
    #[serde(with = "real")]
    pub risk: f64,
    /// Confidence from which on an answer is given; null where no threshold reaches the risk.
    #[serde(with = "real")]
    pub threshold: Option<f64>,
    /// Share of the examples that are then answered.
    #[serde(with = "real")]
    pub coverage: f64,
}

/// How well uncertainty tells the questions of another set from a run's own.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OodRecord {
    pub n: u64,
    /// Area under the ROC curve of the predictive entropy; one half says nothing.
    #[serde(with = "real")]
    pub auroc_entropy: f64,
    /// The same of the mutual information; null where all draws agree by construction.
    #[serde(with = "real")]
    pub auroc_mutual_information: Option<f64>,
    /// Share of right answers by the labels of the other set, as published; null where the model or what was fitted
    /// to it has no other answers than its own.
    #[serde(with = "real", default)]
    pub accuracy: Option<f64>,
    /// Mean negative log-likelihood of those answers, nats.
    #[serde(with = "real", default)]
    pub nll: Option<f64>,
    #[serde(with = "real", default)]
    pub ece: Option<f64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reliability {
    /// Name of the binning convention: `torchmetrics`, `right_closed`, `left_closed`.
    pub convention: String,
    #[serde(with = "real")]
    pub ece: f64,
    /// The bins in order; empty bins may be left out.
    pub bins: Vec<BinRecord>,
}

impl Reliability {
    /// The mean calibration error of a perfectly calibrated model with these confidences.
    pub fn floor(&self) -> f64 {
        ece_floor(self.bins.iter().map(|bin| (bin.count as f64, bin.confidence)))
    }
}

impl From<&ReliabilityDiagram> for Reliability {
    fn from(diagram: &ReliabilityDiagram) -> Self {
        let bins = diagram.bins.iter().map(|bin| BinRecord {
            low: bin.low,
            high: bin.high,
            count: bin.count as u64,
            accuracy: bin.accuracy().unwrap_or(0.0),
            confidence: bin.mean_confidence().unwrap_or(0.0),
        });
        Self { convention: "torchmetrics".to_owned(), ece: diagram.ece(), bins: bins.collect() }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BinRecord {
    #[serde(with = "real")]
    pub low: f64,
    #[serde(with = "real")]
    pub high: f64,
    pub count: u64,
    /// Fraction of them answered right; 0 in an empty bin.
    #[serde(with = "real")]
    pub accuracy: f64,
    /// Their mean confidence; 0 in an empty bin.
    #[serde(with = "real")]
    pub confidence: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StatisticRecord {
    /// What it is: `log_alpha` (small is relevant) or `importance` (large is relevant).
    pub name: String,
    /// The prune threshold; null where the rule is a budget.
    #[serde(with = "real")]
    pub threshold: Option<f64>,
    /// Values of the components present at this checkpoint, ascending, by module path.
    #[serde(with = "real")]
    pub present: BTreeMap<String, Vec<f64>>,
    /// Values that removed components had when they were removed, ascending, by module path.
    #[serde(with = "real")]
    pub removed: BTreeMap<String, Vec<f64>>,
}

/// Energy of the mean update captured by its first `k` components, `k = 0..=rank`, in one module.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EnergyRecord {
    /// `residual`, `projection` or `partial_norm`.
    pub definition: String,
    /// Upper bound: singular values of the update.
    #[serde(with = "real")]
    pub svd: Vec<f64>,
    /// Components ordered by the learned relevance statistic.
    #[serde(with = "real")]
    pub learned: Vec<f64>,
    /// Control: components ordered by the product of their factor norms.
    #[serde(with = "real")]
    pub magnitude: Vec<f64>,
    #[serde(with = "real")]
    pub random_mean: Vec<f64>,
    pub auc: EnergyAuc,
}

/// Areas under the energy curves, trapezoid rule over `k / rank`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EnergyAuc {
    #[serde(with = "real")]
    pub svd: f64,
    #[serde(with = "real")]
    pub learned: f64,
    #[serde(with = "real")]
    pub magnitude: f64,
    #[serde(with = "real")]
    pub random: f64,
    /// `(learned - random) / (svd - random)`; null where the denominator vanishes.
    #[serde(with = "real")]
    pub normalised_gap: Option<f64>,
}
