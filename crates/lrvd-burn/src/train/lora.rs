//! LoRA at a uniform rank, the maximum-likelihood baseline.
//!
//! Objective: mean negative log-likelihood. Parameters: `rank·(d_input + d_output)` per layer.
//! Source: Hu et al. 2021, arXiv:2106.09685.

use super::method::Method;
use super::model::Model;
use crate::adapter::{AdapterConfig, AdapterKind};

/// LoRA.
///
/// | Field | Default | Meaning |
/// |---|---|---|
/// | `rank` | 8 | rank of every adapter |
/// | `lora_alpha` | 16 | numerator of the scaling |
/// | `dropout` | 0 | drop probability of the adapter's input |
/// | `b_bound` | 0 | half-width of B's uniform initial values; at 0 training starts at the base model |
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lora {
    /// Rank.
    pub rank: usize,
    /// Numerator of the scaling.
    pub lora_alpha: f64,
    /// Drop probability of the adapter's input.
    pub dropout: f64,
    /// Half-width of B's uniform initial values.
    pub b_bound: f64,
}

impl Default for Lora {
    fn default() -> Self {
        Self { rank: 8, lora_alpha: 16.0, dropout: 0.0, b_bound: 0.0 }
    }
}

impl<M: Model> Method<M> for Lora {
    fn adapter(&self) -> AdapterConfig {
        let Self { rank, lora_alpha, dropout, b_bound } = *self;
        AdapterConfig { kind: AdapterKind::Lora { b_bound }, rank, lora_alpha, dropout }
    }
}
