//! What to attach to a layer, and with which initial values.

use burn::module::Param;
use burn::tensor::{Tensor, TensorData};
use lrvd_core::error::ParameterError;
use lrvd_core::family::{INITIAL_B_BOUND, INITIAL_LOG_VARIANCE, VariationalFamily};
use lrvd_core::noise::{NoiseKey, Stream};
use serde::{Deserialize, Serialize};

use super::linear::AdaptedLinear;
use super::low_rank::LowRankAdapter;
use super::posterior::{ElementParameters, Posterior, RankParameters};
use super::start::{normal, uniform};

/// Half-width of the uniform start of B under a posterior: zero would put the noise-to-signal
/// ratio of every entry at its floor.
pub(super) const POSTERIOR_B_BOUND: f64 = INITIAL_B_BOUND;

/// Standard deviation of AdaLoRA's initial factors.
const ADALORA_STD: f32 = 0.02;

/// AdaLoRA divides by `r0 + 1e-5`, as its reference implementation does.
const ADALORA_RANK_EPSILON: f64 = 1e-5;

/// The kind of adapter.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AdapterKind {
    /// `c·A·B`, `c = lora_alpha / r0`.
    Lora {
        /// Half-width of the uniform start of B; 0 starts at the base model exactly.
        b_bound: f64,
    },
    /// `c·A·diag(E)·B`, `c = lora_alpha / (r0 + 1e-5)`, `E = 0` at the start.
    AdaLora,
    /// LoRA means with a Gaussian posterior.
    Variational {
        /// The posterior family.
        family: VariationalFamily,
        /// Start of `ln σ²`, or of `ln α` in the multiplicative family.
        initial: f64,
    },
    /// A standard deviation `softplus(rho)` per entry, for Bayes by backprop.
    BayesByBackprop {
        /// Noise on both factors rather than on A alone.
        both: bool,
        /// Mean of the normal law of the initial `rho`.
        rho: f64,
        /// Standard deviation of that law; 0 starts all of them alike.
        rho_std: f64,
        /// Standard deviation of normal means of both factors; `None` starts the means as LoRA.
        mean_std: Option<f64>,
    },
    /// A standard deviation `G²` per entry of A, for BLoB; the means start as LoRA.
    Blob {
        /// Upper end of the uniform start of `G`, which begins at `epsilon/√2`.
        epsilon: f64,
    },
    /// Random scales in an orthonormal basis, for `ScalaBL`.
    ScalaBl {
        /// Upper end of the uniform start of the scales' standard deviations, which begins at
        /// `epsilon/√2`.
        epsilon: f64,
    },
    /// A random rank matrix that depends on the input, for C-LoRA; the factors start as LoRA.
    CLora {
        /// Width of the hidden layer of the network that gives its law.
        hidden: usize,
    },
    /// Several adapters that share a batch, for LoRA-Ensemble.
    LoraEnsemble {
        /// Number of adapters.
        members: usize,
        /// Gain of the Xavier-uniform start of A: large, so that members differ.
        gain: f64,
    },
}

impl AdapterKind {
    /// The default posterior: one additive log-variance per rank, starting at -8.
    pub fn bayes_lora() -> Self {
        Self::Variational { family: VariationalFamily::RankVariance, initial: INITIAL_LOG_VARIANCE }
    }

    /// Whether the kind is a LoRA adapter with something beside it or several of them, rather than
    /// one of those that `LowRankAdapter` alone can hold.
    fn is_extended(self) -> bool {
        !matches!(self, Self::Lora { .. } | Self::AdaLora | Self::Variational { .. })
    }
}

/// An adapter to attach.
///
/// | Field | Default | Meaning |
/// |---|---|---|
/// | `kind` | variational | LoRA, AdaLoRA, variational, or one of the uncertainty baselines |
/// | `rank` | 16 | rank at attachment, at least 1 |
/// | `lora_alpha` | 16 | numerator of the scaling, above 0 |
/// | `dropout` | 0 | drop probability of the adapter's input in training, in [0, 1) |
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdapterConfig {
    /// Kind of adapter.
    pub kind: AdapterKind,
    /// Initial rank.
    pub rank: usize,
    /// Numerator of the scaling.
    pub lora_alpha: f64,
    /// Drop probability of the adapter's input.
    pub dropout: f64,
}

impl Default for AdapterConfig {
    fn default() -> Self {
        Self { kind: AdapterKind::bayes_lora(), rank: 16, lora_alpha: 16.0, dropout: 0.0 }
    }
}

impl AdapterConfig {
    /// Checks the ranges in the table above.
    ///
    /// # Errors
    ///
    /// [`ParameterError::OutOfRange`] naming the field.
    pub fn check(&self) -> Result<(), ParameterError> {
        let range = |name, value: f64, low: f64, high: f64| {
            if value >= low && value <= high {
                Ok(())
            } else {
                Err(ParameterError::OutOfRange { name, value, low, high })
            }
        };
        range("rank", self.rank as f64, 1.0, 65_536.0)?;
        range("lora_alpha", self.lora_alpha, f64::MIN_POSITIVE, f64::MAX)?;
        range("dropout", self.dropout, 0.0, 1.0 - f64::EPSILON)?;
        match self.kind {
            AdapterKind::Lora { b_bound } => range("b_bound", b_bound, 0.0, 1.0),
            AdapterKind::AdaLora => Ok(()),
            AdapterKind::Variational { initial, .. } => range("initial", initial, -30.0, 10.0),
            AdapterKind::BayesByBackprop { rho, rho_std, mean_std, .. } => {
                range("rho", rho, -30.0, 10.0)?;
                range("rho_std", rho_std, 0.0, 10.0)?;
                mean_std.map_or(Ok(()), |std| range("mean_std", std, f64::MIN_POSITIVE, 10.0))
            }
            AdapterKind::Blob { epsilon } | AdapterKind::ScalaBl { epsilon } => {
                range("epsilon", epsilon, f64::MIN_POSITIVE, 1.0)
            }
            AdapterKind::CLora { hidden } => range("hidden", hidden as f64, 1.0, 65_536.0),
            AdapterKind::LoraEnsemble { members, gain } => {
                range("members", members as f64, 1.0, 4096.0)?;
                range("gain", gain, f64::MIN_POSITIVE, 1e6)
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

    /// Attaches a freshly initialised, trainable adapter to `layer`.
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
    /// Values depend on `seed` and the layer's path only.
    ///
    /// # Errors
    ///
    /// As [`AdapterConfig::check`]; `ScalaBL` also refuses a rank above the layer's input width.
    pub fn attach(&self, layer: &mut AdaptedLinear, seed: NoiseKey) -> Result<(), ParameterError> {
        self.check()?;
        let (d_input, d_output, rank) = (layer.d_input(), layer.d_output(), self.rank);
        let key = seed.for_module(layer.noise_id()).on_stream(Stream::INIT);
        if self.kind.is_extended() {
            return super::start::attach_extended(self, layer, key);
        }
        let like = layer.weight.val();
        let device = like.device().inner().autodiff();
        let dtype = super::adapter_dtype(like.dtype());
        let matrix = |values: Vec<f32>, shape: [usize; 2]| {
            let data = TensorData::new(values, shape);
            Param::from_tensor(Tensor::<2>::from_data(data, (&device, dtype)).require_grad())
        };
        let constant = |value: f64, len: usize| {
            let t = Tensor::<1>::full([len], value, (&device, dtype));
            Param::from_tensor(t.require_grad())
        };
        let a_bound = 1.0 / (d_input as f64).sqrt();
        let (a, b) = match self.kind {
            AdapterKind::AdaLora => (
                normal(key, rank * d_input, ADALORA_STD),
                normal(key.with_use(1), rank * d_output, ADALORA_STD),
            ),
            AdapterKind::Lora { b_bound } => (
                uniform(key, rank * d_input, a_bound),
                uniform(key.with_use(1), rank * d_output, b_bound),
            ),
            _ => (
                uniform(key, rank * d_input, a_bound),
                uniform(key.with_use(1), rank * d_output, POSTERIOR_B_BOUND),
            ),
        };
        let posterior = match self.kind {
            AdapterKind::Variational { family, initial } => Some(match family {
                VariationalFamily::RankVariance => {
                    Posterior::RankVariance(RankParameters { value: constant(initial, rank) })
                }
                VariationalFamily::NoiseToSignal => {
                    Posterior::NoiseToSignal(RankParameters { value: constant(initial, rank) })
                }
                VariationalFamily::AsymRankVariance => {
                    Posterior::AsymRankVariance(RankParameters { value: constant(initial, rank) })
                }
                VariationalFamily::ElementVariance => {
                    let full = |n: usize, shape| matrix(vec![initial as f32; n], shape);
                    Posterior::ElementVariance(ElementParameters {
                        a: full(d_input * rank, [d_input, rank]),
                        b: full(rank * d_output, [rank, d_output]),
                    })
                }
            }),
            _ => None,
        };
        let adapter = LowRankAdapter {
            a: matrix(a, [d_input, rank]),
            b: matrix(b, [rank, d_output]),
            e: matches!(self.kind, AdapterKind::AdaLora).then(|| constant(0.0, rank)),
            posterior,
            scaling: self.scaling(),
            dropout: self.dropout,
        };
        layer.attach(adapter, rank);
        Ok(())
    }
}
