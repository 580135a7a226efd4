//! LoRA at a uniform rank, the maximum-likelihood baseline.
//!
//! Objective: mean negative log-likelihood. Parameters: `rank·(d_input + d_output)` per layer.
//! Source: Hu et al. 2021, arXiv:2106.09685.

use lrvd_burn::adapter::{AdapterConfig, AdapterKind};

use super::{Method, MethodError, RankRequest, Tuning};
use crate::settings::ExperimentConfig;

/// LoRA.
pub(super) fn build(
    config: &ExperimentConfig,
    request: RankRequest,
) -> Result<Method, MethodError> {
    let rank = match request {
        RankRequest::Initial => config.initial_rank,
        RankRequest::Average(rank) => rank,
    };
    Ok(Box::new(Lora::new(config, rank)))
}

/// LoRA.
#[derive(Clone, Debug)]
pub(super) struct Lora {
    adapter: AdapterConfig,
}

impl Lora {
    pub(super) fn new(config: &ExperimentConfig, rank: usize) -> Self {
        let kind = AdapterKind::Lora { b_bound: config.lora_b_bound };
        let adapter = AdapterConfig {
            kind,
            rank,
            lora_alpha: config.lora_alpha,
            dropout: config.adapter_dropout,
        };
        Self { adapter }
    }
}

impl Tuning for Lora {
    fn adapter(&self) -> AdapterConfig {
        self.adapter
    }
}
