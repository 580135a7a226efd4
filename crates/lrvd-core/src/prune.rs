//! Pruning: the statistic of rank components, and the rule that keeps some of them at the steps of a schedule.

use crate::error::{Error, check_numbers, check_range};
use crate::kl::{ArdPrior, ArdScales, kl_ard};
use crate::posterior::{Factor, Posterior};
use crate::special::lower_median;

/// Fan-in at which the corrected statistic equals the plain one: the attention width of the model that the published threshold
/// was chosen on.
const REFERENCE_FAN_IN: f64 = 768.0;

/// Aggregation of the entries of a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum StatisticAggregate {
    /// The median noise-to-signal ratio of an entry, as published; its threshold is 4.
    #[default]
    Median,
    /// Noise energy over mean energy of the whole rank, the relevance of the hierarchical prior
    /// ([`kl_ard`]); its natural threshold is 0. It is the same in every basis of the inputs and
    /// outputs.
    Energy,
}

/// Options of [`rank_statistic`].
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields, default))]
pub struct StatisticOptions {
    /// Medians of entries, or energies of ranks.
    pub aggregate: StatisticAggregate,
    /// Subtracts from a median what the fan-in alone contributes to a fresh adapter, relative to one with 768 inputs.
    pub fan_in_correction: bool,
}

/// The prune statistic: a robust log noise-to-signal ratio of every rank.
///
/// ```text
/// rank, element   ½·(med_i log_alpha_A[k,i] + med_o log_alpha_B[o,k]) − ½·ln(d_input/768)
/// noise-to-signal log_alpha[k]
/// asym            med_i log_alpha_A[k,i] − ln(d_input/768)
/// log_alpha = ℓ − ln(mean² + EPS_MEAN);     the last term only with fan_in_correction
/// energy          ln(Σ σ² / Σ mean²) over the random entries of the rank
/// ```
///
/// The correction follows the weight that the median of A has: a fresh A is uniform in
/// `±1/√d_input`, so that median is `ℓ + ln(4·d_input)`.
///
/// Returns `[rank]`; empty for rank 0.
///
/// # Errors
///
/// A factor that enters has a width of 0.
///
/// Permuting ranks permutes the result; up to `EPS_MEAN`, `A → s·A, B → B/s` leaves the two-factor
/// statistic unchanged; a NaN in a row makes its statistic NaN, which no rule accepts.
///
/// Source: the authors' code; the paper names the statistic without defining it.
pub fn rank_statistic(posterior: &Posterior, options: StatisticOptions) -> Result<Vec<f64>, Error> {
    if posterior.factors().rank == 0 {
        return Ok(Vec::new());
    }
    if posterior.family().is_relative() {
        return Ok(posterior.noise().a.clone());
    }
    if options.aggregate == StatisticAggregate::Energy {
        return Ok(kl_ard(posterior, ArdPrior::EmpiricalBayes, ArdScales::Shared)?.log_relevance);
    }
    let a = medians(posterior, Factor::A)?;
    let log_fan_in = if options.fan_in_correction {
        (posterior.factors().d_input as f64 / REFERENCE_FAN_IN).ln()
    } else {
        0.0
    };
    if !posterior.family().has_random_b() {
        return Ok(a.iter().map(|a| a - log_fan_in).collect());
    }
    let b = medians(posterior, Factor::B)?;
    Ok(a.iter().zip(&b).map(|(a, b)| 0.5 * (a + b) - 0.5 * log_fan_in).collect())
}

/// Lower median of `log_alpha` in every rank of a factor that is random.
fn medians(posterior: &Posterior, factor: Factor) -> Result<Vec<f64>, Error> {
    let name = match factor {
        Factor::A => "row of A",
        Factor::B => "column of B",
    };
    let rows = posterior.rows(factor, |entry| entry.log_alpha().unwrap_or(f64::NEG_INFINITY));
    let median =
        |row: &Vec<f64>| lower_median(row).ok_or_else(|| Error::length(name, 0, "at least 1"));
    rows.iter().map(median).collect()
}

/// Threshold of the published experiments.
const DEFAULT_LOG_ALPHA_THRESHOLD: f64 = 4.0;

/// A checked rule: keep a rank while its statistic is below the threshold, and at least `min_rank` ranks in any case: those of
/// the smallest statistics. By default the threshold is 4, and no rank has to stay.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PruneRule {
    log_alpha_threshold: f64,
    min_rank: usize,
}

impl PruneRule {
    /// Checks a rule.
    pub fn new(log_alpha_threshold: f64, min_rank: usize) -> Result<Self, Error> {
        check_range("log_alpha_threshold", log_alpha_threshold, ..)?;
        Ok(Self { log_alpha_threshold, min_rank })
    }

    /// The threshold.
    pub fn log_alpha_threshold(&self) -> f64 {
        self.log_alpha_threshold
    }

    /// The number of ranks that survive whatever their statistic.
    pub fn min_rank(&self) -> usize {
        self.min_rank
    }

    /// The ranks to keep of one adapter, ascending, given the statistic of each.
    ///
    /// Ties beyond the threshold go to the lower index.
    ///
    /// # Errors
    ///
    /// A statistic is NaN: a diverged adapter is not pruned silently.
    pub fn kept(&self, statistic: &[f64]) -> Result<Vec<usize>, Error> {
        check_numbers("statistic", statistic)?;
        let mut order: Vec<usize> = (0..statistic.len()).collect();
        order.sort_by(|&i, &j| statistic[i].total_cmp(&statistic[j]));
        let below = statistic.iter().filter(|&&s| s < self.log_alpha_threshold).count();
        let n_kept = below.max(self.min_rank).min(statistic.len());
        order.truncate(n_kept);
        order.sort_unstable();
        Ok(order)
    }
}

impl Default for PruneRule {
    fn default() -> Self {
        Self { log_alpha_threshold: DEFAULT_LOG_ALPHA_THRESHOLD, min_rank: 0 }
    }
}

/// Ranks of all adapters as the published tables report them.
///
/// ```text
/// total = Σ_m rank[m],   average = total / M,   percent = 100 · average / initial_rank
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RankSummary {
    /// Sum over adapters.
    pub total: usize,
    /// Mean over adapters; 0 if there are none.
    pub average: f64,
    /// Mean in percent of the initial rank; 0 if that is 0.
    pub percent: f64,
}

impl RankSummary {
    /// Summarises the ranks of adapters that all started at `initial_rank`.
    pub fn new(ranks: &[usize], initial_rank: usize) -> Self {
        let total = ranks.iter().sum();
        let average = if ranks.is_empty() { 0.0 } else { total as f64 / ranks.len() as f64 };
        let percent = if initial_rank == 0 { 0.0 } else { 100.0 * average / initial_rank as f64 };
        Self { total, average, percent }
    }
}

/// A checked schedule of prune events.
///
/// ```text
/// due(step)  ⇔  start ≤ step ≤ stop  and  step mod every = 0
/// ```
///
/// Multiples are counted from step 0, as in the authors' loop, not from `start`. What a step
/// number means (an update about to be made, or updates completed) is the caller's choice.
///
/// # Examples
///
/// ```
/// # use lrvd_core::prune::PruneSchedule;
/// let schedule = PruneSchedule::new(1000, 1000, Some(3000))?;
/// let due: Vec<u64> = (0..5001).filter(|&step| schedule.is_due(step)).collect();
/// assert_eq!(due, [1000, 2000, 3000]);
/// # Ok::<(), lrvd_core::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PruneSchedule {
    start: u64,
    every: u64,
    stop: Option<u64>,
}

impl PruneSchedule {
    /// Checks a schedule; without `stop` it runs to the end of training.
    pub fn new(start: u64, every: u64, stop: Option<u64>) -> Result<Self, Error> {
        check_range("every", every, 1..)?;
        if let Some(stop) = stop {
            check_range("stop", stop, start..)?;
        }
        Ok(Self { start, every, stop })
    }

    /// `true` if this step is a prune event.
    pub fn is_due(&self, step: u64) -> bool {
        step >= self.start
            && self.stop.is_none_or(|stop| step <= stop)
            && step.is_multiple_of(self.every)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::posterior::{Noise, VariationalFamily};
    use crate::testing::{empty, factors};

    /// Means of rank 1, of squares 1, 4, 16, 64 in A and 1/4, 1/16 in B.
    const A: [f64; 4] = [1.0, -2.0, 4.0, 8.0];
    const B: [f64; 2] = [0.5, 0.25];
    const MEDIAN: StatisticOptions =
        StatisticOptions { aggregate: StatisticAggregate::Median, fan_in_correction: false };
    const ENERGY: StatisticOptions =
        StatisticOptions { aggregate: StatisticAggregate::Energy, ..MEDIAN };

    fn posterior(family: VariationalFamily, l: f64) -> Posterior {
        Posterior::new(factors(1, &A, &B), Noise::per_rank(family, vec![l])).unwrap()
    }

    #[test]
    fn statistics_by_family_and_options() {
        let corrected = StatisticOptions { fan_in_correction: true, ..MEDIAN };
        let fan_in = (4.0_f64 / 768.0).ln();
        // Ratios of A: ℓ − ln μ², so the lower median is that of 4, and of B that of 0.5.
        let lower = (4.0_f64 * 0.5).ln();
        for (options, l, expected) in [
            (MEDIAN, -1.0, [-1.0 - lower, -1.0 - 16.0_f64.ln()]),
            (MEDIAN, -25.0, [-20.0 - lower, -20.0 - 16.0_f64.ln()]),
            (corrected, -1.0, [-1.0 - lower - 0.5 * fan_in, -1.0 - 16.0_f64.ln() - fan_in]),
            (ENERGY, -1.0, [(6.0_f64 / 85.3125).ln() - 1.0, (4.0_f64 / 85.0).ln() - 1.0]),
        ] {
            let families = [VariationalFamily::RankVariance, VariationalFamily::AsymRankVariance];
            for (family, expected) in families.into_iter().zip(expected) {
                let found = rank_statistic(&posterior(family, l), options).unwrap();
                assert!((found[0] - expected).abs() < 1e-7, "{options:?}: {found:?} {expected}");
            }
            let ratio = posterior(VariationalFamily::NoiseToSignal, l);
            assert_eq!(rank_statistic(&ratio, options), Ok(vec![l]), "{options:?}");
        }
    }

    #[test]
    fn rank_zero_has_no_statistic_and_empty_rows_are_errors() {
        assert_eq!(rank_statistic(&empty(), MEDIAN), Ok(Vec::new()));
        let noise = Noise::per_rank(VariationalFamily::RankVariance, vec![0.0]);
        let flat = Posterior::new(factors(1, &[], &B), noise).unwrap();
        let error = Error::length("row of A", 0, "at least 1");
        assert_eq!(rank_statistic(&flat, MEDIAN), Err(error));
    }

    #[test]
    fn a_rule_keeps_what_is_below_its_threshold_and_at_least_its_minimum() {
        let below = 4.0 - 4.0 * f64::EPSILON;
        let rule = |threshold, least| PruneRule::new(threshold, least).unwrap();
        for (rule, statistic, kept) in [
            (PruneRule::default(), &[4.0, below, -3.0, f64::INFINITY][..], &[1, 2][..]),
            (rule(0.0, 2), &[9.0, 5.0, 7.0, 5.0], &[1, 3]),
            (rule(0.0, 2), &[5.0, 5.0, 5.0], &[0, 1]),
            (rule(0.0, 2), &[-1.0, -2.0, -3.0], &[0, 1, 2]),
            (rule(0.0, 2), &[9.0], &[0]),
            (rule(0.0, 2), &[], &[]),
        ] {
            assert_eq!(rule.kept(statistic).unwrap(), kept, "{statistic:?}");
        }
        let error = PruneRule::default().kept(&[0.0, f64::NAN]).unwrap_err();
        assert!(matches!(error, Error::Entry { name, index: 1, .. } if name == "statistic"));
        assert!(PruneRule::new(f64::NAN, 0).is_err() && PruneRule::new(f64::INFINITY, 0).is_err());
    }

    #[test]
    fn summaries_count_as_the_tables_do() {
        let summary = RankSummary::new(&[1, 0, 2], 2);
        assert_eq!(summary, RankSummary { total: 3, average: 1.0, percent: 50.0 });
        assert_eq!(RankSummary::new(&[], 8).average, 0.0);
        assert_eq!(RankSummary::new(&[0], 0).percent, 0.0);
    }

    #[test]
    fn events_are_multiples_inside_the_window() {
        for (start, every, stop, expected) in [
            (599, 2000, None, vec![2000, 4000, 6000, 8000]),
            (0, 200, Some(200), vec![0, 200]),
            (10, 1, Some(10), vec![10]),
        ] {
            let schedule = PruneSchedule::new(start, every, stop).unwrap();
            let due: Vec<u64> = (0..9999).filter(|&step| schedule.is_due(step)).collect();
            assert_eq!(due, expected);
        }
        assert!(PruneSchedule::new(0, 0, None).is_err());
        assert!(PruneSchedule::new(10, 1, Some(9)).is_err());
    }
}
