//! Settings of Bayes by backprop.

use lrvd_burn::schema::words;
use lrvd_core::baselines::ElementReduction;
use lrvd_core::baselines::element_gaussian::{INITIAL_RHO, PRIOR_STD_DEV};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::settings::range::{POSITIVE, in_range, positive_to};

/// The prior on every entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BbbPrior {
    /// `N(0, prior_std²)`.
    Gaussian,
    /// The scale mixture.
    Mixture,
}

/// Factor of the KL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BbbWeight {
    /// `1/N_train`: the evidence bound per example.
    NTrain,
    /// Falling over the batches of an epoch.
    Blundell,
    /// `1/batch`, as Bayesian-Torch's examples do.
    Batch,
}

/// Settings of Bayes by backprop; defaults of `bbb`, and of `bbb-a` where it differs.
///
/// The defaults of Bayesian-Torch are `rho = -3`, `rho_std = 0.1`, `mean_std = 0.1`, `prior_std = 1`, `weight = "batch"`,
/// `reduction = "mean"`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BbbSettings {
    /// Noise on B as well (true; `bbb-a`: false).
    pub both: bool,
    /// Mean of the normal law of the initial ρ, -30 to 10 (-6).
    pub rho: f64,
    /// Its standard deviation, 0 to 10 (0).
    pub rho_std: f64,
    /// Standard deviation of the initial means, above 0; without one they are LoRA's (none).
    pub mean_std: Option<f64>,
    /// The prior (`gaussian`).
    pub prior: BbbPrior,
    /// Width of the Gaussian prior, above 0 (0.2).
    pub prior_std: f64,
    /// The scale mixture (½, 1, e^-6).
    pub mixture: MixtureSettings,
    /// Factor of the KL (`n_train`).
    pub weight: BbbWeight,
    /// Sum or mean over the entries of a factor (`sum`).
    #[schemars(schema_with = "words::<ElementReduction>")]
    pub reduction: ElementReduction,
    /// Rate of ρ, at least 0; without one, the rate at which it can go from its start to the prior's within the run.
    pub rho_learning_rate: Option<f64>,
}

/// The scale mixture as settings spell it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MixtureSettings {
    /// Weight of the first part, 0 to 1.
    pub weight: f64,
    /// Width of the first part, above 0.
    pub first_std: f64,
    /// Width of the second part, above 0.
    pub second_std: f64,
}

impl Default for BbbSettings {
    fn default() -> Self {
        Self {
            both: true,
            rho: INITIAL_RHO,
            rho_std: 0.0,
            mean_std: None,
            prior: BbbPrior::Gaussian,
            prior_std: PRIOR_STD_DEV,
            mixture: MixtureSettings { weight: 0.5, first_std: 1.0, second_std: (-6.0_f64).exp() },
            weight: BbbWeight::NTrain,
            reduction: ElementReduction::Sum,
            rho_learning_rate: None,
        }
    }
}

impl BbbSettings {
    pub(super) fn check(&self, key: &str) -> Result<()> {
        let name = |field: &str| format!("{key}.{field}");
        in_range(&name("rho"), self.rho, -30.0..=10.0)?;
        in_range(&name("rho_std"), self.rho_std, 0.0..=10.0)?;
        if let Some(mean_std) = self.mean_std {
            in_range(&name("mean_std"), mean_std, positive_to(10.0))?;
        }
        in_range(&name("prior_std"), self.prior_std, positive_to(1e6))?;
        in_range(&name("mixture.weight"), self.mixture.weight, 0.0..=1.0)?;
        in_range(&name("mixture.first_std"), self.mixture.first_std, POSITIVE)?;
        in_range(&name("mixture.second_std"), self.mixture.second_std, POSITIVE)?;
        let rate = |rate| in_range(&name("rho_learning_rate"), rate, 0.0..=1e3);
        self.rho_learning_rate.map_or(Ok(()), rate)
    }

    /// How far ρ is from that of the prior's width: `|ln(e^σ_p − 1) − ρ_0|`.
    ///
    /// A scale mixture is as wide as the wider of its parts that it has.
    pub(crate) fn distance(&self) -> f64 {
        let MixtureSettings { weight, first_std, second_std } = self.mixture;
        let width = match self.prior {
            BbbPrior::Gaussian => self.prior_std,
            BbbPrior::Mixture if weight >= 1.0 => first_std,
            BbbPrior::Mixture if weight <= 0.0 => second_std,
            BbbPrior::Mixture => first_std.max(second_std),
        };
        // `ln(e^x − 1)` without overflow.
        (width + (-(-width).exp_m1()).ln() - self.rho).abs()
    }
}
