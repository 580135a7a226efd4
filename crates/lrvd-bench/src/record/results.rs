//! The schema of `results.json`: what was run, on what, and what came out, run by run; and of the files beside it that have
//! one value on each line.
//!
//! Every map is ordered and every field is written, so the same results give the same bytes. Reading is
//! strict: a field that is unknown or missing is an error. Numbers that JSON cannot carry are written as
//! [`super::real`] says.

use std::collections::{BTreeMap, BTreeSet};

use lrvd_burn::train::{Choice, RankEvent};
use lrvd_core::metrics::{ReliabilityDiagram, ece_floor};
use serde::{Deserialize, Serialize};

use super::classes::ClassReport;
use super::real;
use crate::text::decimals;

pub const SCHEMA_VERSION: u32 = 5;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Results {
    pub schema_version: u32,
    pub suite: String,
    pub tool: Tool,
    pub profile: String,
    pub preset: String,
    pub command: String,
    pub device: String,
    pub started_at: String,
    /// RFC 3339, as the start; empty until the end.
    pub finished_at: String,
    /// The resolved configuration: what was used, not what was written.
    pub config: serde_json::Value,
    pub model: ModelRecord,
    pub data: BTreeMap<String, TaskData>,
    /// Number of seeds that the plan has, by task and method; parts of ensembles are not counted.
    pub planned: BTreeMap<String, BTreeMap<String, u64>>,
    pub runs: Vec<RunRecord>,
    pub notes: Vec<String>,
}

impl Results {
    /// Runs that took all their steps: only these are in tables.
    pub(crate) fn finished(&self) -> impl Iterator<Item = &RunRecord> {
        self.runs.iter().filter(|run| run.status == RunStatus::Finished)
    }

    pub(crate) fn standard_metric(&self, task: &str) -> &str {
        self.data.get(task).map_or("accuracy", |data| &data.standard_metric)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tool {
    pub name: String,
    pub version: String,
    /// Git revision that `cargo xtask` built the program from, with `-dirty` where the tree had changes; null for a
    /// program that was built without it: then `version` is all there is.
    pub git_revision: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelRecord {
    pub name: String,
    pub path: String,
    /// SHA-256 in lower-case hex of each weight file, by file name.
    pub weights: BTreeMap<String, String>,
    /// Parameters of the backbone, adapters and head not counted.
    pub parameters: u64,
    pub notes: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskData {
    pub train: SplitRecord,
    pub validation: SplitRecord,
    pub standard_metric: String,
    /// Further notes, e.g. the share of flipped labels.
    pub note: String,
}

impl TaskData {
    pub(crate) fn files(&self) -> impl Iterator<Item = &DataFile> {
        self.train.files.iter().chain(&self.validation.files)
    }

    /// Hashes of its files, wherever they are.
    pub(crate) fn hashes(&self) -> BTreeSet<&str> {
        self.files().map(|file| file.sha256.as_str()).collect()
    }

    /// Why numbers on these data are not comparable with published ones; none for official data.
    pub fn caveat(&self) -> Option<String> {
        let mut parts = Vec::new();
        for (split, record) in [("training", &self.train), ("validation", &self.validation)] {
            match record.origin {
                DataOrigin::Official => {}
                DataOrigin::Subset => {
                    parts.push(format!("{split} data are a subset of {} rows", record.rows));
                }
                DataOrigin::LocalDev => {
                    parts.push(format!("{split} data are a local split of {} rows", record.rows));
                }
                DataOrigin::Generated => parts.push(format!("{split} data are generated")),
            }
        }
        (!parts.is_empty()).then(|| parts.join("; "))
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SplitRecord {
    pub files: Vec<DataFile>,
    pub rows: u64,
    pub origin: DataOrigin,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DataFile {
    pub path: String,
    pub sha256: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DataOrigin {
    Official,
    Subset,
    /// Cut from the training split, because the official one is not at hand.
    LocalDev,
    Generated,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunRecord {
    pub task: String,
    pub method: String,
    pub seed: u64,
    pub status: RunStatus,
    pub rank_budget: RankBudget,
    pub steps: u64,
    /// Rows that every step draws from.
    pub train_rows: u64,
    /// Training rows held out: they cut the ranks, or fit what is fitted after training.
    pub held_out_rows: u64,
    pub checkpoints: Checkpoints,
    /// Seconds spent training, evaluation not counted.
    pub train_seconds: f64,
    pub evaluate_seconds: f64,
    /// Highest resident memory of the process in bytes while this run was made, `start_memory_bytes` included; null
    /// where the system does not tell it for one run. Of averaged runs, the largest.
    pub peak_memory_bytes: Option<u64>,
    /// Resident memory of the process in bytes at the start of the run: the program, data, and what earlier runs left.
    pub start_memory_bytes: Option<u64>,
    /// Parameters of the model that the run ended with, pruned ranks gone, and what is kept beside them.
    pub trainable_parameters: ParameterCounts,
    /// Values fitted after training, by name: a prior precision, a noise level, a temperature.
    #[serde(default, with = "real", skip_serializing_if = "BTreeMap::is_empty")]
    pub fitted: BTreeMap<String, f64>,
    pub history: Vec<EvalPoint>,
    /// The ranks whenever they changed, the first entry at the start of training.
    pub rank_events: Vec<RankEvent>,
    /// The number of directions that held-out training rows showed to be enough, of a search for ranks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub choice: Option<Choice>,
    /// Scores of every class of the kept model on the validation rows at the posterior mean, of `lrvd train`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub classes: Option<ClassReport>,
    /// The regression on the frozen encoder beside it, of a run of `lrvd train` for which it was fitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline: Option<BaselineRecord>,
    /// By set and number of posterior draws.
    pub ood: BTreeMap<String, BTreeMap<u32, OodRecord>>,
}

/// A regression on features of the frozen encoder, and the adapter of the run beside it on the same validation rows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BaselineRecord {
    /// Rows that it was fitted to: those that the run trained on and those that it held out.
    pub train_rows: u64,
    /// Validation rows that both answered.
    pub rows: u64,
    /// Accuracy of the regression, a fraction.
    pub accuracy: f64,
    /// Its negative log-likelihood under its temperature, nats per row.
    #[serde(with = "real")]
    pub nll: Option<f64>,
    /// Weight of `‖W‖²/2`, chosen by cross-validation.
    pub strength: f64,
    /// Temperature of its answers; null of too few rows.
    #[serde(with = "real")]
    pub temperature: Option<f64>,
    /// Accuracy of the adapter at the mean less that of the regression.
    pub difference: f64,
    /// Standard error of the difference, paired by row; null of one row.
    #[serde(with = "real")]
    pub error: Option<f64>,
    pub seconds: f64,
}

impl BaselineRecord {
    /// One line, and where the rows do not show that the adapter is better the method that fits the regression alone.
    pub fn describe(&self) -> String {
        let Self { rows, accuracy, difference, .. } = *self;
        // A share without the zero before its point.
        let share = |value: f64| decimals(value, 3).replacen("0.", ".", 1);
        let sign = if difference > 0.0 { "+" } else { "" };
        let error = self.error.map_or_else(String::new, |error| format!(" ± {}", share(error)));
        let verdict = if difference <= 0.0 {
            "; the adapter is not better on these rows: `--method linear` fits the regression alone, in seconds"
        } else if self.error.is_none_or(|error| difference <= 2.0 * error) {
            "; these rows do not show that the adapter is better: `--method linear` fits the regression alone, in seconds"
        } else {
            ""
        };
        format!(
            "frozen encoder + regression: {}, this adapter: {} (difference {sign}{}{error}), accuracy on {rows} validation \
             rows{verdict}",
            share(accuracy),
            share(accuracy + difference),
            share(difference),
        )
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum RunStatus {
    Finished,
    Interrupted,
    Failed { reason: String },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RankBudget {
    /// Rank of every module at the start; `percent_rank` refers to it.
    pub initial_rank: u32,
    /// Average rank asked for at the end; null where the method finds its own.
    pub requested: Option<f64>,
    pub n_modules: u32,
    /// Source of the request, e.g. `parameters matched to BayesLoRA`.
    pub note: String,
}

impl RankBudget {
    /// Of no modules yet.
    pub(crate) fn new(initial_rank: usize, requested: Option<usize>, note: &str) -> Self {
        let requested = requested.map(|rank| rank as f64);
        Self { initial_rank: initial_rank as u32, requested, n_modules: 0, note: note.to_owned() }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ParameterCounts {
    pub adapter: u64,
    /// Log-variances, or a method's own additions (singular values).
    pub posterior: u64,
    pub head: u64,
    /// Numbers kept for prediction beside the trained ones: moments, curvature factors, a noise level, a temperature.
    pub stored: u64,
}

impl ParameterCounts {
    /// Trained parameters of adapters and posterior, as published tables count: without the head, and without the numbers
    /// kept beside it.
    pub fn trained(&self) -> u64 {
        self.adapter + self.posterior
    }
}

impl std::ops::Add for ParameterCounts {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            adapter: self.adapter + other.adapter,
            posterior: self.posterior + other.posterior,
            head: self.head + other.head,
            stored: self.stored + other.stored,
        }
    }
}

/// The state of training at one evaluation; a null is a quantity the method or task does not have.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EvalPoint {
    pub step: u64,
    /// Mean training objective since the last entry: likelihood, weighted KL and penalty.
    #[serde(with = "real")]
    pub loss: Option<f64>,
    /// Mean training negative log-likelihood since the last entry, nats per example.
    #[serde(with = "real")]
    pub nll: Option<f64>,
    /// KL of the posterior from its prior at the last step, nats; null where it is not part of the objective.
    #[serde(with = "real")]
    pub kl: Option<f64>,
    pub kl_weight: Option<f64>,
    pub learning_rate: f64,
    /// Validation accuracy at the posterior mean, a fraction.
    #[serde(with = "real")]
    pub accuracy: Option<f64>,
    /// Validation value of the task's standard metric at the posterior mean.
    #[serde(with = "real")]
    pub standard: Option<f64>,
    #[serde(with = "real")]
    pub nll_val: Option<f64>,
    pub total_rank: u64,
}

/// The two checkpoints of a run; null where the run stopped before its first. Ranks, metrics and statistics in one all
/// belong to the same weights.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Checkpoints {
    pub last: Option<CheckpointRecord>,
    /// The best by the validation metric: chosen on the data it is reported on, so optimistic if there are several candidates.
    pub best: Option<CheckpointRecord>,
    /// Evaluations that `best` was chosen among. Those before a search cuts the ranks are not candidates.
    pub candidates: u64,
}

impl Checkpoints {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &CheckpointRecord> {
        [&self.last, &self.best].into_iter().flatten()
    }
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
    pub percent_rank: f64,
    /// Metrics by number of posterior draws; 0 is the posterior mean.
    pub metrics: BTreeMap<u32, Metrics>,
    /// Reliability bins by number of posterior draws; empty for regression.
    pub reliability: BTreeMap<u32, Reliability>,
    /// Selective prediction by number of posterior draws; empty for regression.
    pub selective: BTreeMap<u32, SelectiveRecord>,
    /// Seconds to answer the validation split, by number of posterior draws: those that a separate pass answered.
    pub predict_seconds: BTreeMap<u32, f64>,
    /// The relevance statistic of every component; null for methods that have none.
    pub statistics: Option<StatisticRecord>,
    /// Energy captured by ordered components, by module path; empty for methods that learn no order.
    pub energy: BTreeMap<String, EnergyRecord>,
}

/// Validation metrics at one number of draws; a null is a metric the task does not have.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Metrics {
    pub n: u64,
    #[serde(with = "real")]
    pub accuracy: Option<f64>,
    /// Mean of the F1 scores of the classes that are a label or a prediction.
    #[serde(with = "real")]
    pub macro_f1: Option<f64>,
    /// The task's own metrics by name: `matthews`, `f1`; `pearson`, `spearman`, `mse` for regression, and of a saved model `r2`, its
    /// standard error `r2_error` and the `coverage` of its intervals. Null where the rows do not define it.
    #[serde(with = "real")]
    pub standard: BTreeMap<String, Option<f64>>,
    /// Negative log-likelihood, nats per example; of soft labels, as ECE and Brier score, against their shares.
    #[serde(with = "real")]
    pub nll: Option<f64>,
    /// Expected calibration error, 15 bins, a fraction.
    #[serde(with = "real")]
    pub ece: Option<f64>,
    /// Brier score, summed over classes, in `[0, 2]`.
    #[serde(with = "real")]
    pub brier: Option<f64>,
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

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SelectiveTarget {
    /// Largest share of wrong answers among those given.
    pub risk: f64,
    /// Confidence from which on an answer is given; null where no threshold reaches the risk.
    #[serde(with = "real")]
    pub threshold: Option<f64>,
    pub coverage: f64,
}

/// Separation of the questions of another set from those of the task by uncertainty.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OodRecord {
    /// Questions in the areas: those that have an answer among the labels of the trained set.
    pub n_areas: u64,
    /// Area under the ROC curve of the predictive entropy; one half says nothing.
    #[serde(with = "real")]
    pub auroc_entropy: f64,
    /// Area of the mutual information; null if all draws agree by construction.
    #[serde(with = "real")]
    pub auroc_mutual_information: Option<f64>,
    /// Questions in `accuracy`, `nll` and `ece`; null without them.
    pub n: Option<u64>,
    /// Share of right answers by the labels of the other set, as published; null where the model or what was fitted
    /// to it has no other answers than its own.
    #[serde(with = "real")]
    pub accuracy: Option<f64>,
    /// Mean negative log-likelihood of those answers, nats.
    #[serde(with = "real")]
    pub nll: Option<f64>,
    #[serde(with = "real")]
    pub ece: Option<f64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reliability {
    /// Name of the binning convention, `torchmetrics`.
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
    pub low: f64,
    pub high: f64,
    pub count: u64,
    #[serde(with = "real")]
    pub accuracy: f64,
    #[serde(with = "real")]
    pub confidence: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StatisticRecord {
    /// Kind of statistic: `log_alpha` (small is relevant) or `importance` (large is relevant).
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

#[derive(Debug, Clone, Serialize)]
pub struct RankLine<'a> {
    pub task: &'a str,
    pub method: &'a str,
    pub seed: u64,
    #[serde(flatten)]
    pub event: &'a RankEvent,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PredictionLine {
    /// The example: its id in the data, or its row counted from 0.
    pub id: String,
    /// Its line in a text file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    /// Its row in another file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub row: Option<usize>,
    /// The right answer: class index, or score for regression; not a number where there are several.
    pub label: f64,
    /// The right labels of a row with several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<Vec<usize>>,
    /// By number of posterior draws: class probabilities in label order, or the one predicted score.
    #[serde(with = "real")]
    pub probs: BTreeMap<u32, Vec<f64>>,
    /// By number of posterior draws: entropy of the prediction, nats; empty for regression.
    #[serde(with = "real")]
    pub entropy: BTreeMap<u32, f64>,
    /// By number of posterior draws: mutual information between prediction and weights, nats. A number at which a
    /// single model answers has none; an ensemble has one without draws.
    #[serde(with = "real")]
    pub mutual_information: BTreeMap<u32, f64>,
}

#[cfg(test)]
mod tests {
    use super::super::sample::sample_results;
    use super::*;

    fn json(value: &impl Serialize) -> String {
        serde_json::to_string(value).unwrap()
    }

    /// Numbers that JSON cannot carry come back, and null is none of them.
    #[test]
    fn results_come_back_as_they_went() {
        let mut results = sample_results();
        let back: Results = serde_json::from_str(&json(&results)).unwrap();
        assert_eq!(back, results);
        let point = &mut results.runs[0].history[0];
        (point.loss, point.kl, point.nll) = (Some(f64::NAN), Some(f64::NEG_INFINITY), None);
        results.runs[0].checkpoints.last.as_mut().unwrap().average_rank = f64::INFINITY;
        let text = json(&results);
        assert!(text.contains("\"average_rank\":\"inf\""));
        let back: Results = serde_json::from_str(&text).unwrap();
        let point = &back.runs[0].history[0];
        assert!(point.loss.unwrap().is_nan() && point.kl == Some(f64::NEG_INFINITY));
        assert_eq!(json(&back), text, "the same bytes");
        for (from, to, expected) in [
            ("\"preset\"", "\"presett\"", "unknown field `presett`"),
            ("\"step\":0,", "", "missing field `step` at line"),
            ("\"NaN\"", "\"none\"", "`none` is not a number"),
        ] {
            let other = text.replacen(from, to, 1);
            let error = serde_json::from_str::<Results>(&other).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn lines_and_counts_come_back_with_these_keys_in_this_order() {
        let event =
            r#"{"step":100,"cause":"prune","ranks":{"a.key":0,"b.query":3},"total_rank":3}"#;
        let read: RankEvent = serde_json::from_str(event).unwrap();
        let line = json(&RankLine { task: "cola", method: "BayesLoRA", seed: 2, event: &read });
        let run = r#"{"task":"cola","method":"BayesLoRA","seed":2,"#;
        assert_eq!(line, run.to_owned() + &event[1..]);
        let text = r#"{"id":"17","label":1.0,"probs":{"0":[0.25,0.75],"10":[0.375,0.625]},"entropy":{"0":0.5,"10":0.625},"mutual_information":{"10":"NaN"}}"#;
        assert_eq!(json(&serde_json::from_str::<PredictionLine>(text).unwrap()), text);
        let counts = ParameterCounts { adapter: 40, posterior: 2, head: 7, stored: 5 };
        let sum = counts + counts;
        assert_eq!((sum.trained(), sum.head, sum.stored), (84, 14, 10));
    }
}
