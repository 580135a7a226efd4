//! The kinds of adapter: each file holds what one kind adds to a layer, as a schema of parameters.
//!
//! | File | Method | Beside the two factors |
//! |---|---|---|
//! | `low_rank` | LoRA, AdaLoRA | nothing, or a diagonal between the factors (arXiv:2303.10512) |
//! | `gaussian` | BayesLoRA and its families, Bayes by backprop, BLoB | Gaussian noise around them |
//! | `scale` | `ScalaBL` | random scales between the factors |
//! | `contextual` | C-LoRA | a random matrix between them that depends on the input |
//! | `members` | LoRA-Ensemble | instead of two factors: several adapters, each for its share of the batch |

mod contextual;
mod gaussian;
mod low_rank;
mod members;
mod scale;

use burn::module::{Module, Param};
use burn::tensor::Tensor;
use lrvd_core::baselines::initial_rho;
use lrvd_core::posterior::INITIAL_B_BOUND;

use super::config::{AdapterConfig, AdapterKind};
use super::initialisation::Initialiser;
use super::noise::LayerNoise;
use super::schema::{ParameterSchema, Sizes, Visit};
use crate::sampling::{Pass, Scheme};

pub(super) use contextual::ContextNoise;
pub use contextual::ContextualGaussian;
pub(crate) use gaussian::posterior_schemas;
pub(super) use gaussian::{FactorNoise, Variances, softplus};
pub use gaussian::{Gaussian, NoiseMap, NoiseParameter};
pub(super) use low_rank::Deviations;
pub use low_rank::LowRankAdapter;
pub use members::{AdapterMembers, repeat_for_members};
pub use scale::ScaleGaussian;

/// Standard deviation of AdaLoRA's initial factors.
const ADALORA_STD: f64 = 0.02;

/// What is attached to a layer.
#[derive(Module, Debug)]
#[expect(clippy::large_enum_variant, reason = "one per layer, and most are low-rank adapters")]
pub enum Adapter {
    /// Two factors and what a kind adds to them.
    LowRank(LowRankAdapter),
    /// Several adapters in place of one.
    Members(AdapterMembers),
}

/// What a kind of adapter adds to the two factors; LoRA adds nothing.
#[derive(Module, Debug)]
pub enum Extension {
    /// A diagonal between the factors, `[rank]`: AdaLoRA.
    SingularValues(Param<Tensor<1>>),
    /// Gaussian noise on A, or on both factors.
    Gaussian(Gaussian),
    /// Noise on scales between the factors.
    Scale(ScaleGaussian),
    /// Noise on a matrix between the factors that depends on the input.
    Contextual(ContextualGaussian),
}

impl From<LowRankAdapter> for Adapter {
    fn from(adapter: LowRankAdapter) -> Self {
        Self::LowRank(adapter)
    }
}

impl From<AdapterMembers> for Adapter {
    fn from(members: AdapterMembers) -> Self {
        Self::Members(members)
    }
}

impl Adapter {
    /// Current rank.
    pub fn rank(&self) -> usize {
        match self {
            Self::LowRank(adapter) => adapter.rank(),
            Self::Members(members) => members.a.val().dims()[2],
        }
    }

    /// The factor `c`.
    pub fn scaling(&self) -> f64 {
        match self {
            Self::LowRank(adapter) => adapter.scaling,
            Self::Members(members) => members.scaling,
        }
    }

    /// Drop probability of the adapter's input in training.
    pub fn dropout(&self) -> f64 {
        match self {
            Self::LowRank(adapter) => adapter.dropout,
            Self::Members(members) => members.dropout,
        }
    }

    /// Whether passes of `scheme` have a meaning here; the mean always has.
    ///
    /// | | `PerBatch` | `PerSequence` | `PerToken` | `MomentMatched`, `Nested` |
    /// |---|---|---|---|---|
    /// | plain, singular values, members | at the mean | at the mean | at the mean | at the mean |
    /// | posterior | yes | yes | flipout | yes |
    /// | other Gaussian noise | yes | yes | flipout | no |
    /// | scale | yes | yes | no | no |
    /// | contextual | yes | yes | noise per token | no |
    pub fn supports(&self, scheme: Scheme) -> bool {
        let Self::LowRank(LowRankAdapter { extension: Some(extension), .. }) = self else {
            return true;
        };
        match (extension, scheme) {
            (Extension::SingularValues(_), _) | (_, Scheme::Mean) => true,
            (Extension::Gaussian(noise), _) if noise.family().is_some() => true,
            (_, Scheme::MomentMatched(_) | Scheme::Nested)
            | (Extension::Scale(_), Scheme::PerToken) => false,
            _ => true,
        }
    }

    /// The update as one matrix `[d_input, d_output]`: at the mean, or at one weight draw where the scheme of
    /// `pass` draws weights; `None` where it is not one matrix.
    pub(super) fn dense(&self, pass: &Pass, module: u32) -> Option<Tensor<2>> {
        let Self::LowRank(adapter) = self else { return None };
        let is_drawn = pass.scheme.draws_weights();
        let noise = LayerNoise { pass, module, scheme: Scheme::PerBatch, sequences: 1 };
        let noise = is_drawn.then_some(&noise);
        let (a, b) = match noise.and_then(|noise| Some((noise, adapter.deviations()?))) {
            Some((noise, std)) => adapter.draw(std, noise),
            None => adapter.means(),
        };
        let a = a.squeeze_dim::<2>(0);
        let a = match &adapter.extension {
            Some(Extension::Contextual(_)) => return None,
            Some(Extension::Scale(scale)) => a * scale.scales(noise),
            _ => a,
        };
        Some(adapter.scale_rank(a).matmul(b.squeeze_dim(0)))
    }

    /// Calls `visit` for every parameter, always in the same order.
    pub(crate) fn each(&mut self, visit: &mut Visit<'_>) {
        match self {
            Self::LowRank(adapter) => adapter.each(visit),
            Self::Members(all) => {
                visit(&members::A, &mut all.a);
                visit(&members::B, &mut all.b);
            }
        }
    }

    /// The sizes that its parameters should have on a layer of the given widths.
    pub(super) fn sizes(&self, d_input: usize, d_output: usize) -> Sizes {
        let sizes = Sizes { d_input, d_output, rank: self.rank(), hidden: 0, members: 1 };
        match self {
            Self::LowRank(adapter) => match &adapter.extension {
                Some(Extension::Contextual(e)) => Sizes { hidden: e.hidden(), ..sizes },
                _ => sizes,
            },
            Self::Members(members) => Sizes { members: members.count(), ..sizes },
        }
    }

    /// A fresh adapter of the kind that `config` names; [`AdapterConfig::attach`] has the distributions.
    pub(super) fn fresh(
        config: &AdapterConfig,
        init: &Initialiser,
    ) -> Result<Self, lrvd_core::Error> {
        use low_rank::{A, B, E};
        let (scaling, dropout) = (config.scaling(), config.dropout);
        let a_bound = Initialiser::bound_of(init.sizes.d_input);
        let lora = |b_bound| (init.uniform(&A, a_bound), init.uniform(&B, b_bound));
        let normal = |std| (init.normal(&A, 0.0, std), init.normal(&B, 0.0, std));
        let ((a, b), extension) = match config.kind {
            AdapterKind::Lora { b_bound } => (lora(b_bound), None),
            AdapterKind::AdaLora => {
                (normal(ADALORA_STD), Some(Extension::SingularValues(init.constant(&E, 0.0))))
            }
            AdapterKind::Variational { family, initial } => {
                let noise = Gaussian::fresh(init, family, initial);
                // At zero the noise-to-signal ratio of every entry would be at its floor.
                (lora(INITIAL_B_BOUND), Some(Extension::Gaussian(noise)))
            }
            AdapterKind::BayesByBackprop { both, rho, rho_std, mean_std } => {
                let [of_a, of_b] = NoiseMap::Softplus.entries();
                let b = both.then(|| init.normal(of_b, rho, rho_std));
                let a = init.normal(of_a, rho, rho_std);
                let noise = Gaussian::per_entry(NoiseMap::Softplus, a, b);
                (mean_std.map_or_else(|| lora(0.0), normal), Some(Extension::Gaussian(noise)))
            }
            AdapterKind::Blob { epsilon } => {
                let [of_a, _] = NoiseMap::Square.entries();
                let a = init.mapped(of_a, |u| initial_rho(u, epsilon));
                let noise = Gaussian::per_entry(NoiseMap::Square, a, None);
                (lora(0.0), Some(Extension::Gaussian(noise)))
            }
            AdapterKind::ScalaBl { epsilon } => {
                let (a, scales) = ScaleGaussian::fresh(init, epsilon)?;
                ((a, init.uniform(&B, 0.0)), Some(Extension::Scale(scales)))
            }
            AdapterKind::CLora { .. } => {
                (lora(0.0), Some(Extension::Contextual(ContextualGaussian::fresh(init))))
            }
            AdapterKind::LoraEnsemble { gain, .. } => {
                let bound = gain * (6.0 / (init.sizes.d_input + init.sizes.rank) as f64).sqrt();
                let (a, b) = (init.uniform(&members::A, bound), init.uniform(&members::B, 0.0));
                return Ok(AdapterMembers { a, b, scaling, dropout }.into());
            }
        };
        Ok(LowRankAdapter { a, b, extension, scaling, dropout }.into())
    }
}

impl AdapterKind {
    /// Every parameter that a fresh adapter of the kind has, in the order of walks.
    pub fn parameters(self) -> Vec<&'static ParameterSchema> {
        use low_rank::{A, B, E};
        let mut all = vec![&A, &B];
        match self {
            Self::Lora { .. } => {}
            Self::AdaLora => all.push(&E),
            Self::Variational { family, .. } => all.extend(posterior_schemas(family)),
            Self::BayesByBackprop { both, .. } => {
                all.extend(&NoiseMap::Softplus.entries()[..=usize::from(both)]);
            }
            Self::Blob { .. } => all.extend(&NoiseMap::Square.entries()[..1]),
            Self::ScalaBl { .. } => all.extend([&scale::LOG_MEAN, &scale::LOG_STD]),
            Self::CLora { .. } => all.extend(contextual::SCHEMAS),
            Self::LoraEnsemble { .. } => return vec![&members::A, &members::B],
        }
        all
    }
}
