//! The noise-to-signal ratio from which on a rank component is noise.

use crate::error::{Error, check_numbers, check_range};

/// Threshold of the published experiments.
pub const DEFAULT_LOG_ALPHA_THRESHOLD: f64 = 4.0;

/// A checked rule: keep a rank while its statistic is below the threshold, and at least
/// `min_rank` ranks in any case.
///
/// | Name                  | Default | Range    | Meaning                                    |
/// |-----------------------|---------|----------|--------------------------------------------|
/// | `log_alpha_threshold` | 4       | finite   | keep iff the statistic is below            |
/// | `min_rank`            | 0       | any      | if fewer survive, keep the smallest values |
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PruneRule {
    log_alpha_threshold: f64,
    min_rank: usize,
}

impl PruneRule {
    /// Checks a rule.
    pub fn new(log_alpha_threshold: f64, min_rank: usize) -> Result<Self, Error> {
        check_range("log_alpha_threshold", log_alpha_threshold, f64::MIN, f64::MAX)?;
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

    /// The number of ranks whose statistic is below the threshold, without regard to `min_rank`.
    pub fn effective_rank(&self, statistic: &[f64]) -> usize {
        statistic.iter().filter(|&&s| s < self.log_alpha_threshold).count()
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
        let n_kept = self.effective_rank(statistic).max(self.min_rank).min(statistic.len());
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
    ///
    /// # Errors
    ///
    /// `every` is 0, or `stop` is before `start`.
    pub fn new(start: u64, every: u64, stop: Option<u64>) -> Result<Self, Error> {
        let high = u64::MAX as f64;
        if every == 0 {
            return Err(Error::OutOfRange { name: "every", value: 0.0, low: 1.0, high });
        }
        if let Some(stop) = stop.filter(|&stop| stop < start) {
            let (value, low) = (stop as f64, start as f64);
            return Err(Error::OutOfRange { name: "stop", value, low, high });
        }
        Ok(Self { start, every, stop })
    }

    /// Whether this step is a prune event.
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

    #[test]
    fn the_threshold_itself_is_pruned() {
        let rule = PruneRule::default();
        let below = 4.0 - 4.0 * f64::EPSILON;
        assert_eq!(rule.kept(&[4.0, below, -3.0, f64::INFINITY]).unwrap(), [1, 2]);
        assert_eq!(rule.effective_rank(&[4.0, below]), 1);
    }

    #[test]
    fn the_minimum_keeps_the_smallest_in_order() {
        let rule = PruneRule::new(0.0, 2).unwrap();
        assert_eq!(rule.kept(&[9.0, 5.0, 7.0, 5.0]).unwrap(), [1, 3]);
        assert_eq!(rule.kept(&[5.0, 5.0, 5.0]).unwrap(), [0, 1]);
        assert_eq!(rule.kept(&[-1.0, -2.0, -3.0]).unwrap(), [0, 1, 2]);
        assert_eq!(rule.kept(&[9.0]).unwrap(), [0]);
        assert!(rule.kept(&[]).unwrap().is_empty());
    }

    #[test]
    fn nan_is_an_error_with_its_place() {
        let error = PruneRule::default().kept(&[0.0, f64::NAN]).unwrap_err();
        assert!(matches!(error, Error::Entry { name, index: 1, .. } if name == "statistic"));
        assert!(PruneRule::new(f64::NAN, 0).is_err());
        assert!(PruneRule::new(f64::INFINITY, 0).is_err());
    }

    #[test]
    fn summaries_count_as_the_tables_do() {
        let summary = RankSummary::new(&[1, 0, 2], 2);
        assert_eq!(summary, RankSummary { total: 3, average: 1.0, percent: 50.0 });
        assert_eq!(RankSummary::new(&[], 8).average, 0.0);
        assert_eq!(RankSummary::new(&[0], 0).percent, 0.0);
    }

    #[test]
    fn events_lie_on_multiples_inside_the_window() {
        let author = PruneSchedule::new(599, 2000, None).unwrap();
        let due: Vec<u64> = (0..9999).filter(|&s| author.is_due(s)).collect();
        assert_eq!(due, [2000, 4000, 6000, 8000]);
        let from_zero = PruneSchedule::new(0, 200, Some(200)).unwrap();
        assert!(from_zero.is_due(0) && from_zero.is_due(200));
        assert!(!from_zero.is_due(199) && !from_zero.is_due(201) && !from_zero.is_due(400));
    }

    #[test]
    fn empty_windows_are_errors() {
        assert!(PruneSchedule::new(0, 0, None).is_err());
        assert!(PruneSchedule::new(10, 1, Some(9)).is_err());
        assert!(PruneSchedule::new(10, 1, Some(10)).is_ok());
    }
}
