//! Bayes by backprop: a Gaussian for every entry of the factors.
//!
//! Objective: mean negative log-likelihood at one weight draw per batch plus `weight · KL`, with
//!
//! ```text
//! q = Π N(μ, σ²),   σ = ln(1 + e^ρ)
//! gaussian:  KL = Σ ln(σ_p/σ) + (σ² + μ²)/(2σ_p²) − ½                          in closed form
//! mixture:   KL ≈ Σ ln q(w) − ln p(w),   p = π N(0, σ_1²) + (1 − π) N(0, σ_2²)     at the batch's draw
//! weight:    1/N_train;  π_i/batch with π_i = 2^(M−i)/(2^M − 1) over the M batches of an epoch
//!            (blundell);  1/batch (batch)
//! ```
//!
//! Parameters: `2·rank·(d_input + d_output)` per layer, or `rank·(2·d_input + d_output)` with noise on
//! A only. Sources: Blundell et al. 2015, arXiv:1505.05424; `bbb-bt` has the defaults of
//! Bayesian-Torch, whose KL is the mean over the entries of each factor, divided by the batch size.

use lrvd_burn::adapter::{AdaptedLinear, AdapterConfig, AdapterKind};
use lrvd_burn::model::total_over_adapters;
use lrvd_burn::optimizer::ParameterGroups;
use lrvd_burn::sampling::{DrawPer, Pass, Scheme};
use lrvd_core::baselines::element_gaussian::{INITIAL_RHO, PRIOR_STD_DEV, bayesian_torch};
use lrvd_core::baselines::{ElementReduction, MinibatchWeight, ScaleMixture};
use serde::{Deserialize, Serialize};

use super::kl_cycle::KlCycle;
use super::setup::{adapter, in_range, noisy_groups, settings_over};
use super::{Method, MethodError, RankRequest, Regulariser, StepSizes, Tuning};
use crate::backbone::TaskModel;
use crate::settings::ExperimentConfig;

/// Noise on both factors.
pub(super) fn build(
    config: &ExperimentConfig,
    request: RankRequest,
) -> Result<Method, MethodError> {
    with(config, request, "bbb", BbbSettings::default())
}

/// Noise on A only.
pub(super) fn build_a(
    config: &ExperimentConfig,
    request: RankRequest,
) -> Result<Method, MethodError> {
    with(config, request, "bbb-a", BbbSettings { both: false, ..BbbSettings::default() })
}

/// The defaults of Bayesian-Torch.
pub(super) fn build_bayesian_torch(
    config: &ExperimentConfig,
    request: RankRequest,
) -> Result<Method, MethodError> {
    with(config, request, "bbb-bt", BbbSettings::bayesian_torch())
}

/// The prior on every entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum BbbPrior {
    /// `N(0, prior_std²)`.
    Gaussian,
    /// The scale mixture.
    Mixture,
}

/// Factor of the KL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum BbbWeight {
    /// `1/N_train`: the evidence bound per example.
    NTrain,
    /// Falling over the batches of an epoch.
    Blundell,
    /// `1/batch`, as Bayesian-Torch's examples do.
    Batch,
}

/// Settings of Bayes by backprop.
///
/// | Field | `bbb` | `bbb-bt` | Meaning |
/// |---|---|---|---|
/// | `both` | true (`bbb-a`: false) | true | noise on B as well |
/// | `rho`, `rho_std` | -6, 0 | -3, 0.1 | normal law of the initial ρ |
/// | `mean_std` | none: as LoRA | 0.1 | normal law of the initial means |
/// | `prior` | gaussian | gaussian | or mixture |
/// | `prior_std` | 0.2 | 1 | σ_p |
/// | `mixture` | ½, 1, e^-6 | the same | weight and the two widths |
/// | `weight` | `n_train` | batch | or blundell |
/// | `reduction` | sum | mean | over the entries of a factor |
/// | `rho_rate_factor` | 1 | 1 | rate of ρ as a multiple of the means' |
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct BbbSettings {
    both: bool,
    rho: f64,
    rho_std: f64,
    mean_std: Option<f64>,
    prior: BbbPrior,
    prior_std: f64,
    mixture: Mixture,
    weight: BbbWeight,
    reduction: ElementReduction,
    rho_rate_factor: f64,
}

/// The scale mixture as settings spell it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Mixture {
    weight: f64,
    first_std: f64,
    second_std: f64,
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
            mixture: Mixture { weight: 0.5, first_std: 1.0, second_std: (-6.0_f64).exp() },
            weight: BbbWeight::NTrain,
            reduction: ElementReduction::Sum,
            rho_rate_factor: 1.0,
        }
    }
}

impl BbbSettings {
    fn bayesian_torch() -> Self {
        Self {
            rho: bayesian_torch::INITIAL_RHO,
            rho_std: bayesian_torch::INITIAL_RHO_STD_DEV,
            mean_std: Some(bayesian_torch::INITIAL_MEAN_STD_DEV),
            prior_std: bayesian_torch::PRIOR_STD_DEV,
            weight: BbbWeight::Batch,
            reduction: ElementReduction::Mean,
            ..Self::default()
        }
    }
}

/// Bayes by backprop.
#[derive(Clone, Debug)]
struct Bbb {
    adapter: AdapterConfig,
    settings: BbbSettings,
    mixture: ScaleMixture,
    epoch: KlCycle,
    batch_size: usize,
}

fn with(
    config: &ExperimentConfig,
    request: RankRequest,
    key: &str,
    base: BbbSettings,
) -> Result<Method, MethodError> {
    let settings = settings_over(config, key, base)?;
    in_range("bbb.prior_std", settings.prior_std, f64::MIN_POSITIVE, 1e6)?;
    in_range("bbb.rho_rate_factor", settings.rho_rate_factor, 0.0, 1e4)?;
    let Mixture { weight, first_std, second_std } = settings.mixture;
    let kind = AdapterKind::BayesByBackprop {
        both: settings.both,
        rho: settings.rho,
        rho_std: settings.rho_std,
        mean_std: settings.mean_std,
    };
    let adapter = adapter(config, kind, request);
    adapter.check()?;
    Ok(Box::new(Bbb {
        adapter,
        settings,
        mixture: ScaleMixture::new(weight, first_std, second_std)?,
        epoch: KlCycle::new(config, None)?,
        batch_size: config.batch_size,
    }))
}

impl Bbb {
    fn kl(&self, layer: &AdaptedLinear, pass: &Pass) -> Option<burn::tensor::Tensor<1>> {
        let BbbSettings { prior, prior_std, reduction, .. } = self.settings;
        match prior {
            BbbPrior::Gaussian => layer.kl_elements(prior_std, reduction),
            BbbPrior::Mixture => layer.kl_mixture(pass, &self.mixture, reduction),
        }
    }

    fn weight(&self, sizes: StepSizes) -> Result<f64, MethodError> {
        Ok(match self.settings.weight {
            BbbWeight::NTrain => {
                MinibatchWeight::PerExample { n_train: sizes.n_train }.weight(sizes.step as u64)?
            }
            BbbWeight::Blundell => {
                let batches = self.epoch.batches(sizes.n_train) as u32;
                let weight = MinibatchWeight::Falling { batches, batch: self.batch_size };
                weight.weight(sizes.step as u64)?
            }
            BbbWeight::Batch => 1.0 / sizes.batch.examples.max(1) as f64,
        })
    }
}

impl Tuning for Bbb {
    fn adapter(&self) -> AdapterConfig {
        self.adapter
    }

    fn groups(&self, config: &ExperimentConfig) -> ParameterGroups {
        noisy_groups(config, self.settings.rho_rate_factor)
    }

    fn training_scheme(&self) -> Scheme {
        Scheme::Weights(DrawPer::Batch)
    }

    fn regularise(
        &self,
        model: &TaskModel,
        pass: &Pass,
        sizes: StepSizes,
    ) -> Result<Regulariser, MethodError> {
        let kl = total_over_adapters(model, |layer| self.kl(layer, pass));
        Ok(Regulariser::kl(kl, self.weight(sizes)?))
    }

    fn draws(&self, config: &ExperimentConfig) -> Vec<usize> {
        config.draws.clone()
    }
}
