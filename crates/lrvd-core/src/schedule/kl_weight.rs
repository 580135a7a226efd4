//! Weight and divisor of the KL term.

use crate::error::{Error, check_range};

/// Weight of the KL term by step, before [`KlDivisor`].
///
/// ```text
/// constant:        kl_weight
/// linear warm-up:  kl_weight · min(1, t/n)      at step t, over n steps (n = 0: constant)
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KlSchedule {
    kl_weight: f64,
    warmup_steps: u32,
}

impl KlSchedule {
    /// The same weight at every step.
    ///
    /// # Errors
    ///
    /// `kl_weight` is negative, infinite or NaN.
    pub fn constant(kl_weight: f64) -> Result<Self, Error> {
        Self::linear_warmup(kl_weight, 0)
    }

    /// A linear rise from 0 over `warmup_steps`, then the full weight.
    pub fn linear_warmup(kl_weight: f64, warmup_steps: u32) -> Result<Self, Error> {
        check_range("kl_weight", kl_weight, 0.0, f64::MAX)?;
        Ok(Self { kl_weight, warmup_steps })
    }

    /// The weight after the warm-up.
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
        self.kl_weight
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
    /// The count that it refers to is 0.
    pub fn divisor(self, size: BatchSize) -> Result<f64, Error> {
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
/// `temperature` is negative or not finite, or `n_train` is 0.
pub fn elbo_kl_weight(temperature: f64, n_train: usize) -> Result<f64, Error> {
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
