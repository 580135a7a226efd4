//! Settings of methods that are trained: maximum likelihood, noise, BayesLoRA.

use lrvd_burn::adapter::ArdHyper;
use lrvd_burn::schema::words;
use lrvd_core::baselines::element_gaussian::{INITIAL_RHO, PRIOR_STD_DEV};
use lrvd_core::baselines::{ElementReduction, blob, c_lora, minibatch_weight, scala_bl};
use lrvd_core::kl::ArdScales;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::settings::valid::{POSITIVE, count_in_range, in_range, positive_to};

/// Settings of MAP.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MapSettings {
    /// Decoupled decay of the factors, at least 0; without one, the decay that takes a factor without a gradient to
    /// `1/e` within the run. The published 1e-5 leaves all but some millionths. Unused with `l2_in_loss`.
    pub weight_decay: Option<f64>,
    /// Whether the prior is in the loss instead (false).
    pub l2_in_loss: bool,
    /// Precision of the prior, at least 0 (1); used with `l2_in_loss`.
    pub precision: f64,
}

impl Default for MapSettings {
    fn default() -> Self {
        Self { weight_decay: None, l2_in_loss: false, precision: 1.0 }
    }
}

impl MapSettings {
    pub(super) fn check(&self, key: &str) -> Result<()> {
        let decay = |decay| in_range(&format!("{key}.weight_decay"), decay, 0.0..=1e6);
        self.weight_decay.map_or(Ok(()), decay)?;
        in_range(&format!("{key}.precision"), self.precision, 0.0..=1e12)
    }
}

/// Settings of MC dropout.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct McDropoutSettings {
    /// Drop probability of the adapter's input, above 0 and below 1 (0.1).
    pub dropout: f64,
}

impl Default for McDropoutSettings {
    fn default() -> Self {
        Self { dropout: 0.1 }
    }
}

impl McDropoutSettings {
    pub(super) fn check(self, key: &str) -> Result<()> {
        let inside = (POSITIVE.0, std::ops::Bound::Excluded(1.0));
        in_range(&format!("{key}.dropout"), self.dropout, inside)
    }
}

/// Settings of LoRA-Ensemble.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LoraEnsembleSettings {
    /// Adapters side by side, 1 to 4096 (4).
    pub members: usize,
    /// Gain of the initialisation of A, above 0 (10).
    pub gain: f64,
    /// Rate of the factors, published with that gain and a scaling of 1, at least 0 (1e-4).
    pub learning_rate: f64,
}

impl Default for LoraEnsembleSettings {
    fn default() -> Self {
        Self { members: 4, gain: 10.0, learning_rate: 1e-4 }
    }
}

impl LoraEnsembleSettings {
    pub(super) fn check(&self, key: &str) -> Result<()> {
        count_in_range(&format!("{key}.members"), self.members, 1..=4096)?;
        in_range(&format!("{key}.gain"), self.gain, positive_to(1e6))?;
        in_range(&format!("{key}.learning_rate"), self.learning_rate, 0.0..=1e3)
    }
}

/// Settings of `lrvd-nts`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NoiseToSignalSettings {
    /// Initial `ln α`, -30 to 10 (-4).
    pub initial: f64,
    /// Rate of `ln α`, at least 0; without one, the rate that reaches the threshold within the run.
    pub learning_rate: Option<f64>,
}

impl Default for NoiseToSignalSettings {
    fn default() -> Self {
        Self { initial: -4.0, learning_rate: None }
    }
}

impl NoiseToSignalSettings {
    pub(super) fn check(&self, key: &str) -> Result<()> {
        in_range(&format!("{key}.initial"), self.initial, -30.0..=10.0)?;
        let rate = |rate| in_range(&format!("{key}.learning_rate"), rate, 0.0..=1e3);
        self.learning_rate.map_or(Ok(()), rate)
    }
}

/// Settings of `lrvd-ard`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ArdSettings {
    /// One scale per rank for A and B, or separate ones (`shared`).
    #[schemars(schema_with = "words::<ArdScales>")]
    pub scales: ArdScales,
    /// How the scales come about: in closed form (`empirical-bayes`), or by an inverse-gamma law.
    pub hyper: ArdHyper,
}

impl ArdSettings {
    pub(super) fn check(&self, key: &str) -> Result<()> {
        check_hyper(&format!("{key}.hyper"), self.hyper)
    }
}

/// Validates the inverse-gamma parameters.
pub(in crate::settings) fn check_hyper(key: &str, hyper: ArdHyper) -> Result<()> {
    match hyper {
        ArdHyper::EmpiricalBayes => Ok(()),
        ArdHyper::InverseGamma { shape, rate } => {
            in_range(&format!("{key}.shape"), shape, positive_to(1e6))?;
            in_range(&format!("{key}.rate"), rate, positive_to(1e6))
        }
    }
}

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

/// Which optimiser follows the likelihood's gradient of the noise parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Optimizers {
    /// The second: AdamW was built before these parameters existed.
    Two,
    /// AdamW, which owns everything; the second sees the KL only.
    Bayesadapt,
}

/// Settings of BLoB.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct BlobSettings {
    /// Upper end of the initialisation of G, `U(ε/√2, ε)`; above 0, to 1 (0.05).
    pub epsilon: f64,
    /// Width of the prior, above 0 (0.2).
    pub prior_std: f64,
    /// Rate of the second optimiser, at least 0 (0.01; 0.002 in the presets of GLUE).
    pub kl_learning_rate: f64,
    /// Dataset rescaling of the KL's cycle, above 0 (8); without one a cycle is an epoch.
    pub gamma: Option<f64>,
    /// Which optimiser follows what (`two`).
    pub optimizers: Optimizers,
    /// Rate of G as a multiple of the means', where AdamW moves it; at least 0 (1).
    pub noise_rate_factor: f64,
}

impl Default for BlobSettings {
    fn default() -> Self {
        Self {
            epsilon: blob::INITIAL_RHO_LIMIT,
            prior_std: PRIOR_STD_DEV,
            kl_learning_rate: 0.01,
            gamma: Some(minibatch_weight::GAMMA),
            optimizers: Optimizers::Two,
            noise_rate_factor: 1.0,
        }
    }
}

impl BlobSettings {
    pub(super) fn check(&self, key: &str) -> Result<()> {
        in_range(&format!("{key}.epsilon"), self.epsilon, positive_to(1.0))?;
        in_range(&format!("{key}.prior_std"), self.prior_std, positive_to(1e6))?;
        in_range(&format!("{key}.kl_learning_rate"), self.kl_learning_rate, 0.0..=1e6)?;
        in_range(&format!("{key}.noise_rate_factor"), self.noise_rate_factor, 0.0..=1e4)?;
        check_gamma(key, self.gamma)
    }
}

/// Which way round the divergence is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum KlDirectionSetting {
    /// Posterior from prior.
    Standard,
    /// Prior from posterior, as the published code does.
    Coded,
}

/// Settings of `ScalaBL`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ScalaBlSettings {
    /// Upper end of the initialisation of the scales' deviations, `U(ε/√2, ε)`; above 0, to 1 (0.05).
    pub epsilon: f64,
    /// Which way round the divergence is (`coded`).
    pub kl_direction: KlDirectionSetting,
    /// Rate of the second optimiser, at least 0; without one, that of the direction: 0.1 for `coded`, 1 for `standard`.
    pub kl_learning_rate: Option<f64>,
    /// Dataset rescaling of the KL's cycle, above 0 (8); without one a cycle is an epoch.
    pub gamma: Option<f64>,
    /// Which optimiser follows what (`bayesadapt`).
    pub optimizers: Optimizers,
    /// Rate of the scales' deviations as a multiple of the means', where AdamW moves them; at least 0 (1).
    pub noise_rate_factor: f64,
}

impl Default for ScalaBlSettings {
    fn default() -> Self {
        Self {
            epsilon: scala_bl::INITIAL_STD_DEV_LIMIT,
            kl_direction: KlDirectionSetting::Coded,
            kl_learning_rate: None,
            gamma: Some(minibatch_weight::GAMMA),
            optimizers: Optimizers::Bayesadapt,
            noise_rate_factor: 1.0,
        }
    }
}

impl ScalaBlSettings {
    pub(super) fn check(&self, key: &str) -> Result<()> {
        in_range(&format!("{key}.epsilon"), self.epsilon, positive_to(1.0))?;
        if let Some(rate) = self.kl_learning_rate {
            in_range(&format!("{key}.kl_learning_rate"), rate, 0.0..=1e6)?;
        }
        in_range(&format!("{key}.noise_rate_factor"), self.noise_rate_factor, 0.0..=1e4)?;
        check_gamma(key, self.gamma)
    }
}

/// Settings of C-LoRA.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CLoraSettings {
    /// Width of the network's hidden layer, 1 to 65,536 (64).
    pub hidden: usize,
    /// Width of the prior, above 0 (0.2).
    pub prior_std: f64,
    /// Factor of the KL, at least 0 (1e-6).
    pub kl_weight: f64,
    /// Dataset rescaling of the KL's cycle, above 0 (8); without one a cycle is an epoch.
    pub gamma: Option<f64>,
    /// Rate of the network, at least 0 (0.01).
    pub learning_rate: f64,
}

impl Default for CLoraSettings {
    fn default() -> Self {
        Self {
            hidden: c_lora::HIDDEN,
            prior_std: c_lora::PRIOR_STD_DEV,
            kl_weight: 1e-6,
            gamma: Some(minibatch_weight::GAMMA),
            learning_rate: 0.01,
        }
    }
}

impl CLoraSettings {
    pub(super) fn check(&self, key: &str) -> Result<()> {
        count_in_range(&format!("{key}.hidden"), self.hidden, 1..=65_536)?;
        in_range(&format!("{key}.prior_std"), self.prior_std, positive_to(1e6))?;
        in_range(&format!("{key}.kl_weight"), self.kl_weight, 0.0..=1e6)?;
        in_range(&format!("{key}.learning_rate"), self.learning_rate, 0.0..=1e6)?;
        check_gamma(key, self.gamma)
    }
}

fn check_gamma(key: &str, gamma: Option<f64>) -> Result<()> {
    gamma.map_or(Ok(()), |gamma| in_range(&format!("{key}.gamma"), gamma, POSITIVE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::valid::OutOfRange;

    #[test]
    fn settings_out_of_range_are_rejected() {
        let hyper = ArdHyper::InverseGamma { shape: 0.0, rate: 1.0 };
        let nts = NoiseToSignalSettings { learning_rate: Some(-1.0), ..Default::default() };
        for rejected in [
            nts.check("methods.lrvd-nts"),
            ArdSettings { hyper, ..ArdSettings::default() }.check("methods.lrvd-ard"),
        ] {
            assert!(rejected.is_err_and(|error| error.is::<OutOfRange>()));
        }
        assert!(serde_json::from_str::<NoiseToSignalSettings>(r#"{"start": -1.0}"#).is_err());
    }
}
