//! The divergence of a rank when the width of its prior is learned with it.
//!
//! Every rank has a scale `γ`, the variance of a zero-mean Gaussian prior over its entries. The
//! scale is either optimised (empirical Bayes) or given a hyper-prior and its own posterior
//! `q(γ) = InvGamma(shape, rate)`, whose best value follows in closed form. At that value the
//! gradient with respect to the scale vanishes, so the gradient of the divergence with the scale held
//! still is also that of the minimised divergence.

use super::ard_scale::{ArdPrior, RankScale, rank_scale};
use crate::error::Error;
use crate::family::{VariationalFamily, clamp_log_variance};
use crate::numeric::compensated_sum;
use crate::posterior::{Factor, Posterior};

/// Whether A and B of a rank have one scale or two.
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

/// KL from the hierarchical prior, with its parts and its scales.
#[derive(Debug, Clone, PartialEq)]
pub struct ArdKl {
    /// One value per rank, nats.
    pub per_rank: Vec<f64>,
    /// The scales of A, or of A and B together where they share one, `[rank]`.
    pub a_scales: Vec<RankScale>,
    /// The scales of B, `[rank]`; empty where they are shared or B is not random.
    pub b_scales: Vec<RankScale>,
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
/// # Formula
///
/// ```text
/// Q       = Σ (μ² + σ²)                      over the entries that share a scale
/// KL      = see rank_scale;   empirical Bayes with tied variances: n/2 · ln(1 + 1/ᾱ)
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
/// # Invariants
///
/// Not negative; depends on group norms only, so rotations of the embedding axes do not change it.
///
/// # References
///
/// `MacKay` 1994 (automatic relevance determination).
pub fn kl_ard(
    posterior: &Posterior<'_>,
    prior: ArdPrior,
    scales: ArdScales,
) -> Result<ArdKl, Error> {
    prior.check()?;
    let family = posterior.family();
    if family == VariationalFamily::NoiseToSignal {
        let reason = "a zero mean has zero variance, whose divergence from a Gaussian is infinite";
        return Err(family.refuse("the hierarchical prior", reason));
    }
    let a = group_sums(posterior, Factor::A);
    let b = if family.has_random_b() {
        group_sums(posterior, Factor::B)
    } else {
        vec![GroupSums::default(); posterior.rank()]
    };
    let scale = |g: &GroupSums| rank_scale(prior, g.count, g.signal + g.noise, g.log_variance);
    let (a_scales, b_scales, log_relevance): (Vec<_>, Vec<_>, Vec<f64>) =
        if scales == ArdScales::Shared || !family.has_random_b() {
            let joint: Vec<GroupSums> = a.iter().zip(&b).map(|(a, b)| a.plus(b)).collect();
            let scales = joint.iter().map(scale).collect::<Result<_, _>>()?;
            (scales, Vec::new(), joint.iter().map(GroupSums::log_relevance).collect())
        } else {
            let mean =
                |(a, b): (&GroupSums, &GroupSums)| 0.5 * (a.log_relevance() + b.log_relevance());
            let a_scales = a.iter().map(scale).collect::<Result<_, _>>()?;
            let b_scales = b.iter().map(scale).collect::<Result<_, _>>()?;
            (a_scales, b_scales, a.iter().zip(&b).map(mean).collect())
        };
    let per_rank = (0..posterior.rank())
        .map(|k| a_scales[k].kl + b_scales.get(k).map_or(0.0, |s| s.kl))
        .collect();
    Ok(ArdKl { per_rank, a_scales, b_scales, log_relevance })
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

fn group_sums(posterior: &Posterior<'_>, factor: Factor) -> Vec<GroupSums> {
    let (view, entries): (_, Vec<_>) = match factor {
        Factor::A => (posterior.a_mean(), posterior.entries(factor).collect()),
        Factor::B => (posterior.b_mean(), posterior.entries(factor).collect()),
    };
    let width = view.width();
    (0..view.rank())
        .map(|k| {
            let row = &entries[k * width..(k + 1) * width];
            let clamped = || row.iter().map(|e| clamp_log_variance(e.parameter));
            GroupSums {
                count: width,
                signal: compensated_sum(row.iter().map(|e| e.mean * e.mean)),
                noise: compensated_sum(clamped().map(f64::exp)),
                log_variance: compensated_sum(clamped()),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::factor::FactorView;
    use crate::posterior::NoiseParameters;

    const A: [f64; 6] = [0.5, -0.25, 0.125, 0.01, 0.02, -0.03];
    const B: [f64; 4] = [0.2, -0.4, -0.001, 0.002];

    fn posterior(parameters: NoiseParameters<'_>) -> Posterior<'_> {
        let a = FactorView::new("a", &A, 2, 3).unwrap();
        Posterior::new(a, FactorView::new("b", &B, 2, 2).unwrap(), parameters).unwrap()
    }

    #[test]
    fn empirical_bayes_has_its_closed_form() {
        let l = [-4.0, -3.0];
        let q = posterior(NoiseParameters::RankVariance(&l));
        let kl = kl_ard(&q, ArdPrior::EmpiricalBayes, ArdScales::Shared).unwrap();
        for (k, l) in l.iter().enumerate() {
            let signal: f64 =
                q.a_mean().row(k).iter().chain(q.b_mean().row(k)).map(|m| m * m).sum();
            let ratio = 5.0 * l.exp() / signal;
            assert!((kl.log_relevance[k] - ratio.ln()).abs() < 1e-13);
            assert!((kl.per_rank[k] - 2.5 * (1.0 / ratio).ln_1p()).abs() < 1e-13);
        }
        let asym = posterior(NoiseParameters::AsymRankVariance(&l));
        let kl = kl_ard(&asym, ArdPrior::EmpiricalBayes, ArdScales::Separate).unwrap();
        let signal: f64 = A[..3].iter().map(|m| m * m).sum();
        let ratio = 3.0 * l[0].exp() / signal;
        assert!((kl.per_rank[0] - 1.5 * (1.0 / ratio).ln_1p()).abs() < 1e-13);
        assert!(kl.b_scales.is_empty());
    }

    #[test]
    fn separate_scales_do_not_see_a_change_of_scale_and_shared_ones_do() {
        let (a_log, b_log) = ([-4.0; 6], [-3.0; 4]);
        let q = posterior(NoiseParameters::ElementVariance { a: &a_log, b: &b_log });
        let shift = 2.0 * 3.0_f64.ln();
        let a = A.map(|v| v * 3.0);
        let b = B.map(|v| v / 3.0);
        let (a_moved, b_moved) = (a_log.map(|l| l + shift), b_log.map(|l| l - shift));
        let moved = Posterior::new(
            FactorView::new("a", &a, 2, 3).unwrap(),
            FactorView::new("b", &b, 2, 2).unwrap(),
            NoiseParameters::ElementVariance { a: &a_moved, b: &b_moved },
        )
        .unwrap();
        let change = |scales| {
            let of = |q: &Posterior<'_>| kl_ard(q, ArdPrior::EmpiricalBayes, scales).unwrap();
            (
                of(&q).total() - of(&moved).total(),
                of(&q).log_relevance[0] - of(&moved).log_relevance[0],
            )
        };
        let (kl, relevance) = change(ArdScales::Separate);
        assert!(kl.abs() < 1e-12 && relevance.abs() < 1e-12);
        assert!(change(ArdScales::Shared).0.abs() > 0.1);
    }

    #[test]
    fn the_multiplicative_family_is_refused_and_rank_zero_is_not() {
        let error = kl_ard(
            &posterior(NoiseParameters::NoiseToSignal(&[0.0; 2])),
            ArdPrior::EmpiricalBayes,
            ArdScales::Shared,
        );
        assert!(error.unwrap_err().to_string().contains("`noise-to-signal`"));
        let none = FactorView::new("a", &[], 0, 3).unwrap();
        let none = Posterior::new(none, none, NoiseParameters::RankVariance(&[])).unwrap();
        let kl =
            kl_ard(&none, ArdPrior::InverseGamma { shape: 1e-3, rate: 1e-3 }, ArdScales::Separate)
                .unwrap();
        assert_eq!(kl.total(), 0.0);
    }
}
