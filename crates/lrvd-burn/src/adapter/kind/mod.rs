//! The kinds of adapter: each file holds what one kind adds to a layer, as a schema of parameters.
//!
//! | File | Method | Beside the two factors |
//! |---|---|---|
//! | `low_rank` | LoRA | nothing: factors, draws and scaling of every kind below |
//! | `singular_values` | AdaLoRA | a diagonal between the factors |
//! | `posterior` | BayesLoRA and its families | a Gaussian posterior around them |
//! | `gaussian` | Bayes by backprop, BLoB | a standard deviation per entry |
//! | `scale` | `ScalaBL` | random scales between the factors |
//! | `contextual` | C-LoRA | a random matrix between them that depends on the input |
//! | `members` | LoRA-Ensemble | instead of two factors: several adapters, each for its share of the batch |

mod contextual;
mod gaussian;
pub(super) mod low_rank;
mod members;
mod posterior;
mod scale;
mod singular_values;

use burn::module::{Module, Param};
use burn::tensor::Tensor;
use lrvd_core::baselines::StdMap;

use super::config::{AdapterConfig, AdapterKind};
use super::initialisation::Initialiser;
use super::layer_noise::LayerNoise;
use super::schema::{ParameterSchema, Parameters, Sizes};
use crate::parameters::ParameterValue;
use crate::sampling::{DrawPer, Pass, Scheme};

pub(super) use contextual::ContextNoise;
pub use contextual::ContextualGaussian;
pub use gaussian::ElementGaussian;
pub(super) use low_rank::Deviations;
pub use low_rank::LowRankAdapter;
pub use members::{AdapterMembers, repeat_for_members};
pub(crate) use posterior::schemas as posterior_schemas;
pub use posterior::{ElementParameters, Posterior, RankParameters};
pub(super) use posterior::{clamped, clamped_log_alpha};
pub use scale::ScaleGaussian;

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
    /// A Gaussian posterior whose means the factors are.
    Posterior(Posterior),
    /// Independent noise on the entries of A, or of both factors.
    Gaussian(ElementGaussian),
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
            Self::Members(members) => members.rank(),
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
    /// Plain factors and singular values run at their mean under every scheme, posteriors support all
    /// of them; for the rest see [`Extension::supports`]. Members are deterministic, whatever the
    /// scheme.
    pub fn supports(&self, scheme: Scheme) -> bool {
        match self {
            Self::LowRank(adapter) => adapter.extension.as_ref().is_none_or(|e| e.supports(scheme)),
            Self::Members(_) => true,
        }
    }

    /// Whether the update at the mean is the product of two factors, so that a LoRA file can hold it
    /// without loss and a base weight can take it in.
    pub(super) fn has_factors(&self) -> bool {
        match self {
            Self::LowRank(adapter) => {
                !matches!(adapter.extension, Some(Extension::Scale(_) | Extension::Contextual(_)))
            }
            Self::Members(_) => false,
        }
    }

    /// Whether the update at the mean is one matrix, the same for every input.
    pub(super) fn has_dense_mean(&self) -> bool {
        match self {
            Self::LowRank(adapter) => !matches!(adapter.extension, Some(Extension::Contextual(_))),
            Self::Members(_) => false,
        }
    }

    /// The update as one matrix `[d_input, d_output]`: at the mean, or at one weight draw where the scheme of
    /// `pass` draws weights; `None` where it is [not one](Self::has_dense_mean).
    pub(super) fn dense(&self, pass: &Pass, noise_id: u32) -> Option<Tensor<2>> {
        let Self::LowRank(adapter) = self else { return None };
        let is_drawn = matches!(pass.scheme, Scheme::Weights(_));
        let noise = LayerNoise { pass, module: noise_id, per: DrawPer::Batch, sequences: 1 };
        let noise = is_drawn.then_some(&noise);
        let means = (adapter.a.val(), adapter.b.val());
        let std = match &adapter.extension {
            Some(Extension::Contextual(_)) => return None,
            Some(Extension::Posterior(posterior)) => {
                let (a, b) = posterior.deviations(&means.0, &means.1);
                Some(Deviations { a, b })
            }
            Some(Extension::Gaussian(e)) => Some(e.factor_deviations()),
            Some(Extension::SingularValues(_) | Extension::Scale(_)) | None => None,
        };
        let (a, b) = match noise.zip(std) {
            Some((noise, std)) => {
                let (a, b) = adapter.draw(std, noise);
                (a.squeeze_dim(0), b.squeeze_dim(0))
            }
            None => means,
        };
        let a = match &adapter.extension {
            Some(Extension::Scale(scale)) => a * scale.scales(noise),
            _ => a,
        };
        Some(adapter.scale_rank(a).matmul(b))
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

    /// A fresh adapter of the kind that `config` names.
    pub(super) fn fresh(
        config: &AdapterConfig,
        init: &Initialiser,
    ) -> Result<Self, lrvd_core::Error> {
        use low_rank::{A, B, POSTERIOR_B_BOUND};
        let (scaling, dropout) = (config.scaling(), config.dropout);
        let a_bound = Initialiser::bound_of(init.sizes.d_input);
        let lora = |b_bound| (init.uniform(&A, a_bound), init.uniform(&B, b_bound));
        let normal = |std| (init.normal(&A, 0.0, std), init.normal(&B, 0.0, std));
        let ((a, b), extension) = match config.kind {
            AdapterKind::Lora { b_bound } => (lora(b_bound), None),
            AdapterKind::AdaLora => {
                (normal(singular_values::STD), Some(singular_values::fresh(init)))
            }
            AdapterKind::Variational { family, initial } => {
                let posterior = Posterior::fresh(init, family, initial);
                (lora(POSTERIOR_B_BOUND), Some(Extension::Posterior(posterior)))
            }
            AdapterKind::BayesByBackprop { both, rho, rho_std, mean_std } => {
                let noise = ElementGaussian::fresh_softplus(init, both, rho, rho_std);
                (mean_std.map_or_else(|| lora(0.0), normal), Some(Extension::Gaussian(noise)))
            }
            AdapterKind::Blob { epsilon } => {
                let noise = ElementGaussian::fresh_square(init, epsilon);
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
                return Ok(AdapterMembers::fresh(init, gain, scaling, dropout).into());
            }
        };
        Ok(LowRankAdapter { a, b, extension, scaling, dropout }.into())
    }
}

impl AdapterKind {
    /// Every parameter that a fresh adapter of the kind has, in the order of walks.
    pub fn parameters(self) -> Vec<&'static ParameterSchema> {
        use low_rank::{A, B};
        let extension: &[&ParameterSchema] = match self {
            Self::Lora { .. } => &[],
            Self::AdaLora => &[&singular_values::E],
            Self::Variational { family, .. } => posterior::schemas(family),
            Self::BayesByBackprop { both, .. } => {
                &gaussian::schemas(StdMap::Softplus)[..=usize::from(both)]
            }
            Self::Blob { .. } => &gaussian::schemas(StdMap::Square)[..1],
            Self::ScalaBl { .. } => &[&scale::LOG_MEAN, &scale::LOG_STD],
            Self::CLora { .. } => {
                &[&contextual::W1, &contextual::B1, &contextual::W2, &contextual::B2]
            }
            Self::LoraEnsemble { .. } => return vec![&members::A, &members::B],
        };
        [&[&A, &B], extension].concat()
    }
}

impl Extension {
    /// Whether passes of `scheme` have a meaning here; the mean always has.
    ///
    /// | | `Weights(Batch)` | `Weights(Sequence)` | `Weights(Token)` | `MomentMatched`, `Nested` |
    /// |---|---|---|---|---|
    /// | singular values | at the mean | at the mean | at the mean | at the mean |
    /// | posterior | yes | yes | flipout | yes |
    /// | Gaussian | yes | yes | flipout | no |
    /// | scale | yes | yes | no | no |
    /// | contextual | yes | yes | noise per token | no |
    pub fn supports(&self, scheme: Scheme) -> bool {
        match (self, scheme) {
            (Self::SingularValues(_) | Self::Posterior(_), _) | (_, Scheme::Mean) => true,
            (_, Scheme::MomentMatched(_) | Scheme::Nested) => false,
            (_, Scheme::Weights(per)) => per != DrawPer::Token || !matches!(self, Self::Scale(_)),
        }
    }
}

impl Parameters for Extension {
    fn each(&self, visit: &mut dyn FnMut(&'static ParameterSchema, &dyn ParameterValue)) {
        match self {
            Self::SingularValues(e) => visit(&singular_values::E, e),
            Self::Posterior(e) => e.each(visit),
            Self::Gaussian(e) => e.each(visit),
            Self::Scale(e) => e.each(visit),
            Self::Contextual(e) => e.each(visit),
        }
    }

    fn each_mut(
        &mut self,
        visit: &mut dyn FnMut(&'static ParameterSchema, &mut dyn ParameterValue),
    ) {
        match self {
            Self::SingularValues(e) => visit(&singular_values::E, e),
            Self::Posterior(e) => e.each_mut(visit),
            Self::Gaussian(e) => e.each_mut(visit),
            Self::Scale(e) => e.each_mut(visit),
            Self::Contextual(e) => e.each_mut(visit),
        }
    }
}

impl Parameters for Adapter {
    fn each(&self, visit: &mut dyn FnMut(&'static ParameterSchema, &dyn ParameterValue)) {
        match self {
            Self::LowRank(adapter) => adapter.each(visit),
            Self::Members(members) => members.each(visit),
        }
    }

    fn each_mut(
        &mut self,
        visit: &mut dyn FnMut(&'static ParameterSchema, &mut dyn ParameterValue),
    ) {
        match self {
            Self::LowRank(adapter) => adapter.each_mut(visit),
            Self::Members(members) => members.each_mut(visit),
        }
    }
}
