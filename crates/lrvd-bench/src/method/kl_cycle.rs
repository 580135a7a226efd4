//! The share of the KL that BLoB's schedule gives to a step.

use lrvd_core::baselines::MinibatchWeight;
use lrvd_core::baselines::minibatch_weight::rescaled_cycle;

use super::MethodError;
use crate::settings::{ExperimentConfig, LastBatch};

/// The rising weights of BLoB, which `ScalaBL` and C-LoRA took over.
///
/// # Formula
///
/// ```text
/// π_i = 2^i / (2^(M+1) − 1),   i = step mod M + 1
/// M   = ⌊100·N^(π/gamma) / batch⌋        "dataset rescaling"; without gamma the batches of an epoch
/// ```
///
/// `N` counts the examples that an epoch serves. Only the last ten steps or so of a cycle count.
#[derive(Clone, Copy, Debug)]
pub(super) struct KlCycle {
    gamma: Option<f64>,
    batch_size: usize,
    last_batch: LastBatch,
}

impl KlCycle {
    /// The cycle of an experiment's batches.
    pub(super) fn new(config: &ExperimentConfig, gamma: Option<f64>) -> Self {
        Self { gamma, batch_size: config.batch_size.max(1), last_batch: config.last_batch }
    }

    /// Batches in an epoch of `n_train` examples.
    pub(super) fn batches(self, n_train: usize) -> usize {
        match self.last_batch {
            LastBatch::Keep => n_train.div_ceil(self.batch_size),
            LastBatch::Drop => n_train / self.batch_size,
        }
    }

    /// The weight at `step`, counted from 0.
    pub(super) fn weight(self, step: usize, n_train: usize) -> Result<f64, MethodError> {
        let cycle = match self.gamma {
            Some(gamma) => {
                let served = (self.batches(n_train) * self.batch_size).min(n_train);
                rescaled_cycle(served, gamma, 1, self.batch_size)?
            }
            None => self.batches(n_train) as u32,
        };
        Ok(MinibatchWeight::Rising { cycle }.weight(step as u64)?)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use lrvd_core::baselines::minibatch_weight::GAMMA;

    use crate::settings::Preset;

    fn cycle(gamma: Option<f64>, last_batch: LastBatch) -> KlCycle {
        let config =
            ExperimentConfig { batch_size: 4, last_batch, ..Preset::DefaultReasoning.config() };
        KlCycle::new(&config, gamma)
    }

    #[test]
    fn the_published_cycle_of_the_smallest_set() {
        // WG-S: 640 examples of 643 with whole batches of 4 only: M = 316.
        let published = cycle(Some(GAMMA), LastBatch::Drop);
        let last = published.weight(315, 643).unwrap();
        assert!((last - 0.5).abs() < 1e-15);
        assert_eq!(published.weight(314, 643).unwrap(), last / 2.0);
        assert_eq!(published.weight(316, 643).unwrap(), published.weight(0, 643).unwrap());
        assert_eq!(published.weight(315 + 316, 643).unwrap(), last);
    }

    #[test]
    fn without_rescaling_a_cycle_is_an_epoch() {
        // 2/7 and 4/7 in an epoch of two batches.
        let kept = cycle(None, LastBatch::Keep);
        for (step, wanted) in [(0, 2.0 / 7.0), (1, 4.0 / 7.0), (2, 2.0 / 7.0)] {
            assert!((kept.weight(step, 7).unwrap() - wanted).abs() < 1e-15, "{step}");
        }
        assert_eq!((kept.batches(7), cycle(None, LastBatch::Drop).batches(7)), (2, 1));
    }

    #[test]
    fn what_gives_no_cycle_is_refused() {
        for gamma in [0.0, -1.0, f64::INFINITY, f64::NAN] {
            let mut config = Preset::Default.config();
            config.methods.blob.gamma = Some(gamma);
            assert!(config.validate().is_err());
        }
        assert!(cycle(Some(GAMMA), LastBatch::Drop).weight(0, 3).is_err());
    }
}
