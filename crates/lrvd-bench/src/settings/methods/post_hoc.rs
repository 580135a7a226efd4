//! Settings of what is fitted after training: Laplace-LoRA, SWAG and TFB.

use lrvd_burn::schema::words;
use lrvd_core::baselines::laplace::{EvidenceOptions, InputNormalisation, LOW_RANK, LOW_RANK_FROM};
use lrvd_core::baselines::swag::MAX_DEVIATIONS;
use lrvd_core::baselines::tfb::{ANCHORS, ITERATIONS, RANGE, SearchAnswer, TOLERANCE};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::settings::valid::{POSITIVE, count_in_range, in_range, positive_to};

/// Settings of Laplace-LoRA.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LaplaceSettings {
    /// Whose LoRA matrices are random (`all`).
    pub layers: LaplaceLayers,
    /// Divisor of the inputs' factor (`tokens`); `examples` is the published code's.
    #[schemars(schema_with = "words::<InputNormalisation>")]
    pub normalisation: InputNormalisation,
    /// Training examples that the curvature is estimated from, scaled to all; at least 1 (all).
    pub examples: Option<usize>,
    /// Columns kept of a wide factor, 1 to 1000 (10).
    pub low_rank: usize,
    /// Width from which a factor counts as wide, at least 1 (100).
    pub low_rank_from: usize,
    /// What chooses the prior precision `δ` (`marginal`).
    pub prior: LaplacePrior,
    /// `marginal`: where `δ` starts, above 0 (1).
    pub prior_start: f64,
    /// `marginal`: rate of Adam on `ln δ`, above 0 (0.1).
    pub prior_learning_rate: f64,
    /// `marginal`: its steps, 0 to 1e6 (100).
    pub prior_steps: u32,
    /// `validation`: ends of the grid of `ln δ`, above 0 (0.01 to 10,000).
    pub prior_range: (f64, f64),
    /// `validation`: points of the grid, 1 to 1000 (13).
    pub prior_candidates: usize,
    /// `validation`: share of the training examples that it is judged on, 0.01 to 0.9 (0.2).
    pub holdout: f64,
    /// From Gaussian logits to probabilities (`monte-carlo`).
    pub predictive: LaplacePredictive,
    /// Draws of `monte-carlo`, 1 to 1e7 (10,000); the publication takes 100,000.
    pub samples: usize,
}

/// Whose LoRA matrices are random.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LaplaceLayers {
    /// Those of every adapted layer.
    All,
    /// Those of the adapted layer nearest to the output.
    Last,
}

/// What chooses the prior precision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LaplacePrior {
    /// The marginal likelihood of the training set.
    Marginal,
    /// The negative log-likelihood of held-out examples.
    Validation,
}

/// From Gaussian logits to probabilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LaplacePredictive {
    /// Average softmax of draws.
    MonteCarlo,
    /// Softmax of logits shrunk by their variance.
    Probit,
    /// Mean of the Dirichlet of the Laplace bridge; it sees the shape of the covariance, not its
    /// scale.
    Bridge,
}

impl Default for LaplaceSettings {
    fn default() -> Self {
        let evidence = EvidenceOptions::default();
        Self {
            layers: LaplaceLayers::All,
            normalisation: InputNormalisation::Tokens,
            examples: None,
            low_rank: LOW_RANK,
            low_rank_from: LOW_RANK_FROM,
            prior: LaplacePrior::Marginal,
            prior_start: evidence.start,
            prior_learning_rate: evidence.learning_rate,
            prior_steps: evidence.steps,
            prior_range: (1e-2, 1e4),
            prior_candidates: 13,
            holdout: 0.2,
            predictive: LaplacePredictive::MonteCarlo,
            samples: 10_000,
        }
    }
}

impl LaplaceSettings {
    pub(super) fn check(&self, key: &str) -> Result<()> {
        let name = |field: &str| format!("{key}.{field}");
        let (low, high) = self.prior_range;
        count_in_range(&name("examples"), self.examples.unwrap_or(1), 1..)?;
        count_in_range(&name("low_rank"), self.low_rank, 1..=1000)?;
        count_in_range(&name("low_rank_from"), self.low_rank_from, 1..)?;
        in_range(&name("prior_start"), self.prior_start, POSITIVE)?;
        in_range(&name("prior_learning_rate"), self.prior_learning_rate, POSITIVE)?;
        count_in_range(&name("prior_steps"), self.prior_steps as usize, 0..=1_000_000)?;
        in_range(&name("prior_range.0"), low, POSITIVE)?;
        in_range(&name("prior_range.1"), high, low..)?;
        count_in_range(&name("prior_candidates"), self.prior_candidates, 1..=1000)?;
        in_range(&name("holdout"), self.holdout, 0.01..=0.9)?;
        count_in_range(&name("samples"), self.samples, 1..=10_000_000)
    }

    pub(crate) fn evidence(&self) -> EvidenceOptions {
        EvidenceOptions {
            start: self.prior_start,
            learning_rate: self.prior_learning_rate,
            steps: self.prior_steps,
        }
    }

    /// The grid of prior precisions, even in `ln δ`; one point is the geometric middle.
    pub(crate) fn candidates(&self) -> Vec<f64> {
        let (low, high) = (self.prior_range.0.ln(), self.prior_range.1.ln());
        let last = self.prior_candidates.saturating_sub(1);
        let at = |i: usize| if last == 0 { 0.5 } else { i as f64 / last as f64 };
        (0..self.prior_candidates).map(|i| (low + at(i) * (high - low)).exp()).collect()
    }
}

/// Settings of SWAG-LoRA.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SwagSettings {
    /// Share of the steps before the tail, 0 to 1 (8 of 15 epochs).
    pub start: f64,
    /// Share of the steps between collections, above 0, to 1 (an epoch of 15).
    pub every: f64,
    /// The tail's rate as a share of the peak rate, above 0, to 10 (0.1).
    pub learning_rate_factor: f64,
    /// Share of the steps over which the rate goes there in a line, 0 to 1 (5 epochs of 15).
    pub anneal: f64,
    /// Deviations kept, `K`, 2 to 1000 (5).
    pub deviations: usize,
    /// Share of the covariance that draws have, 0 to 100 (1).
    pub scale: f64,
}

impl Default for SwagSettings {
    fn default() -> Self {
        Self {
            start: 8.0 / 15.0,
            every: 1.0 / 15.0,
            learning_rate_factor: 0.1,
            anneal: 5.0 / 15.0,
            deviations: MAX_DEVIATIONS,
            scale: 1.0,
        }
    }
}

impl SwagSettings {
    pub(super) fn check(&self, key: &str) -> Result<()> {
        let name = |field: &str| format!("{key}.{field}");
        in_range(&name("start"), self.start, 0.0..=1.0)?;
        in_range(&name("every"), self.every, positive_to(1.0))?;
        in_range(&name("learning_rate_factor"), self.learning_rate_factor, positive_to(10.0))?;
        in_range(&name("anneal"), self.anneal, 0.0..=1.0)?;
        count_in_range(&name("deviations"), self.deviations, 2..=1000)?;
        in_range(&name("scale"), self.scale, 0.0..=100.0)
    }
}

/// Settings of TFB.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TfbSettings {
    /// Where `σ_q` is looked for, within 0 to 100 (0.001 to 0.015).
    pub range: (f64, f64),
    /// Bisections, 1 to 100 (5).
    pub iterations: u32,
    /// Training examples looked at, fewer if there are not so many; at least 1 (500).
    pub anchors: usize,
    /// Draws whose probabilities are averaged, 1 to 10,000 (10).
    pub samples: usize,
    /// What must not change (`nll-per-anchor`).
    pub criterion: TfbCriterion,
    /// By how much, at least 0 (0.003); the publication takes 0.01 with `flipped`.
    pub tolerance: f64,
    /// Which level is the answer (`last-admissible`).
    #[schemars(schema_with = "words::<SearchAnswer>")]
    pub answer: SearchAnswer,
}

/// What must not change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TfbCriterion {
    /// Relative change of the mean negative log-likelihood.
    Nll,
    /// The same, divided by the number of examples.
    NllPerAnchor,
    /// Share of examples with another answer.
    Flipped,
}

impl Default for TfbSettings {
    fn default() -> Self {
        Self {
            range: RANGE,
            iterations: ITERATIONS,
            anchors: ANCHORS,
            samples: 10,
            criterion: TfbCriterion::NllPerAnchor,
            tolerance: TOLERANCE,
            answer: SearchAnswer::LastAdmissible,
        }
    }
}

impl TfbSettings {
    pub(super) fn check(&self, key: &str) -> Result<()> {
        let name = |field: &str| format!("{key}.{field}");
        let (low, high) = self.range;
        in_range(&name("range.0"), low, 0.0..=100.0)?;
        in_range(&name("range.1"), high, low..=100.0)?;
        count_in_range(&name("iterations"), self.iterations as usize, 1..=100)?;
        count_in_range(&name("anchors"), self.anchors, 1..)?;
        count_in_range(&name("samples"), self.samples, 1..=10_000)?;
        in_range(&name("tolerance"), self.tolerance, 0.0..)
    }
}
