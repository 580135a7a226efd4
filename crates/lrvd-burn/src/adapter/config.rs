//! Configuration of an adapter: its kind, sizes and initial values.

use lrvd_core::adalora::adalora_scaling;
use lrvd_core::error::{above, above_up_to, check_range};
use lrvd_core::posterior::{INITIAL_LOG_VARIANCE, VariationalFamily};
use serde::{Deserialize, Serialize};

/// The kind of adapter.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AdapterKind {
    /// `c·A·B`, `c = lora_alpha / r0`.
    Lora {
        /// Half-width of the uniform initial values of B; 0 starts at the base model exactly.
        b_bound: f64,
    },
    /// `c·A·diag(E)·B`, `c = lora_alpha / (r0 + 1e-5)`, `E = 0` initially.
    AdaLora,
    /// LoRA means with a Gaussian posterior.
    Variational {
        /// The posterior family.
        family: VariationalFamily,
        /// Initial `ln σ²`, or `ln α` in the multiplicative family.
        initial: f64,
    },
    /// A standard deviation `softplus(rho)` per entry, for Bayes by backprop.
    BayesByBackprop {
        /// Noise on both factors rather than on A alone.
        both: bool,
        /// Mean of the normal distribution of the initial `rho`.
        rho: f64,
        /// Standard deviation of that distribution; 0 makes all of them alike.
        rho_std: f64,
        /// Standard deviation of normal means of both factors; `None` initialises the means as LoRA.
        mean_std: Option<f64>,
    },
    /// A standard deviation `G²` per entry of A, for BLoB; the means start as LoRA.
    Blob {
        /// Upper end of the uniform distribution of the initial `G`, which starts at `epsilon/√2`.
        epsilon: f64,
    },
}

impl AdapterKind {
    /// The default posterior: one additive log-variance per rank, -8 initially.
    pub fn bayes_lora() -> Self {
        Self::Variational { family: VariationalFamily::RankVariance, initial: INITIAL_LOG_VARIANCE }
    }
}

/// An adapter to attach.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdapterConfig {
    /// LoRA, AdaLoRA, variational (the default), or one of the uncertainty baselines.
    pub kind: AdapterKind,
    /// Rank at attachment, at least 1; 16 by default.
    pub rank: usize,
    /// Numerator of the scaling, above 0; 16 by default.
    pub lora_alpha: f64,
    /// Drop probability of the adapter's input in training, in `[0, 1)`; 0 by default.
    pub dropout: f64,
}

impl Default for AdapterConfig {
    fn default() -> Self {
        Self { kind: AdapterKind::bayes_lora(), rank: 16, lora_alpha: 16.0, dropout: 0.0 }
    }
}

impl AdapterConfig {
    /// Checks that every number is in its range.
    pub fn check(&self) -> Result<(), lrvd_core::Error> {
        check_range("rank", self.rank, 1..=65_536)?;
        check_range("lora_alpha", self.lora_alpha, above(0.0))?;
        check_range("dropout", self.dropout, 0.0..1.0)?;
        match self.kind {
            AdapterKind::Lora { b_bound } => check_range("b_bound", b_bound, 0.0..=1.0),
            AdapterKind::AdaLora => Ok(()),
            AdapterKind::Variational { initial, .. } => {
                check_range("initial", initial, -30.0..=10.0)
            }
            AdapterKind::BayesByBackprop { rho, rho_std, mean_std, .. } => {
                check_range("rho", rho, -30.0..=10.0)?;
                check_range("rho_std", rho_std, 0.0..=10.0)?;
                mean_std.map_or(Ok(()), |std| check_range("mean_std", std, above_up_to(0.0, 10.0)))
            }
            AdapterKind::Blob { epsilon } => check_range("epsilon", epsilon, above_up_to(0.0, 1.0)),
        }
    }

    /// The factor `c`.
    pub fn scaling(&self) -> f64 {
        match self.kind {
            AdapterKind::AdaLora => adalora_scaling(self.lora_alpha, self.rank),
            _ => self.lora_alpha / self.rank as f64,
        }
    }
}
