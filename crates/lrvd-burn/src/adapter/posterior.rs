//! Noise parameters of a variational adapter.

use burn::module::{Module, Param};
use burn::tensor::Tensor;
use lrvd_core::family::{LOG_VARIANCE_MAX, LOG_VARIANCE_MIN, VariationalFamily};

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

    /// The rank parameter, for the families that have one.
    pub fn rank_parameters(&self) -> Option<&RankParameters> {
        match self {
            Self::RankVariance(p) | Self::NoiseToSignal(p) | Self::AsymRankVariance(p) => Some(p),
            Self::ElementVariance(_) => None,
        }
    }

    /// Standard deviations of A `[d_input | 1, rank]` and of B `[rank, d_output | 1]`, ready to
    /// broadcast against the factors; `None` where the factor is deterministic.
    ///
    /// Additive families: `σ = exp(ℓ/2)` with `ℓ` clamped to its range (zero gradient outside).
    /// Multiplicative: `σ = sqrt(α)·mean`, signed, which has the same law.
    pub fn deviations(&self, a: &Tensor<2>, b: &Tensor<2>) -> (Tensor<2>, Option<Tensor<2>>) {
        match self {
            Self::RankVariance(p) => {
                let std = half_exp(clamped(p.value.val()));
                (std.clone().unsqueeze_dim(0), Some(std.unsqueeze_dim(1)))
            }
            Self::AsymRankVariance(p) => (half_exp(clamped(p.value.val())).unsqueeze_dim(0), None),
            Self::NoiseToSignal(p) => {
                let root = half_exp(p.value.val());
                let of_a = a.clone() * root.clone().unsqueeze_dim(0);
                (of_a, Some(b.clone() * root.unsqueeze_dim(1)))
            }
            Self::ElementVariance(p) => {
                (half_exp(clamped(p.a.val())), Some(half_exp(clamped(p.b.val()))))
            }
        }
    }

    /// Keeps the rank directions `kept`, in order.
    pub(crate) fn select(self, kept: &[usize]) -> Self {
        let rank = |p: RankParameters| RankParameters { value: select(p.value, 0, kept) };
        match self {
            Self::RankVariance(p) => Self::RankVariance(rank(p)),
            Self::NoiseToSignal(p) => Self::NoiseToSignal(rank(p)),
            Self::AsymRankVariance(p) => Self::AsymRankVariance(rank(p)),
            Self::ElementVariance(p) => Self::ElementVariance(ElementParameters {
                a: select(p.a, 1, kept),
                b: select(p.b, 0, kept),
            }),
        }
    }
}

/// `ℓ` limited to the range in which the variance is used.
pub(crate) fn clamped<const D: usize>(log_variance: Tensor<D>) -> Tensor<D> {
    log_variance.clamp(LOG_VARIANCE_MIN, LOG_VARIANCE_MAX)
}

fn half_exp<const D: usize>(log_variance: Tensor<D>) -> Tensor<D> {
    log_variance.mul_scalar(0.5).exp()
}

/// The parameter with only the indices `kept` along `axis`; identity and trainability stay.
pub(crate) fn select<const D: usize>(
    param: Param<Tensor<D>>,
    axis: usize,
    kept: &[usize],
) -> Param<Tensor<D>> {
    let trainable = param.val().is_require_grad();
    let value = select_plain(param.val().without_autodiff(), axis, kept);
    let value = if trainable { value.autodiff().require_grad() } else { value };
    Param::initialized(param.id, value)
}

/// `tensor` with only the indices `kept` along `axis`.
pub(crate) fn select_plain<const D: usize>(
    tensor: Tensor<D>,
    axis: usize,
    kept: &[usize],
) -> Tensor<D> {
    let kept: Vec<i32> = kept.iter().map(|&i| i as i32).collect();
    let device = tensor.device();
    tensor.select(axis, Tensor::from_ints(kept.as_slice(), &device))
}
