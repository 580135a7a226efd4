//! The share of the KL that BLoB's schedule gives to a step.

use lrvd_core::baselines::MinibatchWeight;
use lrvd_core::baselines::minibatch_weight::rescaled_cycle;

use crate::settings::{ExperimentConfig, LastBatch};

/// The rising weights of BLoB, which `ScalaBL` and C-LoRA took over.
///
/// # Formula
///
/// ```text
/// π_i = 2^i / (2^(M+1) − 1),   i = step mod M + 1
/// M_p = ⌊100·N^(π/gamma) / batch⌋        "dataset rescaling"; without gamma the batches of an epoch
/// M   = M_p·min(1, steps / published), at least 10
/// ```
///
/// `N` counts the examples that an epoch serves. Only the last ten steps or so of a cycle count, so that a run
/// shorter than `M_p` would have no divergence at all. A run shorter than the published one has cycles of the same
/// share of it: the same number of them, down to that ten-step ramp. Longer runs keep the published length.
#[derive(Clone, Copy, Debug)]
pub(super) struct KlCycle {
    gamma: Option<f64>,
    batch_size: usize,
    last_batch: LastBatch,
    steps: usize,
    published: usize,
}

/// Steps of the published runs of BLoB and `ScalaBL`.
pub(super) const PUBLISHED_STEPS: usize = 5000;
/// The last steps of a cycle, which carry all but a thousandth of its weight.
const RAMP: usize = 10;

impl KlCycle {
    /// The cycle of an experiment's batches, where published runs have `published` steps.
    pub(super) fn new(config: &ExperimentConfig, gamma: Option<f64>, published: usize) -> Self {
        let ExperimentConfig { batch_size, last_batch, steps, .. } = *config;
        Self { gamma, batch_size: batch_size.max(1), last_batch, steps, published }
    }

    pub(super) fn batches(self, n_train: usize) -> usize {
        match self.last_batch {
            LastBatch::Keep => n_train.div_ceil(self.batch_size),
            LastBatch::Drop => n_train / self.batch_size,
        }
    }

    pub(super) fn weight(self, step: usize, n_train: usize) -> Result<f64, lrvd_burn::Error> {
        let cycle = match self.gamma {
            Some(gamma) => {
                let served = (self.batches(n_train) * self.batch_size).min(n_train);
                rescaled_cycle(served, gamma, 1, self.batch_size)?
            }
            None => self.batches(n_train) as u32,
        };
        let cycle = self.shortened(cycle);
        Ok(MinibatchWeight::Rising { cycle }.weight(step as u64)?)
    }

    /// A cycle of `published` steps in a run of this length.
    fn shortened(self, published: u32) -> u32 {
        let share = (self.steps as f64 / self.published as f64).min(1.0);
        let least = RAMP.min(self.steps).min(published as usize) as u32;
        ((f64::from(published) * share).round() as u32).max(least)
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
        KlCycle::new(&config, gamma, PUBLISHED_STEPS)
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
    fn a_shorter_run_has_as_many_cycles_and_none_without_a_divergence() {
        let of = |steps: usize| {
            let config =
                ExperimentConfig { batch_size: 4, steps, ..Preset::DefaultReasoning.config() };
            KlCycle::new(&config, Some(GAMMA), PUBLISHED_STEPS)
        };
        // 316 of 5000 steps, published; the same share of 1000; the ramp alone; no more than the run.
        for (steps, cycle) in [(20_000, 316), (5000, 316), (1000, 63), (60, 10), (3, 3)] {
            assert_eq!(of(steps).shortened(316), cycle, "{steps}");
        }
        // Cycles no longer than the ramp stay as they are.
        assert_eq!(of(60).shortened(2), 2);
        for steps in [3, 40, 60, 200] {
            let heaviest =
                (0..steps).map(|step| of(steps).weight(step, 640).unwrap()).fold(0.0, f64::max);
            assert!(heaviest > 0.49, "{steps}: {heaviest}");
        }
    }

    #[test]
    fn what_gives_no_cycle_is_refused() {
        for gamma in [0.0, -1.0, f64::INFINITY, f64::NAN] {
            let mut config = Preset::ConstantWeight.config();
            config.methods.blob.gamma = Some(gamma);
            assert!(config.validate().is_err());
        }
        assert!(cycle(Some(GAMMA), LastBatch::Drop).weight(0, 3).is_err());
    }
}
