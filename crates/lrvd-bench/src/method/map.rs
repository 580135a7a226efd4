//! MAP: maximum likelihood with a Gaussian prior on the adapter, or what is called so.
//!
//! Objective: mean negative log-likelihood, with decoupled decay of the factors (the default, as
//! published code has it; under `AdamW` that is no prior), or, with `l2_in_loss`, plus
//!
//! ```text
//! precision / (2·N_train) · (Σ A² + Σ B²)          the prior N(0, 1/precision) on every entry
//! ```
//!
//! Parameters: `rank·(d_input + d_output)` per layer. Source: the code of Wang et al. 2024,
//! arXiv:2406.11675 (decay).

use lrvd_burn::adapter::{AdapterConfig, AdapterKind};
use lrvd_burn::model::total_over_adapters;
use lrvd_burn::optimizer::ParameterGroups;
use lrvd_burn::sampling::Pass;
use serde::{Deserialize, Serialize};

use super::setup::{adapter, in_range};
use super::{Method, MethodError, RankRequest, Regulariser, StepSizes, Tuning};
use crate::backbone::TaskModel;
use crate::settings::ExperimentConfig;

/// MAP.
pub(super) fn build(
    config: &ExperimentConfig,
    request: RankRequest,
) -> Result<Method, MethodError> {
    Ok(Box::new(Map::new(config, request)?))
}

/// Settings of MAP.
///
/// | Field | Default | Range |
/// |---|---|---|
/// | `weight_decay` | 1e-5 | at least 0; unused with `l2_in_loss` |
/// | `l2_in_loss` | false | |
/// | `precision` | 1 | at least 0; used with `l2_in_loss` |
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct MapSettings {
    weight_decay: f64,
    l2_in_loss: bool,
    precision: f64,
}

impl Default for MapSettings {
    fn default() -> Self {
        Self { weight_decay: 1e-5, l2_in_loss: false, precision: 1.0 }
    }
}

/// MAP.
#[derive(Clone, Debug)]
struct Map {
    adapter: AdapterConfig,
    settings: MapSettings,
}

impl Map {
    fn new(config: &ExperimentConfig, request: RankRequest) -> Result<Self, MethodError> {
        let settings: MapSettings = config.method("map")?;
        in_range("map.weight_decay", settings.weight_decay, 0.0, 1e6)?;
        in_range("map.precision", settings.precision, 0.0, 1e12)?;
        let kind = AdapterKind::Lora { b_bound: config.lora_b_bound };
        Ok(Self { adapter: adapter(config, kind, request), settings })
    }
}

impl Tuning for Map {
    fn adapter(&self) -> AdapterConfig {
        self.adapter
    }

    fn groups(&self, config: &ExperimentConfig) -> ParameterGroups {
        let mut groups = config.groups(self.is_variational());
        groups.adapter.weight_decay =
            if self.settings.l2_in_loss { 0.0 } else { self.settings.weight_decay };
        groups
    }

    fn regularise(
        &self,
        model: &TaskModel,
        _pass: &Pass,
        sizes: StepSizes,
    ) -> Result<Regulariser, MethodError> {
        if !self.settings.l2_in_loss {
            return Ok(Regulariser::none());
        }
        let squares = total_over_adapters(model, |layer| {
            let adapter = layer.low_rank()?;
            Some(adapter.a.val().square().sum() + adapter.b.val().square().sum())
        });
        let weight = 0.5 * self.settings.precision / sizes.n_train as f64;
        Ok(Regulariser::penalty(squares.map(|squares| squares.mul_scalar(weight))))
    }
}
