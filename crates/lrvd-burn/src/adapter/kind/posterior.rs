//! BayesLoRA and its families: a Gaussian posterior whose means the factors are.

use burn::module::{Module, Param};
use burn::tensor::{Tensor, TensorData};
use lrvd_core::Noise;
use lrvd_core::posterior::{LOG_ALPHA_MAX, LOG_VARIANCE_MAX, LOG_VARIANCE_MIN, VariationalFamily};

use crate::adapter::initialisation::Initialiser;
use crate::adapter::schema::{Axis, ParameterSchema, Visit};
use crate::host::values;
use crate::parameters::ParameterValue;

const RANK_LOG_SIGMA2: ParameterSchema =
    ParameterSchema::noise("rank_log_sigma2", &[Axis::Rank], 0);
const RANK_LOG_ALPHA: ParameterSchema = ParameterSchema::noise("rank_log_alpha", &[Axis::Rank], 0);
const LOG_SIGMA2_A: ParameterSchema =
    ParameterSchema::noise("log_sigma2_a", &[Axis::Input, Axis::Rank], 0);
const LOG_SIGMA2_B: ParameterSchema =
    ParameterSchema::noise("log_sigma2_b", &[Axis::Rank, Axis::Output], 0);

/// One number per rank direction, shared by row `i` of A and column `i` of B.
#[derive(Module, Debug)]
pub struct RankParameters {
    /// `ln σ²` or `ln α`, shape `[rank]`.
    pub value: Param<Tensor<1>>,
}

/// One log-variance per entry of both factors.
#[derive(Module, Debug)]
pub struct ElementParameters {
    /// `ln σ²` of A, shape `[d_input, rank]`.
    pub a: Param<Tensor<2>>,
    /// `ln σ²` of B, shape `[rank, d_output]`.
    pub b: Param<Tensor<2>>,
}

/// The posterior of an adapter: which family, and its parameters.
///
/// The means are the adapter's factors themselves, so switching the noise off leaves plain LoRA.
#[derive(Module, Debug)]
pub enum Posterior {
    /// Additive, one `ln σ²` per rank for both factors (the default).
    RankVariance(RankParameters),
    /// Multiplicative, one `ln α` per rank: `σ² = α·mean²`.
    NoiseToSignal(RankParameters),
    /// Additive, one `ln σ²` per entry.
    ElementVariance(ElementParameters),
    /// As `RankVariance`, but only A is random.
    AsymRankVariance(RankParameters),
}

impl Posterior {
    /// The family.
    pub fn family(&self) -> VariationalFamily {
        match self {
            Self::RankVariance(_) => VariationalFamily::RankVariance,
            Self::NoiseToSignal(_) => VariationalFamily::NoiseToSignal,
            Self::ElementVariance(_) => VariationalFamily::ElementVariance,
            Self::AsymRankVariance(_) => VariationalFamily::AsymRankVariance,
        }
    }

    /// The parameters on the host.
    pub(super) fn host(&self) -> Noise {
        let (a, b) = match self {
            Self::RankVariance(p) | Self::NoiseToSignal(p) | Self::AsymRankVariance(p) => {
                (values(p.value.val()), Vec::new())
            }
            Self::ElementVariance(p) => {
                (values(p.a.val().transpose()), values(p.b.val().transpose()))
            }
        };
        Noise { family: self.family(), a, b }
    }

    /// Adds `shift[k]` to every parameter of rank `k`, clamped to the range of the family's parameter.
    pub(crate) fn shift(&mut self, shift: &[f64]) {
        match self {
            Self::RankVariance(p) | Self::AsymRankVariance(p) => {
                set(&mut p.value, |value| clamped(value.clone() + on(shift, &value)));
            }
            Self::NoiseToSignal(p) => {
                set(&mut p.value, |value| clamped_log_alpha(value.clone() + on(shift, &value)));
            }
            Self::ElementVariance(p) => {
                set(&mut p.a, |a| clamped(a.clone() + on(shift, &a).unsqueeze_dim(0)));
                set(&mut p.b, |b| clamped(b.clone() + on(shift, &b).unsqueeze_dim(1)));
            }
        }
    }

    /// Standard deviations of A `[d_input | 1, rank]` and of B `[rank, d_output | 1]`, ready to
    /// broadcast against the factors; `None` where the factor is deterministic.
    ///
    /// Additive families: `σ = exp(ℓ/2)` with `ℓ` clamped to its range (zero gradient outside).
    /// Multiplicative: `σ = sqrt(α)·mean`, signed, which has the same distribution.
    pub fn deviations(&self, a: &Tensor<2>, b: &Tensor<2>) -> (Tensor<2>, Option<Tensor<2>>) {
        match self {
            Self::RankVariance(p) => {
                let std = half_exp(clamped(p.value.val()));
                (std.clone().unsqueeze_dim(0), Some(std.unsqueeze_dim(1)))
            }
            Self::AsymRankVariance(p) => (half_exp(clamped(p.value.val())).unsqueeze_dim(0), None),
            Self::NoiseToSignal(p) => {
                let root = half_exp(clamped_log_alpha(p.value.val()));
                let of_a = a.clone() * root.clone().unsqueeze_dim(0);
                (of_a, Some(b.clone() * root.unsqueeze_dim(1)))
            }
            Self::ElementVariance(p) => {
                (half_exp(clamped(p.a.val())), Some(half_exp(clamped(p.b.val()))))
            }
        }
    }

    /// One variance per rank, `[rank]`, and whether B has it too; `None` of the other families.
    pub(crate) fn tied_variance(&self) -> Option<(Tensor<1>, bool)> {
        let variance = |p: &RankParameters| clamped(p.value.val()).exp();
        match self {
            Self::RankVariance(p) => Some((variance(p), true)),
            Self::AsymRankVariance(p) => Some((variance(p), false)),
            Self::NoiseToSignal(_) | Self::ElementVariance(_) => None,
        }
    }

    pub(super) fn each(&mut self, visit: &mut Visit<'_>) {
        let of = schemas(self.family());
        match self {
            Self::RankVariance(p) | Self::NoiseToSignal(p) | Self::AsymRankVariance(p) => {
                visit(of[0], &mut p.value);
            }
            Self::ElementVariance(p) => {
                visit(of[0], &mut p.a);
                visit(of[1], &mut p.b);
            }
        }
    }

    /// Noise parameters that all start at `initial`.
    pub(super) fn fresh(init: &Initialiser, family: VariationalFamily, initial: f64) -> Self {
        let of = schemas(family);
        let per_rank = || RankParameters { value: init.constant(of[0], initial) };
        match family {
            VariationalFamily::RankVariance => Self::RankVariance(per_rank()),
            VariationalFamily::NoiseToSignal => Self::NoiseToSignal(per_rank()),
            VariationalFamily::AsymRankVariance => Self::AsymRankVariance(per_rank()),
            VariationalFamily::ElementVariance => {
                // Rounded to single precision, as the factors of a fresh adapter are.
                let initial = f64::from(initial as f32);
                Self::ElementVariance(ElementParameters {
                    a: init.constant(of[0], initial),
                    b: init.constant(of[1], initial),
                })
            }
        }
    }
}

/// The parameters of a family.
pub(crate) fn schemas(family: VariationalFamily) -> &'static [&'static ParameterSchema] {
    match family {
        VariationalFamily::RankVariance | VariationalFamily::AsymRankVariance => {
            &[&RANK_LOG_SIGMA2]
        }
        VariationalFamily::NoiseToSignal => &[&RANK_LOG_ALPHA],
        VariationalFamily::ElementVariance => &[&LOG_SIGMA2_A, &LOG_SIGMA2_B],
    }
}

/// `ℓ` limited to the range in which the variance is used.
pub(in crate::adapter) fn clamped<const D: usize>(log_variance: Tensor<D>) -> Tensor<D> {
    log_variance.clamp(LOG_VARIANCE_MIN, LOG_VARIANCE_MAX)
}

/// `ln α` limited to the range in which the ratio is used.
pub(in crate::adapter) fn clamped_log_alpha(log_alpha: Tensor<1>) -> Tensor<1> {
    log_alpha.clamp_max(LOG_ALPHA_MAX)
}

fn half_exp<const D: usize>(log_variance: Tensor<D>) -> Tensor<D> {
    log_variance.mul_scalar(0.5).exp()
}

/// `shift` as a tensor beside `like`.
fn on<const D: usize>(shift: &[f64], like: &Tensor<D>) -> Tensor<1> {
    Tensor::from_data(TensorData::from(shift), (&like.device(), like.dtype()))
}

/// Replaces the values.
fn set<const D: usize>(param: &mut Param<Tensor<D>>, change: impl FnOnce(Tensor<D>) -> Tensor<D>) {
    let value = param.val().detach();
    param.set_data(change(value).into_data());
}
