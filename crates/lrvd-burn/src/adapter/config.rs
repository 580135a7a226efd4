//! Configuration of an adapter: its kind, sizes and initial values.

use lrvd_core::error::{above, above_up_to, check_range};
use lrvd_core::noise::{NoiseKey, module_id};
use lrvd_core::posterior::{INITIAL_LOG_VARIANCE, VariationalFamily};
use serde::{Deserialize, Serialize};

use super::initialisation::Initialiser;
use super::kind::Adapter;
use super::linear::AdaptedLinear;
use super::schema::{ParameterSchema, Sizes};

/// AdaLoRA divides by `r0 + 1e-5`, as its reference implementation does.
const ADALORA_RANK_EPSILON: f64 = 1e-5;

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
    /// Random scales in an orthonormal basis, for `ScalaBL`.
    ScalaBl {
        /// Upper end of the uniform distribution of the scales' initial standard deviations, which starts at
        /// `epsilon/√2`.
        epsilon: f64,
    },
    /// A random rank matrix that depends on the input, for C-LoRA; the factors start as LoRA.
    CLora {
        /// Width of the hidden layer of the network that gives its distribution.
        hidden: usize,
    },
    /// Several adapters that share a batch, for LoRA-Ensemble.
    LoraEnsemble {
        /// Number of adapters.
        members: usize,
        /// Gain of the Xavier-uniform initial values of A: large, so that members differ.
        gain: f64,
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
            AdapterKind::Blob { epsilon } | AdapterKind::ScalaBl { epsilon } => {
                check_range("epsilon", epsilon, above_up_to(0.0, 1.0))
            }
            AdapterKind::CLora { hidden } => check_range("hidden", hidden, 1..=65_536),
            AdapterKind::LoraEnsemble { members, gain } => {
                check_range("members", members, 1..=4096)?;
                check_range("gain", gain, above_up_to(0.0, 1e6))
            }
        }
    }

    /// The factor `c`.
    pub fn scaling(&self) -> f64 {
        match self.kind {
            AdapterKind::AdaLora => self.lora_alpha / (self.rank as f64 + ADALORA_RANK_EPSILON),
            _ => self.lora_alpha / self.rank as f64,
        }
    }

    /// Attaches a freshly initialised, trainable adapter to `layer`, which is at `path`.
    ///
    /// ```text
    /// LoRA, variational: A ~ U(±1/sqrt(d_input)),  B ~ U(±b_bound)
    /// AdaLoRA:           A, B ~ N(0, 0.02²),       E = 0
    /// Bayes by backprop: as LoRA with B = 0, or A, B ~ N(0, mean_std²);   rho ~ N(rho, rho_std²)
    /// BLoB:              as LoRA with B = 0,       G ~ U(epsilon/√2, epsilon)
    /// ScalaBL:           U·diag(s)·V = a LoRA's Aᵀ; A = Vᵀ, B = 0, log_mean = ln s,
    ///                    log_std = ln U(epsilon/√2, epsilon)
    /// C-LoRA:            as LoRA with B = 0;       w, b ~ U(±1/sqrt(inputs of the layer))
    /// LoRA-Ensemble:     A ~ U(±gain·sqrt(6/(d_input + rank))),  B = 0,   for every member
    /// ```
    ///
    /// Values depend on `seed` and the path only.
    pub fn attach(
        &self,
        layer: &mut AdaptedLinear,
        path: &str,
        seed: NoiseKey,
    ) -> Result<(), lrvd_core::Error> {
        self.check()?;
        let key = seed.for_module(module_id(path));
        let init = Initialiser::new(layer, self.sizes(layer.d_input(), layer.d_output()), key);
        layer.place(path, Adapter::fresh(self, &init)?, self.rank);
        Ok(())
    }

    /// Number of parameters of a fresh adapter on a layer of the given widths.
    pub fn parameter_count(&self, d_input: usize, d_output: usize) -> usize {
        let sizes = self.sizes(d_input, d_output);
        let count = |schema: &ParameterSchema| schema.shape(&sizes).iter().product::<usize>();
        self.kind.parameters().into_iter().map(count).sum()
    }

    fn sizes(&self, d_input: usize, d_output: usize) -> Sizes {
        let (hidden, members) = match self.kind {
            AdapterKind::CLora { hidden } => (hidden, 1),
            AdapterKind::LoraEnsemble { members, .. } => (0, members),
            _ => (0, 1),
        };
        Sizes { d_input, d_output, rank: self.rank, hidden, members }
    }
}
