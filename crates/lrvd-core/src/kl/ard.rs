//! The hierarchical Gaussian prior, whose width is learned with each rank.

use crate::error::{Error, above, above_up_to, check_range};
use crate::posterior::{Entry, Factor, Posterior};
use crate::special::{compensated_sum, digamma, ln_gamma};

/// Scales of the prior in one rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum ArdScales {
    /// One per rank: prefers balanced norms.
    #[default]
    Shared,
    /// One for A and one for B: keeps the freedom to rescale a rank.
    Separate,
}

/// KL from the hierarchical prior with its parts.
#[derive(Debug, Clone, PartialEq)]
pub struct ArdKl {
    /// One value per rank, nats.
    pub per_rank: Vec<f64>,
    /// `log ᾱ` per rank; see [`kl_ard`].
    pub log_relevance: Vec<f64>,
}

impl ArdKl {
    /// The sum over ranks, nats.
    pub fn total(&self) -> f64 {
        compensated_sum(self.per_rank.iter().copied())
    }
}

/// KL of an additive posterior from the hierarchical Gaussian prior, at the optimal scales.
///
/// ```text
/// Q       = Σ (μ² + σ²)                      over the entries that share a scale
/// KL      = see scale_kl;   empirical Bayes with tied variances: n/2 · ln(1 + 1/ᾱ)
/// ᾱ       = Σ σ² / Σ μ²                      the relevance ratio of a rank
/// ```
///
/// With separate scales `log ᾱ` is the mean of the two factors' values, so that it does not change
/// when a rank is rescaled. A rank whose means are all zero has `log ᾱ = +inf`.
///
/// # Errors
///
/// `NoiseToSignal`, whose divergence is infinite wherever a mean is zero; a number of the prior, or the energy of a rank, that
/// is not positive and finite.
///
/// Not negative; depends on group norms only, so rotations of the embedding axes do not change it.
///
/// Source: `MacKay` 1994 (automatic relevance determination).
pub fn kl_ard(posterior: &Posterior, prior: ArdPrior, scales: ArdScales) -> Result<ArdKl, Error> {
    prior.check()?;
    let family = posterior.family();
    if family.is_relative() {
        let reason = "a zero mean has zero variance, whose divergence from a Gaussian is infinite";
        return Err(family.unsupported("the hierarchical prior", reason));
    }
    let a = group_sums(posterior, Factor::A);
    let b = if family.has_random_b() {
        group_sums(posterior, Factor::B)
    } else {
        vec![GroupSums::default(); posterior.factors().rank]
    };
    let kl = |g: &GroupSums| scale_kl(prior, g.count, g.signal + g.noise, g.log_variance);
    let mut per_rank = Vec::new();
    let mut log_relevance = Vec::new();
    for (a, b) in a.iter().zip(&b) {
        if scales == ArdScales::Shared || !family.has_random_b() {
            let joint = a.plus(b);
            per_rank.push(kl(&joint)?);
            log_relevance.push(joint.log_relevance());
        } else {
            per_rank.push(kl(a)? + kl(b)?);
            log_relevance.push(0.5 * (a.log_relevance() + b.log_relevance()));
        }
    }
    Ok(ArdKl { per_rank, log_relevance })
}

/// Sums over the entries of one rank in one factor.
#[derive(Debug, Clone, Copy, Default)]
struct GroupSums {
    count: usize,
    signal: f64,
    noise: f64,
    log_variance: f64,
}

impl GroupSums {
    fn plus(&self, other: &Self) -> Self {
        Self {
            count: self.count + other.count,
            signal: self.signal + other.signal,
            noise: self.noise + other.noise,
            log_variance: self.log_variance + other.log_variance,
        }
    }

    fn log_relevance(&self) -> f64 {
        self.noise.ln() - self.signal.ln()
    }
}

fn group_sums(posterior: &Posterior, factor: Factor) -> Vec<GroupSums> {
    let squares = posterior.rows(factor, |entry| entry.mean * entry.mean);
    let logs = posterior.rows(factor, Entry::log_variance);
    let sums = |(squares, logs): (Vec<f64>, Vec<f64>)| GroupSums {
        count: logs.len(),
        signal: compensated_sum(squares),
        noise: compensated_sum(logs.iter().map(|l| l.exp())),
        log_variance: compensated_sum(logs),
    };
    squares.into_iter().zip(logs).map(sums).collect()
}

/// The prior of the scale of a rank.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum ArdPrior {
    /// No hyper-prior; the scale is optimized.
    #[default]
    EmpiricalBayes,
    /// `γ ~ InvGamma(shape, rate)`.
    InverseGamma {
        /// Shape `a0`, above 0 and at most 1e6: the divergence is a difference of `ln Γ`, which leaves eight digits there.
        shape: f64,
        /// Rate `b0`, above 0 and at most 1e6, unit weight².
        rate: f64,
    },
}

impl ArdPrior {
    /// Checks that the numbers are positive and finite.
    fn check(self) -> Result<(), Error> {
        if let Self::InverseGamma { shape, rate } = self {
            check_range("shape", shape, above_up_to(0.0, 1e6))?;
            check_range("rate", rate, above_up_to(0.0, 1e6))?;
        }
        Ok(())
    }
}

/// The divergence, nats, of `count` entries with energy `Q` (the sum of squared means and variances, weight²) and summed
/// log-variances `Σℓ` together with that of their scale, at the scale's optimal posterior `q(γ)`. 0 without entries.
///
/// ```text
/// empirical Bayes  γ = Q/n                       KL = ½[n·ln(Q/n) − Σℓ]
/// inverse gamma    shape = a0 + n/2, rate = b0 + Q/2
///                  KL = ½[n·E ln γ − Σℓ + Q·E(1/γ) − n] + KL(q(γ) ‖ p(γ))
/// ```
///
/// with `E ln γ = ln rate − ψ(shape)` and `E(1/γ) = shape/rate`.
pub fn scale_kl(
    prior: ArdPrior,
    count: usize,
    energy: f64,
    log_variances: f64,
) -> Result<f64, Error> {
    prior.check()?;
    if count == 0 {
        return Ok(0.0);
    }
    check_range("energy of a rank", energy, above(0.0))?;
    let n = count as f64;
    Ok(match prior {
        ArdPrior::EmpiricalBayes => 0.5 * (n * (energy / n).ln() - log_variances),
        ArdPrior::InverseGamma { shape: a0, rate: b0 } => {
            let shape = a0 + 0.5 * n;
            let rate = b0 + 0.5 * energy;
            let mean_log = rate.ln() - digamma(shape);
            let mean_precision = shape / rate;
            let entries = 0.5 * (n * mean_log - log_variances + energy * mean_precision - n);
            entries + inverse_gamma_kl(shape, rate, a0, b0)
        }
    })
}

/// KL between two inverse-gamma distributions.
///
/// ```text
/// KL = (a − a0)·ψ(a) − ln Γ(a) + ln Γ(a0) + a0·ln(b/b0) + a·(b0 − b)/b
/// ```
fn inverse_gamma_kl(shape: f64, rate: f64, prior_shape: f64, prior_rate: f64) -> f64 {
    (shape - prior_shape) * digamma(shape) - ln_gamma(shape)
        + ln_gamma(prior_shape)
        + prior_shape * (rate / prior_rate).ln()
        + shape * (prior_rate - rate) / rate
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::posterior::{Noise, VariationalFamily};
    use crate::testing::{A, B, empty, factors, posterior};

    #[test]
    fn empirical_bayes_has_its_closed_form() {
        let l = [-4.0, -3.0];
        let square = |values: &[f64]| values.iter().map(|m| m * m).sum::<f64>();
        let q = posterior(VariationalFamily::RankVariance, l);
        let kl = kl_ard(&q, ArdPrior::EmpiricalBayes, ArdScales::Shared).unwrap();
        for (k, l) in l.iter().enumerate() {
            let signal = square(&A[3 * k..3 * k + 3]) + square(&B[2 * k..2 * k + 2]);
            let ratio = 5.0 * l.exp() / signal;
            assert!((kl.log_relevance[k] - ratio.ln()).abs() < 1e-13);
            assert!((kl.per_rank[k] - 2.5 * (1.0 / ratio).ln_1p()).abs() < 1e-13);
        }
        let asym = posterior(VariationalFamily::AsymRankVariance, l);
        let kl = kl_ard(&asym, ArdPrior::EmpiricalBayes, ArdScales::Separate).unwrap();
        let ratio = 3.0 * l[0].exp() / square(&A[..3]);
        assert!((kl.per_rank[0] - 1.5 * (1.0 / ratio).ln_1p()).abs() < 1e-13);
    }

    #[test]
    fn separate_scales_do_not_see_a_change_of_scale_and_shared_ones_do() {
        let kl = |scale: f64, scales| {
            let shift = 2.0 * scale.ln();
            let (a, b) = (A.map(|v| v * scale), B.map(|v| v / scale));
            let family = VariationalFamily::ElementVariance;
            let noise = Noise { family, a: vec![-4.0 + shift; 6], b: vec![-3.0 - shift; 4] };
            let q = Posterior::new(factors(2, &a, &b), noise).unwrap();
            kl_ard(&q, ArdPrior::EmpiricalBayes, scales).unwrap()
        };
        let [before, after] = [1.0, 3.0].map(|scale| kl(scale, ArdScales::Separate));
        assert!((before.total() - after.total()).abs() < 1e-12);
        assert!((before.log_relevance[0] - after.log_relevance[0]).abs() < 1e-12);
        let [before, after] = [1.0, 3.0].map(|scale| kl(scale, ArdScales::Shared));
        assert!((before.total() - after.total()).abs() > 0.1);
    }

    #[test]
    fn the_multiplicative_family_is_an_error_and_rank_zero_is_not() {
        let ratio = posterior(VariationalFamily::NoiseToSignal, [0.0; 2]);
        let error = kl_ard(&ratio, ArdPrior::EmpiricalBayes, ArdScales::Shared).unwrap_err();
        assert!(error.to_string().contains("`noise-to-signal`"));
        let prior = ArdPrior::InverseGamma { shape: 1e-3, rate: 1e-3 };
        assert_eq!(kl_ard(&empty(), prior, ArdScales::Separate).unwrap().total(), 0.0);
    }

    #[test]
    fn the_inverse_gamma_update_is_the_lowest_point() {
        let (n, q, sum_log, a0, b0) = (5, 0.8, -20.0, 0.3, 0.2);
        let prior = ArdPrior::InverseGamma { shape: a0, rate: b0 };
        // a0 + n/2 = 2.8, b0 + Q/2 = 0.6.
        let found = scale_kl(prior, n, q, sum_log).unwrap();
        let at = |shape: f64, rate: f64| {
            let mean_log = rate.ln() - digamma(shape);
            0.5 * (n as f64 * mean_log - sum_log + q * shape / rate - n as f64)
                + inverse_gamma_kl(shape, rate, a0, b0)
        };
        assert!((found - at(2.8, 0.6)).abs() < 1e-13);
        for (s, r) in [(2.9, 0.6), (2.7, 0.6), (2.8, 0.61), (2.8, 0.59)] {
            assert!(at(s, r) > found);
        }
    }

    #[test]
    fn the_inverse_gamma_divergence_is_the_integral_of_its_densities() {
        let (a, b, a0, b0) = (2.5, 1.5, 1.2, 0.7);
        let log_density =
            |x: f64, a: f64, b: f64| a * b.ln() - ln_gamma(a) - (a + 1.0) * x.ln() - b / x;
        // Trapezoids in ln x: both ends of the integrand vanish double-exponentially or fast.
        let (low, high, steps) = (-6.0, 25.0, 200_000);
        let h = (high - low) / f64::from(steps);
        let integral: f64 = (0..=steps)
            .map(|i| (low + h * f64::from(i)).exp())
            .map(|x| {
                log_density(x, a, b).exp() * (log_density(x, a, b) - log_density(x, a0, b0)) * x
            })
            .sum::<f64>()
            * h;
        let closed = inverse_gamma_kl(a, b, a0, b0);
        assert!((closed - integral).abs() < 1e-9, "{closed} and {integral}");
        assert!(inverse_gamma_kl(a, b, a, b).abs() < 1e-14);
    }

    #[test]
    fn empty_groups_cost_nothing_and_bad_numbers_are_errors() {
        let inverse_gamma = ArdPrior::InverseGamma { shape: 1e-3, rate: 1e-3 };
        for prior in [ArdPrior::EmpiricalBayes, inverse_gamma] {
            assert_eq!(scale_kl(prior, 0, 0.0, 0.0), Ok(0.0));
            assert!(scale_kl(prior, 1, 0.0, 0.0).is_err());
            assert!(scale_kl(prior, 1, f64::NAN, 0.0).is_err());
        }
        let prior = ArdPrior::InverseGamma { shape: 1.0, rate: -1.0 };
        assert!(scale_kl(prior, 1, 1.0, 0.0).is_err());
    }
}
