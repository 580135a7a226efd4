//! Learning-rate schedules.

use crate::error::{Error, check_range};

/// Multiplier of every parameter group's learning rate, by step.
///
/// # Formula
///
/// With `w` warm-up steps and `T` steps in all, at step `t`:
///
/// ```text
/// warm-up   t < w:  t/w                (step 0 has rate 0 when w > 0)
/// after it  max(0, (T − t)/(T − w))
/// ```
///
/// # References
///
/// Linear warm-up and decay as in BERT's fine-tuning, and in the published scripts of the method.
///
/// # Examples
///
/// ```
/// use lrvd_core::schedule::LrSchedule;
///
/// let schedule = LrSchedule::linear(3, 30)?;
/// assert_eq!(schedule.factor(0), 0.0);
/// assert_eq!(schedule.factor(3), 1.0);
/// assert_eq!(schedule.factor(12), 18.0 / 27.0);
/// assert_eq!(schedule.factor(30), 0.0);
/// # Ok::<(), lrvd_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LrSchedule {
    warmup_steps: u32,
    /// The step at which the rate has fallen to 0.
    total_steps: u32,
}

impl LrSchedule {
    /// Linear rise over `warmup_steps`, then linear fall to 0 at `total_steps`.
    ///
    /// # Errors
    ///
    /// `warmup_steps > total_steps`.
    pub fn linear(warmup_steps: u32, total_steps: u32) -> Result<Self, Error> {
        check_range("warmup_steps", f64::from(warmup_steps), 0.0, f64::from(total_steps))?;
        Ok(Self { warmup_steps, total_steps })
    }

    /// Number of steps before the full rate is reached.
    pub const fn warmup_steps(self) -> u32 {
        self.warmup_steps
    }

    /// The step at which the rate has fallen to 0.
    pub const fn total_steps(self) -> u32 {
        self.total_steps
    }

    /// Multiplier of the base rate at `step`, in `[0, 1]`.
    pub fn factor(self, step: u32) -> f64 {
        if step < self.warmup_steps {
            return f64::from(step) / f64::from(self.warmup_steps);
        }
        let total = self.total_steps;
        if step >= total {
            return 0.0;
        }
        f64::from(total - step) / f64::from(total - self.warmup_steps)
    }

    /// The rate at `step` of a group whose full rate is `base`.
    pub fn rate(self, base: f64, step: u32) -> f64 {
        base * self.factor(step)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn matches_a_recorded_run() {
        // `lr_adapter` of the reference training run of 30 steps with 3 steps of warm-up at base rate 1e-3
        // (golden case `train/deberta_lora`), first six values and the last.
        let schedule = LrSchedule::linear(3, 30).unwrap();
        let recorded = [
            0.0,
            0.000_333_333_333_333_333_3,
            0.000_666_666_666_666_666_6,
            0.001,
            0.000_962_962_962_962_963,
            0.000_925_925_925_925_926,
        ];
        for (step, wanted) in (0u32..).zip(recorded) {
            assert!((schedule.rate(1e-3, step) - wanted).abs() < 1e-18, "step {step}");
        }
        assert!((schedule.rate(1e-3, 29) - 3.703_703_703_703_703_7e-5).abs() < 1e-18);
    }

    #[test]
    fn edges() {
        let no_warmup = LrSchedule::linear(0, 4).unwrap();
        assert_eq!([0, 1, 4, 5].map(|step| no_warmup.factor(step)), [1.0, 0.75, 0.0, 0.0]);
        let only_warmup = LrSchedule::linear(4, 4).unwrap();
        assert_eq!([3, 4].map(|step| only_warmup.factor(step)), [0.75, 0.0]);
        assert!(LrSchedule::linear(5, 4).is_err());
        assert_eq!(LrSchedule::linear(0, 0).unwrap().factor(0), 0.0);
    }

    proptest! {
        #[test]
        fn rises_then_falls_within_the_unit_interval(warmup in 0u32..50, rest in 1u32..50) {
            let schedule = LrSchedule::linear(warmup, warmup + rest).unwrap();
            for step in 0..warmup + rest + 3 {
                let (now, next) = (schedule.factor(step), schedule.factor(step + 1));
                prop_assert!((0.0..=1.0).contains(&now));
                let in_order = if step < warmup { next > now } else { next <= now };
                prop_assert!(in_order, "step {}: {} then {}", step, now, next);
            }
        }
    }
}
