//! MC dropout: dropout that stays on.
//!
//! Objective: mean negative log-likelihood with dropout on the adapter's input. Prediction: the
//! probabilities of `k` passes with that dropout on, averaged; `k = 0` is without it. Dropout of the
//! backbone is on in training if the experiment says so, and never in prediction: it does not belong
//! to what was learnt. Parameters: `rank·(d_input + d_output)` per layer. Source: Gal and
//! Ghahramani 2016, arXiv:1506.02142.

use lrvd_burn::adapter::{AdapterConfig, AdapterKind};
use lrvd_burn::sampling::Pass;

use super::setup::adapter;
use super::{Method, MethodError, RankRequest, Tuning};
use crate::backbone::TaskModel;
use crate::eval::Inputs;
use crate::settings::ExperimentConfig;

/// MC dropout.
pub(super) fn build(
    config: &ExperimentConfig,
    request: RankRequest,
) -> Result<Method, MethodError> {
    Ok(Box::new(McDropout::new(config, request)))
}

/// MC dropout.
#[derive(Clone, Debug)]
struct McDropout {
    adapter: AdapterConfig,
}

impl McDropout {
    fn new(config: &ExperimentConfig, request: RankRequest) -> Self {
        let dropout = config.methods.mcd.dropout;
        let kind = AdapterKind::Lora { b_bound: config.lora_b_bound };
        Self { adapter: AdapterConfig { dropout, ..adapter(config, kind, request) } }
    }
}

impl Tuning for McDropout {
    fn adapter(&self) -> AdapterConfig {
        self.adapter
    }

    fn draws(&self, config: &ExperimentConfig) -> Vec<usize> {
        config.draws.clone()
    }

    fn predict(
        &self,
        model: &TaskModel,
        inputs: &Inputs<'_>,
        draws: usize,
    ) -> Result<Vec<f64>, MethodError> {
        if draws == 0 {
            return Ok(inputs.logits(model, &Pass::mean())?);
        }
        Ok(inputs.drawn(model, draws, |key| Pass::mean().with_adapter_dropout(key))?)
    }
}
