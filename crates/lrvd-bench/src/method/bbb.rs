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
//! `ρ` learns at a separate rate, at which it can go from its start to the prior's within the run: at the means' rate
//! it could not at any published length.
//!
//! Parameters: `2·rank·(d_input + d_output)` per layer, or `rank·(2·d_input + d_output)` with noise on
//! A only. Sources: Blundell et al. 2015, arXiv:1505.05424;
//! Bayesian-Torch ([its defaults](crate::settings::BbbSettings)), whose KL is the mean over the entries of each factor, divided by the batch size.

use lrvd_burn::adapter::{AdaptedLinear, AdapterConfig, AdapterKind};
use lrvd_burn::model::total_over_adapters;
use lrvd_burn::optimizer::ParameterGroups;
use lrvd_burn::sampling::{DrawPer, Pass, Scheme};
use lrvd_burn::train::{Attach, Predict, RankPolicy, Regularise, StepSizes, Terms};
use lrvd_core::baselines::{MinibatchWeight, ScaleMixture};
use lrvd_models::AutoClassifier;

use super::kl_cycle::{KlCycle, PUBLISHED_STEPS};
use super::setup::{NoisyRates, adapter, rate_to_reach};
use super::{PostHoc, RankRequest};
use crate::error::Result;
use crate::settings::{BbbPrior, BbbSettings, BbbWeight, ExperimentConfig, MixtureSettings};

#[derive(Clone, Debug)]
pub(super) struct Bbb {
    adapter: AdapterConfig,
    settings: BbbSettings,
    mixture: ScaleMixture,
    epoch: KlCycle,
    batch_size: usize,
    rates: NoisyRates,
}

impl Bbb {
    pub(super) fn new(
        config: &ExperimentConfig,
        request: RankRequest,
        settings: BbbSettings,
    ) -> Result<Self> {
        let BbbSettings { both, rho, rho_std, mean_std, mixture, .. } = settings;
        let kind = AdapterKind::BayesByBackprop { both, rho, rho_std, mean_std };
        let rho_rate = match settings.rho_learning_rate {
            Some(rate) => rate,
            None => rate_to_reach(config, settings.distance())?,
        };
        let MixtureSettings { weight, first_std, second_std } = mixture;
        Ok(Self {
            adapter: adapter(config, kind, request),
            settings,
            mixture: ScaleMixture::new(weight, first_std, second_std)?,
            epoch: KlCycle::new(config, None, PUBLISHED_STEPS),
            batch_size: config.batch_size,
            rates: NoisyRates::new(config, rho_rate),
        })
    }

    fn kl(&self, layer: &AdaptedLinear, pass: &Pass) -> Option<burn::tensor::Tensor<1>> {
        let BbbSettings { prior, prior_std, reduction, .. } = self.settings;
        match prior {
            BbbPrior::Gaussian => layer.kl_elements(prior_std, reduction),
            BbbPrior::Mixture => layer.kl_mixture(pass, &self.mixture, reduction),
        }
    }

    fn weight(&self, sizes: StepSizes) -> Result<f64, lrvd_burn::Error> {
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

impl Attach<AutoClassifier> for Bbb {
    fn adapter(&self) -> AdapterConfig {
        self.adapter
    }

    fn groups(&self, settings: &ParameterGroups) -> ParameterGroups {
        self.rates.groups(settings)
    }
}

impl Regularise<AutoClassifier> for Bbb {
    fn scheme(&self) -> Scheme {
        Scheme::Weights(DrawPer::Batch)
    }

    fn terms(
        &self,
        model: &AutoClassifier,
        pass: &Pass,
        sizes: StepSizes,
    ) -> Result<Terms, lrvd_burn::Error> {
        let kl = total_over_adapters(model, |layer| self.kl(layer, pass));
        Ok(Terms::kl(kl, self.weight(sizes)?))
    }
}

impl RankPolicy<AutoClassifier> for Bbb {}
impl Predict<AutoClassifier> for Bbb {}
impl PostHoc for Bbb {}
