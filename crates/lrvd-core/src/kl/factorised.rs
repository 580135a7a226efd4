//! The divergence of a whole adapter from the log-uniform prior.

use super::log_uniform::kl_fit;
use crate::log_alpha::{AlphaFloor, entry_log_alpha};
use crate::numeric::compensated_sum;
use crate::posterior::{Entry, Factor, Posterior};

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
/// # Formula
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
/// # References
///
/// Molchanov et al. 2017, arXiv:1701.05369 (the prior and the fit); Doyle et al., arXiv:2506.22809
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
    use crate::factor::FactorView;
    use crate::posterior::NoiseParameters;

    fn posterior(parameters: NoiseParameters<'_>) -> Posterior<'_> {
        let a = FactorView::new("a", &[0.5, -0.25, 0.125, 0.01, 0.02, -0.03], 2, 3).unwrap();
        let b = FactorView::new("b", &[0.2, -0.4, -0.001, 0.002], 2, 2).unwrap();
        Posterior::new(a, b, parameters).unwrap()
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
