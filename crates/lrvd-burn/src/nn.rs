//! `burn::nn`'s linear layer with the adapter applied to activations: a model changes one `use`.
//!
//! Same fields, same record, same `forward`. Noise on activations, a draw for each sequence, dropout and the fused
//! operators need it; see [`BayesLora::targets`](crate::BayesLora::targets).

use burn::nn::LinearConfig as BurnLinearConfig;
use burn::tensor::Device;

pub use crate::adapter::AdaptedLinear as Linear;

/// `burn::nn::LinearConfig` of a [`Linear`].
#[derive(Debug, Clone)]
pub struct LinearConfig(BurnLinearConfig);

impl LinearConfig {
    /// `[d_input] -> [d_output]` with a bias.
    pub fn new(d_input: usize, d_output: usize) -> Self {
        Self(BurnLinearConfig::new(d_input, d_output))
    }

    /// `true`, the default, for a layer with a bias.
    #[must_use]
    pub fn with_bias(self, bias: bool) -> Self {
        Self(self.0.with_bias(bias))
    }

    /// The layer, from the random numbers of `device`.
    pub fn init(&self, device: &Device) -> Linear {
        self.0.init(device).into()
    }
}

impl From<burn::nn::Linear> for Linear {
    fn from(burn::nn::Linear { weight, bias }: burn::nn::Linear) -> Self {
        Self { weight, bias }
    }
}
