//! Methods that train LoRA's factors without a posterior: MAP and MC dropout.

use lrvd_burn::adapter::AdapterConfig;
use lrvd_burn::model::total_over_adapters;
use lrvd_burn::objective::Objective;
use lrvd_burn::sampling::Pass;
use lrvd_burn::train::{Method, Prediction, Setup, StepContext, TrainConfig};
use lrvd_models::AutoModel;

use super::setup::{lora, rate_to_reach};
use super::{Inputs, RankRequest};
use crate::error::{Burn, Result};
use crate::settings::{Config, MapSettings};

/// MAP: maximum likelihood with a Gaussian prior on the adapter, or what is called so.
///
/// Objective: mean negative log-likelihood, with decoupled decay of the factors (the default, as
/// published code has it; under `AdamW` that is no prior), or, with `l2_in_loss`, plus
///
/// ```text
/// precision / (2·N_train) · (Σ A² + Σ B²)          the prior N(0, 1/precision) on every entry
/// ```
///
/// The decay is `1/Σ_t η_t`: a factor that the likelihood leaves alone ends at `1/e` of its start in a run of any length (the
/// published 1e-5 leaves all but 2.5 millionths). Parameters: `rank·(d_input + d_output)` per layer. Source: the code of Wang et
/// al. 2024, arXiv:2406.11675.
#[derive(Clone, Debug)]
pub(super) struct Map {
    adapter: AdapterConfig,
    settings: MapSettings,
    weight_decay: f64,
}

impl Map {
    pub(super) fn new(config: &Config, request: RankRequest) -> Result<Self> {
        let settings = config.methods.map;
        let weight_decay = match settings.weight_decay {
            _ if settings.l2_in_loss => 0.0,
            Some(decay) => decay,
            None if config.learning_rate > 0.0 => {
                rate_to_reach(config, 1.0)? / config.learning_rate
            }
            None => 0.0,
        };
        Ok(Self { adapter: lora(config, request), settings, weight_decay })
    }
}

impl Method<AutoModel> for Map {
    fn setup(&self, config: &TrainConfig) -> Burn<Setup> {
        let mut setup = Setup::new(self.adapter, config);
        setup.groups.adapter.weight_decay = self.weight_decay;
        Ok(setup)
    }

    fn objective(
        &self,
        model: &AutoModel,
        step: &StepContext,
        likelihood: Objective,
    ) -> Burn<Objective> {
        if !self.settings.l2_in_loss {
            return Ok(likelihood);
        }
        let squares = total_over_adapters(model, |layer| {
            let adapter = layer.low_rank()?;
            Some(adapter.a.val().square().sum() + adapter.b.val().square().sum())
        });
        let weight = 0.5 * self.settings.precision / step.n_train as f64;
        let penalty = squares.map(|squares| squares.mul_scalar(weight));
        Ok(Objective { penalty, ..likelihood })
    }
}

/// MC dropout: dropout that stays on.
/// Objective: mean negative log-likelihood with dropout on the adapter's input. Prediction: the averaged probabilities of `k`
/// passes with that dropout on, and none of the backbone. Parameters: `rank·(d_input + d_output)` per layer. Source: Gal and
/// Ghahramani 2016, arXiv:1506.02142.
#[derive(Clone, Debug)]
pub(super) struct McDropout {
    adapter: AdapterConfig,
}

impl McDropout {
    pub(super) fn new(config: &Config, request: RankRequest) -> Result<Self> {
        let dropout = config.methods.mcd.dropout;
        Ok(Self { adapter: AdapterConfig { dropout, ..lora(config, request) } })
    }
}

impl Method<AutoModel> for McDropout {
    fn setup(&self, config: &TrainConfig) -> Burn<Setup> {
        Ok(Setup::new(self.adapter, config))
    }

    fn predict(&self, model: &AutoModel, inputs: &Inputs<'_>) -> Burn<Prediction> {
        inputs.predict_with(model, |key| Pass::mean().with_adapter_dropout(key))
    }
}
