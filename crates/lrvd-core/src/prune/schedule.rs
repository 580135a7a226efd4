//! The steps of prune events.

use crate::error::Error;

/// A checked schedule of prune events.
///
/// # Formula
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
    fn events_lie_on_multiples_inside_the_window() {
        let author = PruneSchedule::new(599, 2000, None).unwrap();
        let due: Vec<u64> = (0..9999).filter(|&s| author.is_due(s)).collect();
        assert_eq!(due, [2000, 4000, 6000, 8000]);
        let from_zero = PruneSchedule::new(0, 200, Some(200)).unwrap();
        assert!(from_zero.is_due(0) && from_zero.is_due(200));
        assert!(!from_zero.is_due(199) && !from_zero.is_due(201) && !from_zero.is_due(400));
    }

    #[test]
    fn empty_windows_are_refused() {
        assert!(PruneSchedule::new(0, 0, None).is_err());
        assert!(PruneSchedule::new(10, 1, Some(9)).is_err());
        assert!(PruneSchedule::new(10, 1, Some(10)).is_ok());
    }
}
