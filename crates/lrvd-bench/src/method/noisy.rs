//! Methods that train noise with the weights: Bayes by backprop, `BLoB` and `ScalaBL`.

use std::sync::Arc;

use burn::tensor::Tensor;
use lrvd_burn::adapter::{AdaptedLinear, AdapterConfig, AdapterKind, UpdateOp};
use lrvd_burn::model::total_over_adapters;
use lrvd_burn::objective::Objective;
use lrvd_burn::sampling::{Pass, Scheme};
use lrvd_burn::train::{
    Method, Prediction, RankCause, Setup, StepContext, StepState, TrainConfig, UpdatePhase,
};
use lrvd_core::baselines::{ElementReduction, ScaleMixture};
use lrvd_models::AutoModel;

use super::minibatch_weight::falling_weight;
use super::scalabl::{self, RandomScales};
use super::setup::{self, KlCycle, NoisyRates, PUBLISHED_STEPS, SecondOptimizer, adapter};
use super::{Inputs, RankRequest};
use crate::error::{Burn, Result};
use crate::settings::{self, BbbPrior, BbbSettings, BbbWeight, Config, KlDirection};

/// Bayes by backprop: a Gaussian for every entry of the factors.
///
/// Objective: mean negative log-likelihood at one weight draw per batch plus `weight · KL`, with
///
/// ```text
/// q = Π N(μ, σ²),   σ = ln(1 + e^ρ)
/// gaussian:  KL = Σ ln(σ_p/σ) + (σ² + μ²)/(2σ_p²) − ½                          in closed form
/// mixture:   KL ≈ Σ ln q(w) − ln p(w),   p = π N(0, σ_1²) + (1 − π) N(0, σ_2²)     at the batch's draw
/// weight:    1/N_train;  π_i/batch with π_i = 2^(M−i)/(2^M − 1) over the M batches of an epoch
///            (blundell);  1/batch (batch)
/// ```
///
/// `ρ` learns at the rate at which it can go from its start to the prior's within the run. Parameters:
/// `2·rank·(d_input + d_output)` per layer, or `rank·(2·d_input + d_output)` with noise on A only. Sources: Blundell et al. 2015,
/// arXiv:1505.05424; Bayesian-Torch, whose KL is the mean over the entries of each factor, divided by the batch size.
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
    pub(super) fn on_both(config: &Config, request: RankRequest) -> Result<Self> {
        Self::new(config, request, config.methods.bbb)
    }

    pub(super) fn on_a(config: &Config, request: RankRequest) -> Result<Self> {
        Self::new(config, request, config.methods.bbb_a)
    }

    fn new(config: &Config, request: RankRequest, settings: BbbSettings) -> Result<Self> {
        let BbbSettings { both, rho, rho_std, mean_std, mixture, .. } = settings;
        let kind = AdapterKind::BayesByBackprop { both, rho, rho_std, mean_std };
        let rho_rate = match settings.rho_learning_rate {
            Some(rate) => rate,
            None => setup::rate_to_reach(config, settings.distance())?,
        };
        let settings::MixtureSettings { weight, first_std, second_std } = mixture;
        Ok(Self {
            adapter: adapter(config, kind, request),
            settings,
            mixture: ScaleMixture::new(weight, first_std, second_std)?,
            epoch: KlCycle::new(config, None, PUBLISHED_STEPS),
            batch_size: config.batch_size,
            rates: NoisyRates::new(config, rho_rate),
        })
    }

    fn kl(&self, layer: &AdaptedLinear, pass: &Pass) -> Option<Tensor<1>> {
        let BbbSettings { prior, prior_std, reduction, .. } = self.settings;
        match prior {
            BbbPrior::Gaussian => layer.kl_elements(prior_std, reduction),
            BbbPrior::Mixture => layer.kl_mixture(pass, &self.mixture, reduction),
        }
    }

    fn weight(&self, step: &StepContext) -> Burn<f64> {
        Ok(match self.settings.weight {
            BbbWeight::NTrain => 1.0 / step.n_train.max(1) as f64,
            BbbWeight::Blundell => {
                let batches = self.epoch.batches(step.n_train) as u32;
                falling_weight(step.step as u64, batches)? / self.batch_size.max(1) as f64
            }
            BbbWeight::Batch => 1.0 / step.batch.examples.max(1) as f64,
        })
    }
}

impl Method<AutoModel> for Bbb {
    fn setup(&self, config: &TrainConfig) -> Burn<Setup> {
        Ok(self.rates.setup(self.adapter, Scheme::PerBatch, config))
    }

    fn objective(
        &self,
        model: &AutoModel,
        step: &StepContext,
        likelihood: Objective,
    ) -> Burn<Objective> {
        let kl = total_over_adapters(model, |layer| self.kl(layer, &step.pass));
        Ok(Objective { kl, kl_weight: self.weight(step)?, ..likelihood })
    }
}

/// BLoB and `ScalaBL`: noise on the entries of A, or on one scale per rank direction, and two optimizers that alternate on
/// every batch (see [`SecondOptimizer`]). BLoB:
///
/// ```text
/// q(A) = Π N(μ, Ω²),   Ω = G²,   B deterministic and 0 at the start
/// 1. AdamW on the mean negative log-likelihood under flipout: μ, B, head
/// 2. descent at 0.01, on GLUE 0.002, on π_i·KL(q ‖ N(0, 0.2²)): μ by the KL's gradient, G by both, never clipped
/// ```
///
/// The KL is that of the whole weight under a low-rank prior (`lrvd_core::baselines::bayes_by_backprop`). Draws use flipout as
/// training does. Parameters: `rank·(2·d_input + d_output)` per layer. Source: Wang et al. 2024, arXiv:2406.11675; `optimizers: bayesadapt`
/// as the `BayesAdapt` suite trains it.
///
/// `ScalaBL`:
///
/// ```text
/// ΔW = c·B·diag(s)·V,   s ~ N(exp(log_mean), exp(log_std)²)      one draw per module and forward
/// 1. AdamW on the mean negative log-likelihood: B, V, log_mean, log_std, head
/// 2. descent at 0.1 on π_i·KL(N(0, 1) ‖ q): log_mean, log_std
/// ```
///
/// Parameters: `rank·(d_input + d_output + 2)` per layer. Source: Samplawski et al. 2025, arXiv:2506.21408; update and schedule
/// as in the `BayesAdapt` suite of the same authors, whose code computes the divergence of the prior from the posterior. It
/// pulls `ln σ` up by `(1 + m²)/σ² − 1`, 600 at the start; the standard one (`kl_direction: standard`) by `1 − σ²`, at
/// most 1, and so it has a higher rate.
#[derive(Clone, Debug)]
pub(super) struct Alternating {
    adapter: AdapterConfig,
    op: Option<Arc<dyn UpdateOp>>,
    divergence: Divergence,
    cycle: KlCycle,
    second: SecondOptimizer,
    rates: NoisyRates,
}

#[derive(Clone, Copy, Debug)]
enum Divergence {
    /// Of the entries of A from a normal law of this width.
    Entries(f64),
    Scales(KlDirection),
}

impl Divergence {
    fn of(self, model: &AutoModel) -> Option<Tensor<1>> {
        total_over_adapters(model, |layer| match self {
            Self::Entries(prior_std) => layer.kl_elements(prior_std, ElementReduction::Sum),
            Self::Scales(direction) => scalabl::kl(layer, direction),
        })
    }
}

/// Published rate of `ScalaBL`'s second optimizer for Llama-2, in the coded direction.
const PUBLISHED_RATE: f64 = 0.1;
/// That of the standard direction: it carries `ln σ` to the prior's within the cycles of a published run.
const STANDARD_RATE: f64 = 1.0;

impl Alternating {
    pub(super) fn blob(config: &Config, request: RankRequest) -> Result<Self> {
        let settings = config.methods.blob;
        let rates = NoisyRates::new(config, config.learning_rate * settings.noise_rate_factor);
        let owned = setup::noise_of(settings.optimizers);
        Ok(Self {
            adapter: adapter(config, AdapterKind::Blob { epsilon: settings.epsilon }, request),
            op: None,
            divergence: Divergence::Entries(settings.prior_std),
            cycle: KlCycle::new(config, settings.gamma, PUBLISHED_STEPS),
            second: SecondOptimizer::new(settings.kl_learning_rate, owned),
            rates,
        })
    }

    pub(super) fn scala_bl(config: &Config, request: RankRequest) -> Result<Self> {
        let settings = config.methods.scalabl;
        let rate = match settings.kl_direction {
            KlDirection::Standard => STANDARD_RATE,
            KlDirection::Coded => PUBLISHED_RATE,
        };
        let rate = settings.kl_learning_rate.unwrap_or(rate);
        let noise_rate = config.learning_rate * settings.noise_rate_factor;
        Ok(Self {
            adapter: setup::plain_lora(config, request),
            op: Some(Arc::new(RandomScales { epsilon: settings.epsilon })),
            divergence: Divergence::Scales(settings.kl_direction),
            cycle: KlCycle::new(config, settings.gamma, PUBLISHED_STEPS),
            second: SecondOptimizer::new(rate, setup::noise_of(settings.optimizers)),
            rates: NoisyRates::new(config, noise_rate),
        })
    }
}

impl Method<AutoModel> for Alternating {
    fn setup(&self, config: &TrainConfig) -> Burn<Setup> {
        let scheme = match self.divergence {
            Divergence::Entries(_) => Scheme::PerToken,
            Divergence::Scales(_) => Scheme::PerBatch,
        };
        Ok(Setup { op: self.op.clone(), ..self.rates.setup(self.adapter, scheme, config) })
    }

    fn update(
        &mut self,
        when: UpdatePhase,
        step: StepState<'_, AutoModel>,
    ) -> Burn<Option<RankCause>> {
        let divergence = self.divergence;
        match when {
            UpdatePhase::BeforeUpdate => self.second.before_update(step),
            UpdatePhase::AfterUpdate => {
                self.second.after_update(step, self.cycle, |model| divergence.of(model))?;
            }
        }
        Ok(None)
    }

    fn predict(&self, model: &AutoModel, inputs: &Inputs<'_>) -> Burn<Prediction> {
        match self.divergence {
            Divergence::Entries(_) => inputs.predict_by(Scheme::PerToken, model),
            // One draw a forward, as published, whatever the draws of a posterior are.
            Divergence::Scales(_) => inputs.predict_by(Scheme::PerBatch, model),
        }
    }
}
