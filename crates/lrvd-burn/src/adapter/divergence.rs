//! KL divergence of an adapter's posterior, as tensors that carry gradients.
//!
//! Definitions, derivations and references: `lrvd_core::kl`. Divisions by a number are written as
//! products: Burn's gradient of the division rounds the reciprocal to single precision.

use burn::tensor::{DType, FloatDType, Tensor, activation};
use lrvd_core::baselines::{ElementReduction, ScaleMixture};
use lrvd_core::error::{above_up_to, check_range};
use lrvd_core::kl::{ArdScales, K1, K2, K3, KlReduction};
use lrvd_core::noise::Stream;
use lrvd_core::posterior::{EPS_MEAN, VariationalFamily};
use lrvd_core::special::ln_gamma;
use serde::{Deserialize, Serialize};

use super::kind::{FactorNoise, Gaussian, LowRankAdapter, NoiseMap, softplus};
use super::linear::AdaptedLinear;
use crate::error::Error;
use crate::ops::{kl_log_uniform, standard_normal};
use crate::sampling::Pass;

/// Treatment of the scales of the hierarchical prior.
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

/// Prior of the posterior's means and noise.
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
            check_range("hyper.shape", shape, above_up_to(0.0, 1e6))?;
            check_range("hyper.rate", rate, above_up_to(0.0, 1e6))?;
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

/// A random factor.
struct RandomFactor<'a> {
    mean: Tensor<2>,
    noise: FactorNoise<'a>,
    /// The axis of the entries of one rank direction.
    axis: usize,
    /// The stream of its draws.
    stream: u32,
}

impl RandomFactor<'_> {
    /// Entries of one rank direction.
    fn width(&self) -> f64 {
        self.mean.dims()[self.axis] as f64
    }

    /// Log-variance in its range, broadcastable against the mean.
    fn log_variance(&self) -> Tensor<2> {
        match self.noise {
            FactorNoise::Rank(p) => NoiseMap::Additive.clamp(p.val()).unsqueeze_dim(self.axis),
            FactorNoise::Entries(p) => NoiseMap::Additive.clamp(p.val()),
        }
    }
}

/// The factors of `adapter` on which there is `noise`.
fn random_factors<'a>(adapter: &LowRankAdapter, noise: &'a Gaussian) -> Vec<RandomFactor<'a>> {
    let (of_a, of_b) = noise.factors();
    let a = RandomFactor { mean: adapter.a.val(), noise: of_a, axis: 0, stream: Stream::WEIGHT_A };
    let b = of_b.map(|noise| RandomFactor {
        mean: adapter.b.val(),
        noise,
        axis: 1,
        stream: Stream::WEIGHT_B,
    });
    std::iter::once(a).chain(b).collect()
}

impl LowRankAdapter {
    /// `KL(q ‖ p)` of the adapter in nats, `[1]`; `None` without a posterior.
    ///
    /// A number of the prior that is out of range is an error, and so is a noise-to-signal posterior with a prior other
    /// than the log-uniform one: a zero mean has zero variance, whose divergence from a Gaussian is infinite.
    pub fn kl(&self, prior: Prior, reduction: KlReduction) -> Result<Option<Tensor<1>>, Error> {
        let Some((noise, family)) = self.posterior().and_then(|q| Some((q, q.family()?))) else {
            return Ok(None);
        };
        prior.check(family)?;
        if self.rank() == 0 {
            // Not every operator takes an empty tensor.
            let a = self.a.val();
            return Ok(Some(Tensor::zeros([1], (&a.device(), a.dtype()))));
        }
        let factors = random_factors(self, noise);
        if family.is_relative() {
            // The check left the log-uniform prior alone.
            let width: f64 = factors.iter().map(RandomFactor::width).sum();
            let FactorNoise::Rank(log_alpha) = factors[0].noise else { return Ok(None) };
            let sum = kl_of_log_alpha(log_alpha.val()).sum();
            return Ok(Some(match reduction {
                KlReduction::Element => sum.mul_scalar(width),
                KlReduction::PerRank => sum,
            }));
        }
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
    let of_factor = |f: RandomFactor<'_>| match f.noise {
        FactorNoise::Entries(_) => {
            let log_variance = f.log_variance();
            let energy = f.mean.square().add_scalar(EPS_MEAN);
            kl_of_log_alpha(log_variance - energy.log()).sum()
        }
        FactorNoise::Rank(p) => kl_log_uniform(f.mean, 1 - f.axis, p.val()).sum(),
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
        let width = f.width();
        let ones = f.mean.ones_like();
        let log_variance = f.log_variance();
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
pub fn widened<const D: usize>(tensor: Tensor<D>) -> Tensor<D> {
    if tensor.device().inner().supports_dtype(DType::F64) {
        tensor.cast(FloatDType::F64)
    } else {
        tensor
    }
}

impl AdaptedLinear {
    /// `KL(q ‖ p)` of independent entries from `N(0, prior_std²)` in nats, `[1]`; `None` without a
    /// parameter of noise for each entry.
    ///
    /// # Formula
    ///
    /// ```text
    /// Σ ln(prior/σ) + (σ² + mean²)/(2·prior²) − ½        over the entries of the random factors
    /// ```
    ///
    /// [`ElementReduction::Mean`] takes the mean over each factor instead. A factor without noise
    /// gets no gradient: BLoB's B.
    ///
    /// # Numerics
    ///
    /// Summed in double precision where the device can, returned in the factors' precision.
    ///
    /// # References
    ///
    /// Blundell et al. 2015, arXiv:1505.05424. With noise on A alone this is the
    /// divergence of the whole weight under a prior of covariance `prior²·c²·[I ⊗ BBᵀ]`: Wang et al.
    /// 2024, arXiv:2406.11675.
    pub fn kl_elements(&self, prior_std: f64, reduction: ElementReduction) -> Option<Tensor<1>> {
        let precision = (prior_std * prior_std).recip();
        self.over_random_entries(reduction, |mean, std, _| {
            let second = widened(mean).square() + std.clone().square();
            let terms = second.mul_scalar(0.5 * precision) - std.log();
            terms.add_scalar(prior_std.ln() - 0.5)
        })
    }

    /// Estimate of `KL(q ‖ p)` from a scale mixture by the draw of `pass`, `[1]`; `None` without a
    /// parameter of noise for each entry.
    ///
    /// # Formula
    ///
    /// ```text
    /// Σ ln q(w) − ln p(w),     w = mean + σ ⊙ eps
    /// ```
    ///
    /// `eps` is the noise that a forward under `pass` draws: for a draw per batch and flipout that
    /// of the batch, for a draw per sequence that of the first sequence. Its expectation is the
    /// divergence; a single value may be negative.
    ///
    /// # References
    ///
    /// Blundell et al. 2015, arXiv:1505.05424.
    pub fn kl_mixture(
        &self,
        pass: &Pass,
        prior: &ScaleMixture,
        reduction: ElementReduction,
    ) -> Option<Tensor<1>> {
        let key = pass.noise.for_module(self.noise_id());
        let half_log_tau = 0.5 * std::f64::consts::TAU.ln();
        self.over_random_entries(reduction, |mean, std, stream| {
            let eps = widened(standard_normal(&mean, mean.dims(), key.on_stream(stream)));
            let log_q = eps.clone().square().mul_scalar(-0.5) - std.clone().log();
            let weights = widened(mean) + std * eps;
            log_q.add_scalar(-half_log_tau) - log_density(weights, prior)
        })
    }

    /// Sum of the reduced `terms` of mean, standard deviation in double precision and noise stream of every random factor, in
    /// the factors' precision.
    fn over_random_entries(
        &self,
        reduction: ElementReduction,
        terms: impl Fn(Tensor<2>, Tensor<2>, u32) -> Tensor<2>,
    ) -> Option<Tensor<1>> {
        let adapter = self.low_rank()?;
        let noise = adapter.gaussian()?;
        let dtype = adapter.a.val().dtype();
        let of_factor = |f: RandomFactor<'_>| match f.noise {
            FactorNoise::Rank(_) => None,
            FactorNoise::Entries(p) => {
                let weight = reduction.weight(f.mean.shape().num_elements());
                let std = noise.map().deviation(widened(p.val()));
                Some(terms(f.mean, std, f.stream).sum().mul_scalar(weight))
            }
        };
        let factors = random_factors(adapter, noise).into_iter();
        Some(factors.filter_map(of_factor).reduce(|a, b| a + b)?.cast(dtype))
    }
}

/// `ln p(w)` of every entry under [`ScaleMixture`].
fn log_density(w: Tensor<2>, prior: &ScaleMixture) -> Tensor<2> {
    let squares = w.square();
    let share = |probability: f64, std: f64| {
        let constant = probability.ln() - std.ln() - 0.5 * std::f64::consts::TAU.ln();
        squares.clone().mul_scalar(-0.5 / (std * std)).add_scalar(constant)
    };
    let [weight, first, second] = prior.parts();
    // A component of probability 0 has no logarithm.
    if weight == 1.0 {
        return share(1.0, first);
    }
    if weight == 0.0 {
        return share(1.0, second);
    }
    let (first, second) = (share(weight, first), share(1.0 - weight, second));
    second.clone() + softplus(first - second)
}
