//! LoRA at a uniform rank, the maximum-likelihood baseline.
//!
//! Objective: mean negative log-likelihood. Parameters: `rank·(d_input + d_output)` per layer.
//! Source: Hu et al. 2021, arXiv:2106.09685.

use super::config::TrainConfig;
use super::data::Model;
use super::method::{Method, Setup};
use crate::adapter::{AdapterConfig, AdapterKind};
use crate::error::Error;

/// LoRA.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lora {
    /// Rank of every adapter; 8 by default.
    pub rank: usize,
    /// Numerator of the scaling; 16 by default.
    pub lora_alpha: f64,
    /// Drop probability of the adapter's input; 0 by default.
    pub dropout: f64,
    /// Half-width of B's uniform initial values; at 0, the default, training starts at the base model.
    pub b_bound: f64,
}

impl Default for Lora {
    fn default() -> Self {
        Self { rank: 8, lora_alpha: 16.0, dropout: 0.0, b_bound: 0.0 }
    }
}

impl<M: Model> Method<M> for Lora {
    fn setup(&self, config: &TrainConfig) -> Result<Setup, Error> {
        let Self { rank, lora_alpha, dropout, b_bound } = *self;
        let kind = AdapterKind::Lora { b_bound };
        Ok(Setup::new(AdapterConfig { kind, rank, lora_alpha, dropout }, config))
    }
}
