//! Settings of Laplace-LoRA.

use lrvd_burn::schema::words;
use lrvd_core::baselines::laplace::{EvidenceOptions, InputNormalisation, LOW_RANK, LOW_RANK_FROM};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::settings::range::{POSITIVE, count_in_range, in_range};

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
