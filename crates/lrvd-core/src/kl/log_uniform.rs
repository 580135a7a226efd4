//! The divergence from the log-uniform prior, of one weight and of a whole adapter.

use crate::log_alpha::{AlphaFloor, entry_log_alpha};
use crate::numeric::{compensated_sum, logistic, softplus};
use crate::posterior::{Entry, Factor, Posterior};

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
/// # Numerics
///
/// No cancellation at either end. The fit is within 0.0094 nats of the integral, worst near
/// `a = −3.5`.
///
/// # Invariants
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

/// How the entries of a rank are combined.
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

/// How [`kl_log_uniform`] combines entries.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct LogUniformOptions {
    /// Sum or mean over the entries of a rank.
    pub reduction: KlReduction,
    /// Floor under the noise-to-signal ratio of additive entries.
    pub alpha_floor: AlphaFloor,
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
/// # Invariants
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
/// # use lrvd_core::{factor::FactorView, kl::kl_log_uniform, posterior::{NoiseParameters, Posterior}};
/// let a = FactorView::new("a_mean", &[1.0, -0.5], 1, 2)?;
/// let b = FactorView::new("b_mean", &[0.25], 1, 1)?;
/// let posterior = Posterior::new(a, b, NoiseParameters::NoiseToSignal(&[0.0]))?;
/// let kl = kl_log_uniform(&posterior, Default::default());
/// assert!((kl.total() - 3.0 * 0.431_238_950_990).abs() < 1e-11);
/// # Ok::<(), lrvd_core::Error>(())
/// ```
pub fn kl_log_uniform(posterior: &Posterior<'_>, options: LogUniformOptions) -> LogUniformKl {
    let rank = posterior.rank();
    let random_width = if posterior.family().has_random_b() {
        posterior.d_input() + posterior.d_output()
    } else {
        posterior.d_input()
    };
    let weight = match options.reduction {
        KlReduction::PerRank if random_width > 0 => 1.0 / random_width as f64,
        _ => 1.0,
    };
    let value = |entry: Entry| entry_log_alpha(entry, options.alpha_floor).map_or(0.0, kl_fit);
    let share = |factor, width: usize| {
        let values: Vec<f64> = posterior.entries(factor).map(value).collect();
        (0..rank)
            .map(|k| weight * compensated_sum(values[k * width..(k + 1) * width].iter().copied()))
            .collect()
    };
    LogUniformKl {
        a_per_rank: share(Factor::A, posterior.d_input()),
        b_per_rank: share(Factor::B, posterior.d_output()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::posterior::NoiseParameters;
    use crate::testing::posterior;

    /// Of the specification's table: `log_alpha`, the fit to twelve decimals, the integral to nine.
    const TABLE: [(f64, f64, f64); 6] = [
        (-20.0, 10.635_760_001_030, 10.635_181_422),
        (-4.0, 2.634_208_314_062, 2.625_754_932),
        (-2.0, 1.540_532_741_238, 1.544_154_645),
        (0.0, 0.431_238_950_990, 0.426_685_604),
        (3.0, 0.025_420_043_312, 0.024_688_335),
        (12.0, 0.000_003_073_836, 0.000_003_072),
    ];

    #[test]
    fn matches_the_specified_table_and_stays_near_the_integral() {
        for (a, fit, integral) in TABLE {
            assert!((kl_fit(a) - fit).abs() < 6e-13, "KL({a}) = {}", kl_fit(a));
            assert!((kl_fit(a) - integral).abs() < 0.0094, "KL({a}) = {}", kl_fit(a));
        }
    }

    #[test]
    fn both_limits() {
        assert!((kl_fit(-300.0) - (K1 + 150.0)).abs() < 1e-12);
        assert_eq!(kl_fit(f64::INFINITY), 0.0);
        assert_eq!(kl_fit(f64::NEG_INFINITY), f64::INFINITY);
        // ½·exp(−a) + k1·exp(−k2 − k3·a), where the plain formula has lost all digits.
        let a = 50.0_f64;
        let tail = 0.5 * (-a).exp() + K1 * (-K2 - K3 * a).exp();
        assert!((kl_fit(a) / tail - 1.0).abs() < 1e-12);
    }

    #[test]
    fn the_mean_per_rank_times_the_multiplicity_is_the_sum() {
        let l = [-4.0, -3.0];
        for parameters in [NoiseParameters::RankVariance(&l), NoiseParameters::NoiseToSignal(&l)] {
            let q = posterior(parameters);
            let sum = kl_log_uniform(&q, LogUniformOptions::default());
            let reduction = KlReduction::PerRank;
            let mean = kl_log_uniform(&q, LogUniformOptions { reduction, ..Default::default() });
            assert!((mean.total() * 5.0 - sum.total()).abs() < 1e-13);
        }
    }

    #[test]
    fn only_random_factors_cost() {
        let l = [-4.0, -3.0];
        let both = kl_log_uniform(
            &posterior(NoiseParameters::RankVariance(&l)),
            LogUniformOptions::default(),
        );
        let asym = kl_log_uniform(
            &posterior(NoiseParameters::AsymRankVariance(&l)),
            LogUniformOptions::default(),
        );
        assert_eq!(asym.a_per_rank, both.a_per_rank);
        assert_eq!(asym.b_per_rank, [0.0, 0.0]);
        let mean = LogUniformOptions { reduction: KlReduction::PerRank, ..Default::default() };
        let asym = kl_log_uniform(&posterior(NoiseParameters::AsymRankVariance(&l)), mean);
        assert!((asym.total() * 3.0 - 3.347_007_498_0).abs() < 1e-9);
    }
}
