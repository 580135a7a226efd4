//! KL divergence of an adapter's posterior, as tensors that carry gradients.
//!
//! Definitions, derivations and references: `lrvd_core::kl`. Divisions by a number are written as
//! products: Burn's gradient of the division rounds the reciprocal to single precision.

use burn::tensor::{Tensor, activation};
use lrvd_core::family::{EPS_MEAN, VariationalFamily};
use lrvd_core::kl::{ArdScales, K1, K2, K3, KlReduction};
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
    /// Fixed Gaussian `N(0, std²)`.
    Gaussian {
        /// Prior standard deviation.
        std: f64,
    },
}

impl Prior {
    /// Checks that the divergence from this prior is finite for a posterior of the family.
    pub(crate) fn check(self, family: VariationalFamily) -> Result<(), lrvd_core::Error> {
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

/// Means and log-variances of the random factors, `[rank, width]` seen through `rank_axis`.
struct RandomFactor {
    mean: Tensor<2>,
    rank_axis: usize,
    width: usize,
}

impl LowRankAdapter {
    /// `KL(q ‖ p)` of the adapter in nats, `[1]`; `None` without a posterior.
    ///
    /// A noise-to-signal posterior with a prior other than the log-uniform one is an error: a zero mean has zero
    /// variance, whose divergence from a Gaussian is infinite.
    pub fn kl(&self, prior: Prior, reduction: KlReduction) -> Result<Option<Tensor<1>>, Error> {
        let Some(posterior) = self.posterior() else { return Ok(None) };
        prior.check(posterior.family())?;
        if self.rank() == 0 {
            // Not every operation takes an empty tensor.
            let a = self.a.val();
            return Ok(Some(Tensor::zeros([1], (&a.device(), a.dtype()))));
        }
        Ok(Some(match prior {
            Prior::LogUniform => self.kl_log_uniform(posterior, reduction),
            Prior::Ard { scales, hyper } => self.kl_ard(posterior, scales, hyper),
            Prior::Gaussian { std } => self.kl_gaussian(posterior, std),
        }))
    }

    fn random_factors(&self, posterior: &Posterior) -> Vec<RandomFactor> {
        let (a, b) = (self.a.val(), self.b.val());
        let (d_input, d_output) = (a.dims()[0], b.dims()[1]);
        let a = RandomFactor { mean: a, rank_axis: 1, width: d_input };
        match posterior {
            Posterior::AsymRankVariance(_) => vec![a],
            _ => vec![a, RandomFactor { mean: b, rank_axis: 0, width: d_output }],
        }
    }

    fn kl_log_uniform(&self, posterior: &Posterior, reduction: KlReduction) -> Tensor<1> {
        let (d_input, d_output) = (self.d_input(), self.d_output());
        let width = match posterior {
            Posterior::AsymRankVariance(_) => d_input,
            _ => d_input + d_output,
        };
        let sum = match posterior {
            Posterior::RankVariance(p) | Posterior::AsymRankVariance(p) => self
                .random_factors(posterior)
                .into_iter()
                .map(|f| kl_log_uniform(f.mean, f.rank_axis, p.value.val()).sum())
                .reduce(|a, b| a + b)
                .unwrap_or_else(|| self.a.val().zeros_like().sum()),
            Posterior::NoiseToSignal(p) => {
                kl_of_log_alpha(p.value.val()).sum().mul_scalar(width as f64)
            }
            Posterior::ElementVariance(p) => {
                let entries = |mean: Tensor<2>, log_variance: Tensor<2>| {
                    let energy = mean.square().add_scalar(EPS_MEAN);
                    kl_of_log_alpha(clamped(log_variance) - energy.log()).sum()
                };
                entries(self.a.val(), p.a.val()) + entries(self.b.val(), p.b.val())
            }
        };
        match reduction {
            KlReduction::Element => sum,
            KlReduction::PerRank => sum.mul_scalar((width as f64).recip()),
        }
    }

    /// Per-entry log-variance of the factor of an additive posterior, broadcastable against its mean.
    fn log_variance(posterior: &Posterior, factor: &RandomFactor) -> Tensor<2> {
        match posterior {
            Posterior::RankVariance(p)
            | Posterior::AsymRankVariance(p)
            | Posterior::NoiseToSignal(p) => {
                clamped(p.value.val()).unsqueeze_dim(1 - factor.rank_axis)
            }
            Posterior::ElementVariance(p) if factor.rank_axis == 1 => clamped(p.a.val()),
            Posterior::ElementVariance(p) => clamped(p.b.val()),
        }
    }

    fn kl_ard(&self, posterior: &Posterior, scales: ArdScales, hyper: ArdHyper) -> Tensor<1> {
        // Per random factor: width n, second moment Q = Σ(μ² + σ²) and Σ ln σ², each `[rank]`.
        let groups = self.random_factors(posterior).into_iter().map(|f| {
            let log_variance = Self::log_variance(posterior, &f);
            let ones = f.mean.ones_like();
            let axis = 1 - f.rank_axis;
            let sum = |t: Tensor<2>| t.sum_dim(axis).squeeze_dim::<1>(axis);
            let q = sum(f.mean.square() + log_variance.clone().exp() * ones.clone());
            (f.width as f64, q, sum(log_variance * ones))
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
        kl.reduce(|a, b| a + b).unwrap_or_else(|| self.a.val().zeros_like().sum())
    }

    fn kl_gaussian(&self, posterior: &Posterior, std: f64) -> Tensor<1> {
        let kl = self.random_factors(posterior).into_iter().map(|f| {
            let log_variance = Self::log_variance(posterior, &f);
            let second = f.mean.clone().square() + log_variance.clone().exp();
            let terms = second.mul_scalar((std * std).recip()) - log_variance;
            terms.add_scalar(2.0 * std.ln() - 1.0).sum().mul_scalar(0.5)
        });
        kl.reduce(|a, b| a + b).unwrap_or_else(|| self.a.val().zeros_like().sum())
    }
}

/// `k1·(1 − σ(k2 + k3·a)) + ½·ln(1 + exp(−a))` of every entry, for arguments that are tensors already.
fn kl_of_log_alpha<const D: usize>(log_alpha: Tensor<D>) -> Tensor<D> {
    let argument = log_alpha.clone().mul_scalar(K3).add_scalar(K2);
    activation::sigmoid(argument.neg()).mul_scalar(K1)
        - activation::log_sigmoid(log_alpha).mul_scalar(0.5)
}
