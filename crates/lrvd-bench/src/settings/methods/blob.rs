//! Settings of BLoB and of the methods that share its weights of the KL.

use lrvd_core::baselines::{blob, c_lora, minibatch_weight, scala_bl};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::settings::range::{POSITIVE, count_in_range, in_range, positive_to};

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
            prior_std: blob::PRIOR_STD_DEV,
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
