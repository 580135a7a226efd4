//! KL divergence of an adapter's posterior, as tensors that carry gradients.
//!
//! Definitions, derivations and references: `lrvd_core::kl`. Divisions by a number are written as
//! products: Burn's gradient of the division rounds the reciprocal to single precision.

use burn::module::Param;
use burn::tensor::{DType, FloatDType, Tensor, activation};
use lrvd_core::error::check_range;
use lrvd_core::kl::{ArdScales, K1, K2, K3, KlReduction};
use lrvd_core::posterior::{EPS_MEAN, VariationalFamily};
use lrvd_core::special::ln_gamma;
use serde::{Deserialize, Serialize};

use super::kind::{LowRankAdapter, Posterior, clamped};
use crate::error::Error;
use crate::ops::kl_log_uniform;

/// How the scales of the hierarchical prior are treated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub enum ArdHyper {
    /// Optimised in closed form, no hyper-prior.
    #[default]
    EmpiricalBayes,
    /// Inverse-gamma hyper-prior with its coordinate-ascent posterior.
    InverseGamma {
        /// Shape `a0`.
        shape: f64,
        /// Rate `b0`.
        rate: f64,
    },
}

/// The prior that the posterior is held against.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub enum Prior {
    /// Log-uniform (improper), Molchanov's fit: the published objective.
    #[default]
    LogUniform,
    /// Hierarchical Gaussian with a learned scale per rank direction.
    Ard {
        /// Shared or separate scales.
        #[cfg_attr(
            feature = "schema",
            schemars(schema_with = "crate::schema::words::<ArdScales>")
        )]
        scales: ArdScales,
        /// Treatment of the scales.
        hyper: ArdHyper,
    },
}

impl Prior {
    /// Checks the ranges, and that the divergence from this prior is finite for a posterior of the family.
    pub(crate) fn check(self, family: VariationalFamily) -> Result<(), lrvd_core::Error> {
        if let Self::Ard { hyper: ArdHyper::InverseGamma { shape, rate }, .. } = self {
            check_range("hyper.shape", shape, f64::MIN_POSITIVE, 1e6)?;
            check_range("hyper.rate", rate, f64::MIN_POSITIVE, 1e6)?;
        }
        if family == VariationalFamily::NoiseToSignal && self != Self::LogUniform {
            let reason = format!(
                "is not defined for the family `{family}`: a zero mean has zero variance, whose divergence from a Gaussian is \
                 infinite"
            );
            return Err(lrvd_core::Error::undefined(
                "a prior other than the log-uniform one",
                reason,
            ));
        }
        Ok(())
    }
}

/// A random factor of an additive posterior.
struct RandomFactor<'a> {
    mean: Tensor<2>,
    variance: Variance<'a>,
    /// The axis of the entries of one rank direction.
    axis: usize,
}

/// `ln σ²` of a factor.
#[derive(Clone, Copy)]
enum Variance<'a> {
    /// One for each rank direction.
    Rank(&'a Param<Tensor<1>>),
    /// One for each entry.
    Entry(&'a Param<Tensor<2>>),
}

impl RandomFactor<'_> {
    /// Entries of one rank direction.
    fn width(&self) -> f64 {
        self.mean.dims()[self.axis] as f64
    }

    /// Clamped to its range, broadcastable against the mean.
    fn log_variance(&self) -> Tensor<2> {
        match self.variance {
            Variance::Rank(p) => clamped(p.val()).unsqueeze_dim(self.axis),
            Variance::Entry(p) => clamped(p.val()),
        }
    }
}

impl LowRankAdapter {
    /// `KL(q ‖ p)` of the adapter in nats, `[1]`; `None` without a posterior.
    ///
    /// A number of the prior that is out of range is an error, and so is a noise-to-signal posterior with a prior other
    /// than the log-uniform one: a zero mean has zero variance, whose divergence from a Gaussian is infinite.
    pub fn kl(&self, prior: Prior, reduction: KlReduction) -> Result<Option<Tensor<1>>, Error> {
        let Some(posterior) = self.posterior() else { return Ok(None) };
        prior.check(posterior.family())?;
        if self.rank() == 0 {
            // Not every operation takes an empty tensor.
            let a = self.a.val();
            return Ok(Some(Tensor::zeros([1], (&a.device(), a.dtype()))));
        }
        let (of_a, of_b) = match posterior {
            Posterior::RankVariance(p) => {
                (Variance::Rank(&p.value), Some(Variance::Rank(&p.value)))
            }
            Posterior::AsymRankVariance(p) => (Variance::Rank(&p.value), None),
            Posterior::ElementVariance(p) => (Variance::Entry(&p.a), Some(Variance::Entry(&p.b))),
            // The check left the log-uniform prior alone.
            Posterior::NoiseToSignal(p) => {
                let sum = kl_of_log_alpha(p.value.val()).sum();
                return Ok(Some(match reduction {
                    KlReduction::Element => {
                        sum.mul_scalar((self.d_input() + self.d_output()) as f64)
                    }
                    KlReduction::PerRank => sum,
                }));
            }
        };
        let a = RandomFactor { mean: self.a.val(), variance: of_a, axis: 0 };
        let b = of_b.map(|variance| RandomFactor { mean: self.b.val(), variance, axis: 1 });
        let factors: Vec<_> = std::iter::once(a).chain(b).collect();
        Ok(match prior {
            Prior::LogUniform => kl_from_log_uniform(factors, reduction),
            Prior::Ard { scales, hyper } => kl_from_ard(factors, scales, hyper),
        })
    }
}

fn kl_from_log_uniform(
    factors: Vec<RandomFactor<'_>>,
    reduction: KlReduction,
) -> Option<Tensor<1>> {
    let width: f64 = factors.iter().map(RandomFactor::width).sum();
    let of_factor = |f: RandomFactor<'_>| match f.variance {
        Variance::Entry(_) => {
            let log_variance = f.log_variance();
            let energy = f.mean.square().add_scalar(EPS_MEAN);
            kl_of_log_alpha(log_variance - energy.log()).sum()
        }
        Variance::Rank(p) => kl_log_uniform(f.mean, 1 - f.axis, p.val()).sum(),
    };
    let sum = factors.into_iter().map(of_factor).reduce(|a, b| a + b)?;
    Some(match reduction {
        KlReduction::Element => sum,
        KlReduction::PerRank => sum.mul_scalar(width.recip()),
    })
}

fn kl_from_ard(
    factors: Vec<RandomFactor<'_>>,
    scales: ArdScales,
    hyper: ArdHyper,
) -> Option<Tensor<1>> {
    // Per random factor: width n, second moment Q = Σ(μ² + σ²) and Σ ln σ², each `[rank]`.
    let groups = factors.into_iter().map(|f| {
        let (width, ones, log_variance) = (f.width(), f.mean.ones_like(), f.log_variance());
        let sum = |t: Tensor<2>| t.sum_dim(f.axis).squeeze_dim::<1>(f.axis);
        let q = sum(f.mean.square() + log_variance.clone().exp() * ones.clone());
        (width, q, sum(log_variance * ones))
    });
    let groups: Vec<_> = match scales {
        ArdScales::Separate => groups.collect(),
        ArdScales::Shared => {
            groups.reduce(|x, y| (x.0 + y.0, x.1 + y.1, x.2 + y.2)).into_iter().collect()
        }
    };
    let kl = groups.into_iter().map(|(n, q, sum_log)| match hyper {
        // ½ Σ ln(γ*/σ²) with γ* = Q/n.
        ArdHyper::EmpiricalBayes => {
            (q.mul_scalar(n.recip()).log().mul_scalar(n) - sum_log).sum().mul_scalar(0.5)
        }
        ArdHyper::InverseGamma { shape, rate } => {
            // At the coordinate optimum b̂ = b0 + Q/2 the terms in Q and b̂ collapse to
            // ln b̂ alone; docs/math/ard.md derives it.
            let half = 0.5 * n;
            let constant = ln_gamma(shape) - ln_gamma(shape + half) - shape * rate.ln() - half;
            let log_b = q.mul_scalar(0.5).add_scalar(rate).log();
            let terms = log_b.mul_scalar(shape + half) - sum_log.mul_scalar(0.5);
            terms.add_scalar(constant).sum()
        }
    });
    kl.reduce(|a, b| a + b)
}

/// `k1·(1 − σ(k2 + k3·a)) + ½·ln(1 + exp(−a))` of every entry, for arguments that are tensors already.
fn kl_of_log_alpha<const D: usize>(log_alpha: Tensor<D>) -> Tensor<D> {
    let argument = log_alpha.clone().mul_scalar(K3).add_scalar(K2);
    activation::sigmoid(argument.neg()).mul_scalar(K1)
        - activation::log_sigmoid(log_alpha).mul_scalar(0.5)
}

/// The tensor in double precision where its device can, else as it is; gradients come back in its
/// own precision.
///
/// A divergence is a difference of large logarithms summed over every weight of a model: in single
/// precision the sum loses what a small weight of it would need.
pub(super) fn widened<const D: usize>(tensor: Tensor<D>) -> Tensor<D> {
    if tensor.device().inner().supports_dtype(DType::F64) {
        tensor.cast(FloatDType::F64)
    } else {
        tensor
    }
}
