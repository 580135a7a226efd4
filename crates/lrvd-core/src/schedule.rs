//! The learning rate and the weight of the KL term at a given step.
//!
//! Steps count optimizer updates from 0. Every schedule is a checked value: one that exists can be evaluated at
//! any step.

use crate::error::{Error, check_range};

/// Weight of the KL term by step, before [`KlDivisor`].
///
/// ```text
/// constant:        kl_weight
/// linear warm-up:  kl_weight · min(1, t/n)      at step t, over n steps (n = 0: constant)
/// ```
///
/// The default is a weight of 0.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct KlSchedule {
    kl_weight: f64,
    warmup_steps: u32,
}

impl KlSchedule {
    /// A constant weight.
    pub fn constant(kl_weight: f64) -> Result<Self, Error> {
        Self::linear_warmup(kl_weight, 0)
    }

    /// A linear rise from 0 over `warmup_steps`, then the full weight.
    pub fn linear_warmup(kl_weight: f64, warmup_steps: u32) -> Result<Self, Error> {
        check_range("kl_weight", kl_weight, 0.0..)?;
        Ok(Self { kl_weight, warmup_steps })
    }

    /// The weight after the warm-up.
    pub const fn kl_weight(self) -> f64 {
        self.kl_weight
    }

    /// The weight at `step`.
    pub fn weight(self, step: u32) -> f64 {
        if step < self.warmup_steps {
            return self.kl_weight * (f64::from(step) / f64::from(self.warmup_steps));
        }
        self.kl_weight
    }
}

/// Counts that a divisor can refer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchSize {
    /// Examples of one optimizer step, or of one micro-batch where a step has several.
    pub examples: usize,
    /// Tokens in it, without padding.
    pub tokens: usize,
    /// Examples in the training set.
    pub n_train: usize,
}

/// Divisor of the KL term before it is added to the mean negative log-likelihood.
///
/// The published scripts differ by up to four orders of magnitude here: GLUE divides by nothing, the language
/// model scripts by the batch size, an older one by the tokens. [`KlDivisor::NTrain`] with weight 1 is the
/// evidence lower bound per example; with a weight below 1 the posterior is cold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum KlDivisor {
    /// 1.
    #[default]
    None,
    /// Examples in the batch.
    Batch,
    /// Tokens in the batch.
    Tokens,
    /// Examples in the training set.
    NTrain,
}

impl KlDivisor {
    /// The divisor for one step.
    pub fn divisor(self, size: BatchSize) -> Result<f64, Error> {
        let (name, count) = match self {
            Self::None => return Ok(1.0),
            Self::Batch => ("examples", size.examples),
            Self::Tokens => ("tokens", size.tokens),
            Self::NTrain => ("n_train", size.n_train),
        };
        check_range(name, count, 1..)?;
        Ok(count as f64)
    }
}

/// Course of the learning rates after the warm-up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum RateCourse {
    /// A line to 0.
    #[default]
    Linear,
    /// Half a cosine to 0.
    Cosine,
    /// The full rates.
    Constant,
}

/// Multiplier of every parameter group's learning rate, by step.
///
/// With `w` warm-up steps and `T` steps in all, at step `t`:
///
/// ```text
/// warm-up   t < w:  t/w                (step 0 has rate 0 when w > 0)
/// linear            max(0, (T − t)/(T − w))
/// cosine            ½ (1 + cos(π (t − w)/(T − w))), 0 from T on
/// constant          1
/// ```
///
/// Source: BERT's fine-tuning, and the published scripts of the method; the others as transformers' schedules of these names.
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
    course: RateCourse,
    warmup_steps: u32,
    /// The step at which the rate has fallen to 0.
    total_steps: u32,
}

impl LrSchedule {
    /// Linear rise over `warmup_steps`, then linear fall to 0 at `total_steps`.
    pub fn linear(warmup_steps: u32, total_steps: u32) -> Result<Self, Error> {
        Self::new(RateCourse::Linear, warmup_steps, total_steps)
    }

    /// Linear rise over `warmup_steps`, then `course` until `total_steps`.
    pub fn new(course: RateCourse, warmup_steps: u32, total_steps: u32) -> Result<Self, Error> {
        check_range("warmup_steps", warmup_steps, 0..=total_steps)?;
        Ok(Self { course, warmup_steps, total_steps })
    }

    /// Number of steps before the full rate is reached.
    pub const fn warmup_steps(self) -> u32 {
        self.warmup_steps
    }

    /// Multiplier of the base rate at `step`, in `[0, 1]`.
    pub fn factor(self, step: u32) -> f64 {
        if step < self.warmup_steps {
            return f64::from(step) / f64::from(self.warmup_steps);
        }
        let total = self.total_steps;
        let left = |step: u32| f64::from(total.saturating_sub(step));
        match self.course {
            RateCourse::Constant => 1.0,
            _ if step >= total => 0.0,
            RateCourse::Linear => left(step) / left(self.warmup_steps),
            RateCourse::Cosine => {
                let done = 1.0 - left(step) / left(self.warmup_steps);
                0.5 * (1.0 + (std::f64::consts::PI * done).cos())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn weight_rises_linearly_and_stays() {
        let schedule = KlSchedule::linear_warmup(2e-6, 4).unwrap();
        assert_eq!([0, 1, 3, 4, 9].map(|t| schedule.weight(t)), [0.0, 5e-7, 1.5e-6, 2e-6, 2e-6]);
        assert_eq!(KlSchedule::constant(1e-6).unwrap().weight(0), 1e-6);
        for wrong in [-1e-9, f64::NAN, f64::INFINITY] {
            assert!(KlSchedule::constant(wrong).is_err());
        }
    }

    #[test]
    fn divisors_are_the_named_counts() {
        let size = BatchSize { examples: 32, tokens: 1500, n_train: 3668 };
        let all = [KlDivisor::None, KlDivisor::Batch, KlDivisor::Tokens, KlDivisor::NTrain];
        assert_eq!(all.map(|d| d.divisor(size).unwrap()), [1.0, 32.0, 1500.0, 3668.0]);
        let empty = BatchSize { examples: 0, ..size };
        assert!(KlDivisor::Batch.divisor(empty).unwrap_err().to_string().contains("`examples`"));
        assert_eq!(KlDivisor::None.divisor(empty), Ok(1.0));
    }

    #[test]
    fn edges() {
        let no_warmup = LrSchedule::linear(0, 4).unwrap();
        assert_eq!([0, 1, 4, 5].map(|step| no_warmup.factor(step)), [1.0, 0.75, 0.0, 0.0]);
        let only_warmup = LrSchedule::linear(4, 4).unwrap();
        assert_eq!([3, 4].map(|step| only_warmup.factor(step)), [0.75, 0.0]);
        assert!(LrSchedule::linear(5, 4).is_err());
        // transformers 5: get_cosine_schedule_with_warmup(1, 5), get_constant_schedule_with_warmup(2).
        let cosine = LrSchedule::new(RateCourse::Cosine, 1, 5).unwrap();
        let expected = [0.0, 1.0, 0.853_553_390_593_273_7, 0.5, 0.146_446_609_406_726_27, 0.0, 0.0];
        for (step, expected) in (0..).zip(expected) {
            assert!((cosine.factor(step) - expected).abs() < 1e-15, "{step}");
        }
        let constant = LrSchedule::new(RateCourse::Constant, 2, 4).unwrap();
        assert_eq!([0, 1, 2, 3, 4].map(|step| constant.factor(step)), [0.0, 0.5, 1.0, 1.0, 1.0]);
        assert_eq!(LrSchedule::linear(0, 0).unwrap().factor(0), 0.0);
    }
}
