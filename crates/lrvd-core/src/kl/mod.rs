//! The divergence of the posterior from the prior, in nats.
//!
//! Direction everywhere: posterior `q` from prior `p`, so every value is to be minimized.
//!
//! | Prior | Function | Proper? |
//! |---|---|---|
//! | log-uniform | [`kl_log_uniform`] | no: defined up to a constant |
//! | hierarchical Gaussian, width learned with the rank | [`kl_ard`] | yes |

mod ard;

pub use ard::{ArdKl, ArdPrior, ArdScales, kl_ard, scale_kl};

use crate::posterior::{Factor, Posterior};
use crate::special::{compensated_sum, logistic, softplus};
use crate::update::Factors;

/// First fit constant of Molchanov et al. 2017.
pub const K1: f64 = 0.63576;
/// Second fit constant of Molchanov et al. 2017.
pub const K2: f64 = 1.87320;
/// Third fit constant of Molchanov et al. 2017.
pub const K3: f64 = 1.48695;

/// KL of one Gaussian weight from the log-uniform prior, by the three-constant fit.
///
/// ```text
/// KL(a) = k1·logistic(−k2 − k3·a) + ½·softplus(−a),   a = log_alpha = ln(σ²/μ²)
/// ```
///
/// The paper calls minus this quantity "KL" and maximises.
///
/// No cancellation at either end. The fit is within 0.0094 nats of the integral, worst near
/// `a = −3.5`.
///
/// Not negative; falls in `a`, steepest at `a = −1.550` with a slope of −0.63812; `k1 − a/2` for `a → −∞` and 0 for
/// `a → +∞`.
///
/// Source: Molchanov et al. 2017, arXiv:1701.05369, equation 14.
///
/// # Examples
///
/// ```
/// # use lrvd_core::kl::kl_fit;
/// assert!((kl_fit(0.0) - 0.431_238_950_990).abs() < 1e-12);
/// ```
pub fn kl_fit(log_alpha: f64) -> f64 {
    K1 * logistic(-K2 - K3 * log_alpha) + 0.5 * softplus(-log_alpha)
}

/// Combination of the entries of a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum KlReduction {
    /// The sum over all random entries: the divergence of the factorised posterior.
    #[default]
    Element,
    /// The mean over the random entries of each rank, summed over ranks: the published wording,
    /// without the multiplicity `d_input + d_output`. Its weight must be that much larger.
    PerRank,
}

/// KL from the log-uniform prior with its parts.
#[derive(Debug, Clone, PartialEq)]
pub struct LogUniformKl {
    /// The share of A in each rank, `[rank]`, nats.
    pub a_per_rank: Vec<f64>,
    /// The share of B in each rank, `[rank]`, nats; 0 where B is not random.
    pub b_per_rank: Vec<f64>,
}

impl LogUniformKl {
    /// Both shares of each rank, `[rank]`, nats.
    pub fn per_rank(&self) -> Vec<f64> {
        self.a_per_rank.iter().zip(&self.b_per_rank).map(|(a, b)| a + b).collect()
    }

    /// The sum over ranks, nats.
    pub fn total(&self) -> f64 {
        compensated_sum(self.a_per_rank.iter().chain(&self.b_per_rank).copied())
    }
}

/// KL of a factorised posterior from the log-uniform prior.
///
/// ```text
/// KL = Σ_{k,i} KL(log_alpha_A[k,i]) + Σ_{k,o} KL(log_alpha_B[k,o])       (element)
/// ```
///
/// Not negative; falls in every log-variance and every `log_alpha`. Not invariant under rotations
/// of equal-variance ranks, although the additive family is closed under them.
///
/// Source: Molchanov et al. 2017, arXiv:1701.05369 (the prior and the fit); Doyle et al., arXiv:2506.22809
/// (rank tying).
///
/// # Examples
///
/// ```
/// # use lrvd_core::{Factors, Noise, Posterior, VariationalFamily, kl::kl_log_uniform};
/// let means = Factors { rank: 1, d_input: 2, d_output: 1, a: vec![1.0, -0.5], b: vec![0.25] };
/// let noise = Noise::per_rank(VariationalFamily::NoiseToSignal, vec![0.0]);
/// let kl = kl_log_uniform(&Posterior::new(means, noise)?, Default::default());
/// assert!((kl.total() - 3.0 * 0.431_238_950_990).abs() < 1e-11);
/// # Ok::<(), lrvd_core::Error>(())
/// ```
pub fn kl_log_uniform(posterior: &Posterior, reduction: KlReduction) -> LogUniformKl {
    let Factors { d_input, d_output, .. } = *posterior.factors();
    let random_width = if posterior.family().has_random_b() { d_input + d_output } else { d_input };
    let weight = match reduction {
        KlReduction::PerRank if random_width > 0 => 1.0 / random_width as f64,
        _ => 1.0,
    };
    let share = |factor| {
        let rows = posterior.rows(factor, |entry| entry.log_alpha().map_or(0.0, kl_fit));
        rows.into_iter().map(|row| weight * compensated_sum(row)).collect()
    };
    LogUniformKl { a_per_rank: share(Factor::A), b_per_rank: share(Factor::B) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::posterior::VariationalFamily;
    use crate::testing::posterior;

    #[test]
    fn the_fit_has_its_limits_and_keeps_its_tail() {
        assert!((kl_fit(-300.0) - (K1 + 150.0)).abs() < 1e-12);
        assert_eq!(kl_fit(f64::INFINITY), 0.0);
        assert_eq!(kl_fit(f64::NEG_INFINITY), f64::INFINITY);
        // ½·exp(−a) + k1·exp(−k2 − k3·a), where the plain formula has lost all digits.
        let a = 50.0_f64;
        let tail = 0.5 * (-a).exp() + K1 * (-K2 - K3 * a).exp();
        assert!((kl_fit(a) / tail - 1.0).abs() < 1e-12);
    }

    #[test]
    fn a_mean_per_rank_times_its_entries_is_the_sum_and_only_random_factors_cost() {
        let l = [-4.0, -3.0];
        let mean = KlReduction::PerRank;
        let of = |q: &Posterior| kl_log_uniform(q, KlReduction::Element);
        let both = posterior(VariationalFamily::RankVariance, l);
        for q in [&both, &posterior(VariationalFamily::NoiseToSignal, l)] {
            assert!((kl_log_uniform(q, mean).total() * 5.0 - of(q).total()).abs() < 1e-13);
        }
        let asym = posterior(VariationalFamily::AsymRankVariance, l);
        assert_eq!(of(&asym).a_per_rank, of(&both).a_per_rank);
        assert_eq!(of(&asym).b_per_rank, [0.0, 0.0]);
        assert!((kl_log_uniform(&asym, mean).total() * 3.0 - 3.347_007_498_0).abs() < 1e-9);
    }
}
