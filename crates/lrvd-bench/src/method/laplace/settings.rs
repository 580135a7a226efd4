//! Settings of Laplace-LoRA.

use lrvd_core::baselines::laplace::{EvidenceOptions, InputNormalisation, LOW_RANK, LOW_RANK_FROM};
use serde::{Deserialize, Serialize};

use crate::method::MethodError;
use crate::method::setup::in_range;

/// Settings of the keys `laplace` and `laplace-last`.
///
/// | Name | Default | Purpose | Range |
/// |---|---|---|---|
/// | `layers` | `all`, for `laplace-last` `last` | whose LoRA matrices are random | |
/// | `normalisation` | `tokens` | divisor of the inputs' factor; `examples` is the published code's | |
/// | `examples` | all | training examples that the curvature is estimated from, scaled to all | 1 to 1e9 |
/// | `low_rank` | 10 | columns kept of a wide factor | 1 to 1000 |
/// | `low_rank_from` | 100 | width from which a factor counts as wide | 1 to 1e9 |
/// | `prior` | `marginal` | what chooses the prior precision `δ` | |
/// | `prior_start` | 1 | `marginal`: where `δ` starts | above 0 |
/// | `prior_learning_rate` | 0.1 | `marginal`: rate of Adam on `ln δ` | above 0 |
/// | `prior_steps` | 100 | `marginal`: its steps | 0 to 1e6 |
/// | `prior_range` | 0.01 to 10,000 | `validation`: ends of the grid of `ln δ` | above 0 |
/// | `prior_candidates` | 13 | `validation`: points of the grid | 1 to 1000 |
/// | `holdout` | 0.2 | `validation`: share of the training examples that it is judged on | 0.01 to 0.9 |
/// | `predictive` | `monte-carlo` | from Gaussian logits to probabilities; or `probit`, `bridge` | |
/// | `samples` | 10,000 | draws of `monte-carlo`; the publication takes 100,000 | 1 to 1e7 |
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Settings {
    pub(super) layers: Layers,
    pub(super) normalisation: InputNormalisation,
    pub(super) examples: Option<usize>,
    pub(super) low_rank: usize,
    pub(super) low_rank_from: usize,
    pub(super) prior: PriorChoice,
    pub(super) prior_start: f64,
    pub(super) prior_learning_rate: f64,
    pub(super) prior_steps: u32,
    pub(super) prior_range: (f64, f64),
    pub(super) prior_candidates: usize,
    pub(super) holdout: f64,
    pub(super) predictive: Predictive,
    pub(super) samples: usize,
}

/// Whose LoRA matrices are random.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Layers {
    /// Those of every adapted layer.
    All,
    /// Those of the adapted layer nearest to the output.
    Last,
}

/// What chooses the prior precision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum PriorChoice {
    /// The marginal likelihood of the training set.
    Marginal,
    /// The negative log-likelihood of held-out examples.
    Validation,
}

/// From Gaussian logits to probabilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Predictive {
    /// Average softmax of draws.
    MonteCarlo,
    /// Softmax of logits shrunk by their variance.
    Probit,
    /// Mean of the Dirichlet of the Laplace bridge; it sees the shape of the covariance, not its
    /// scale.
    Bridge,
}

impl Default for Settings {
    fn default() -> Self {
        let evidence = EvidenceOptions::default();
        Self {
            layers: Layers::All,
            normalisation: InputNormalisation::Tokens,
            examples: None,
            low_rank: LOW_RANK,
            low_rank_from: LOW_RANK_FROM,
            prior: PriorChoice::Marginal,
            prior_start: evidence.start,
            prior_learning_rate: evidence.learning_rate,
            prior_steps: evidence.steps,
            prior_range: (1e-2, 1e4),
            prior_candidates: 13,
            holdout: 0.2,
            predictive: Predictive::MonteCarlo,
            samples: 10_000,
        }
    }
}

impl Settings {
    /// Checks the ranges of the table.
    pub(super) fn check(&self) -> Result<(), MethodError> {
        let (low, high) = self.prior_range;
        let least = f64::MIN_POSITIVE;
        in_range("laplace.examples", self.examples.unwrap_or(1) as f64, 1.0, 1e9)?;
        in_range("laplace.low_rank", self.low_rank as f64, 1.0, 1000.0)?;
        in_range("laplace.low_rank_from", self.low_rank_from as f64, 1.0, 1e9)?;
        in_range("laplace.prior_start", self.prior_start, least, f64::MAX)?;
        in_range("laplace.prior_learning_rate", self.prior_learning_rate, least, f64::MAX)?;
        in_range("laplace.prior_steps", f64::from(self.prior_steps), 0.0, 1e6)?;
        in_range("laplace.prior_range.0", low, least, f64::MAX)?;
        in_range("laplace.prior_range.1", high, low, f64::MAX)?;
        in_range("laplace.prior_candidates", self.prior_candidates as f64, 1.0, 1000.0)?;
        in_range("laplace.holdout", self.holdout, 0.01, 0.9)?;
        in_range("laplace.samples", self.samples as f64, 1.0, 1e7)
    }

    /// How the marginal likelihood is climbed.
    pub(super) fn evidence(&self) -> EvidenceOptions {
        EvidenceOptions {
            start: self.prior_start,
            learning_rate: self.prior_learning_rate,
            steps: self.prior_steps,
        }
    }

    /// The grid of prior precisions, even in `ln δ`; one point lies in the geometric middle.
    pub(super) fn candidates(&self) -> Vec<f64> {
        let (low, high) = (self.prior_range.0.ln(), self.prior_range.1.ln());
        let last = self.prior_candidates.saturating_sub(1);
        let at = |i: usize| if last == 0 { 0.5 } else { i as f64 / last as f64 };
        (0..self.prior_candidates).map(|i| (low + at(i) * (high - low)).exp()).collect()
    }
}
