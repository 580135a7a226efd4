//! Weight and divisor of the KL term.

use crate::error::{ParameterError, check_range};

/// Weight of the KL term by step, before [`KlDivisor`].
///
/// ```text
/// constant:        kl_weight
/// linear warm-up:  kl_weight · min(1, t/n)      at step t, over n steps (n = 0: constant)
/// then rising:     kl_weight · (high/kl_weight)^u,   u = clamp((t − start)/(end − start), 0, 1)
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KlSchedule {
    kl_weight: f64,
    warmup_steps: u32,
    rise: Option<Rise>,
}

/// A geometric rise to `high` from step `start` to step `end`.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Rise {
    high: f64,
    start: u32,
    end: u32,
}

impl KlSchedule {
    /// The same weight at every step.
    ///
    /// # Errors
    ///
    /// [`ParameterError::OutOfRange`] if `kl_weight` is negative, infinite or NaN.
    pub fn constant(kl_weight: f64) -> Result<Self, ParameterError> {
        Self::linear_warmup(kl_weight, 0)
    }

    /// A linear rise from 0 over `warmup_steps`, then the full weight.
    ///
    /// # Errors
    ///
    /// [`ParameterError::OutOfRange`] if `kl_weight` is negative, infinite or NaN.
    pub fn linear_warmup(kl_weight: f64, warmup_steps: u32) -> Result<Self, ParameterError> {
        check_range("kl_weight", kl_weight, 0.0, f64::MAX)?;
        Ok(Self { kl_weight, warmup_steps, rise: None })
    }

    /// The same schedule, whose weight rises geometrically to `high` from step `start` to step `end`: every
    /// factor takes as many steps as every other.
    ///
    /// # Errors
    ///
    /// [`ParameterError::OutOfRange`] unless the weight is above 0 and at most `high`, and the steps follow
    /// one another: warm-up, `start`, `end`.
    pub fn rising_to(self, high: f64, start: u32, end: u32) -> Result<Self, ParameterError> {
        check_range("kl_weight", self.kl_weight, f64::MIN_POSITIVE, f64::MAX)?;
        check_range("high", high, self.kl_weight, f64::MAX)?;
        check_range("start", start.into(), self.warmup_steps.into(), u32::MAX.into())?;
        check_range("end", end.into(), f64::from(start) + 1.0, u32::MAX.into())?;
        Ok(Self { rise: Some(Rise { high, start, end }), ..self })
    }

    /// The weight after the warm-up, before it rises.
    pub const fn kl_weight(self) -> f64 {
        self.kl_weight
    }

    /// Number of steps before the full weight is reached.
    pub const fn warmup_steps(self) -> u32 {
        self.warmup_steps
    }

    /// The weight at `step`.
    pub fn weight(self, step: u32) -> f64 {
        if step < self.warmup_steps {
            return self.kl_weight * (f64::from(step) / f64::from(self.warmup_steps));
        }
        self.rise.map_or(self.kl_weight, |Rise { high, start, end }| {
            let passed = f64::from(step.clamp(start, end) - start);
            self.kl_weight * (high / self.kl_weight).powf(passed / f64::from(end - start))
        })
    }
}

/// Counts that a divisor can refer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchSize {
    /// Examples in the batch that one optimiser step sees, or of one micro-batch where it sees several.
    pub examples: usize,
    /// Tokens in it, without padding.
    pub tokens: usize,
    /// Examples in the training set.
    pub n_train: usize,
}

/// What the KL term is divided by before it joins the mean negative log-likelihood.
///
/// The published scripts differ by up to four orders of magnitude here: GLUE divides by nothing, the language
/// model scripts by the batch size, an older one by the tokens. [`KlDivisor::NTrain`] with weight 1 is the
/// evidence lower bound per example.
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
    ///
    /// # Errors
    ///
    /// [`ParameterError::OutOfRange`] if the count it refers to is 0.
    pub fn divisor(self, size: BatchSize) -> Result<f64, ParameterError> {
        let (name, count) = match self {
            Self::None => return Ok(1.0),
            Self::Batch => ("examples", size.examples),
            Self::Tokens => ("tokens", size.tokens),
            Self::NTrain => ("n_train", size.n_train),
        };
        check_range(name, count as f64, 1.0, f64::MAX)?;
        Ok(count as f64)
    }
}

/// Factor of the KL under a mean negative log-likelihood at posterior temperature `temperature`:
/// `beta = temperature / n_train`.
///
/// Temperature 1 is the evidence lower bound; below 1 the posterior is cold.
///
/// # Errors
///
/// [`ParameterError::OutOfRange`] if `temperature` is negative or not finite, or `n_train` is 0.
pub fn elbo_kl_weight(temperature: f64, n_train: usize) -> Result<f64, ParameterError> {
    check_range("temperature", temperature, 0.0, f64::MAX)?;
    check_range("n_train", n_train as f64, 1.0, f64::MAX)?;
    Ok(temperature / n_train as f64)
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
    fn a_rising_weight_takes_equal_factors_in_equal_times() {
        let schedule = KlSchedule::linear_warmup(0.01, 2).unwrap().rising_to(1.0, 4, 8).unwrap();
        for (step, wanted) in [(1, 0.005), (2, 0.01), (4, 0.01), (6, 0.1), (8, 1.0), (90, 1.0)] {
            assert!((schedule.weight(step) - wanted).abs() < 1e-15, "{step}");
        }
        let plain = KlSchedule::linear_warmup(0.01, 2).unwrap();
        for (high, start, end) in [(0.009, 4, 8), (1.0, 1, 8), (1.0, 4, 4), (f64::NAN, 4, 8)] {
            assert!(plain.rising_to(high, start, end).is_err(), "{high} {start} {end}");
        }
        // Nothing rises from 0 by factors.
        assert!(KlSchedule::constant(0.0).unwrap().rising_to(1.0, 0, 8).is_err());
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
    fn weight_of_a_temperature() {
        assert_eq!(elbo_kl_weight(0.5, 200), Ok(0.0025));
        assert!(elbo_kl_weight(1.0, 0).is_err());
    }
}
