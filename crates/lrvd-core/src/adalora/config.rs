//! Configuration and budget schedule.

use crate::error::{Error, check_range};

/// The part of the rank that PEFT adds to keep its scaling finite at rank 0.
const RANK_OFFSET: f64 = 1e-5;

/// Settings of `AdaLoRA`, under the names of PEFT's configuration file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdaLoraConfig {
    /// Rank of every module at the start, `1..`.
    pub init_r: usize,
    /// Average rank at the end, `1..=init_r`.
    pub target_r: usize,
    /// Last step before the budget falls, `0..total_step − tfinal`.
    pub tinit: u32,
    /// **Length** of the final phase, in which the ranks are frozen, `0..total_step`.
    pub tfinal: u32,
    /// Steps between two masks (`deltaT`), `1..`.
    pub delta_t: u32,
    /// Optimiser steps of the run, `1..`.
    pub total_step: u32,
    /// Decay of the smoothed importance, in `(0, 1)`; 0.85 in PEFT.
    pub beta1: f64,
    /// Decay of the smoothed uncertainty, in `(0, 1)`; 0.85 in PEFT.
    pub beta2: f64,
    /// Weight of [`orthogonality`](super::orthogonality) in the loss, `0..`; 0.5 in PEFT.
    pub orth_reg_weight: f64,
}

/// What happens to the ranks at a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Nothing is zeroed.
    Rest,
    /// A new mask is chosen and applied.
    Choose,
    /// The last mask is applied again.
    Repeat,
}

impl AdaLoraConfig {
    /// Checks the range of every field.
    pub fn check(&self) -> Result<(), Error> {
        check_range("init_r", self.init_r as f64, 1.0, f64::from(u32::MAX))?;
        check_range("target_r", self.target_r as f64, 1.0, self.init_r as f64)?;
        check_range("delta_t", f64::from(self.delta_t), 1.0, f64::from(u32::MAX))?;
        check_range("total_step", f64::from(self.total_step), 1.0, f64::from(u32::MAX))?;
        check_range("tfinal", f64::from(self.tfinal), 0.0, f64::from(self.total_step - 1))?;
        let last_rest = f64::from(self.total_step - self.tfinal - 1);
        check_range("tinit", f64::from(self.tinit), 0.0, last_rest)?;
        check_range("beta1", self.beta1, f64::MIN_POSITIVE, 1.0 - f64::EPSILON)?;
        check_range("beta2", self.beta2, f64::MIN_POSITIVE, 1.0 - f64::EPSILON)?;
        check_range("orth_reg_weight", self.orth_reg_weight, 0.0, f64::MAX)
    }

    /// The step at which the last mask is chosen: `total_step − tfinal`, 0 if `tfinal` is longer than the run.
    pub const fn freeze_step(&self) -> u32 {
        self.total_step.saturating_sub(self.tfinal)
    }

    /// Whether [`AdaLoraAllocator::update`](super::AdaLoraAllocator::update) reads gradients at `step`.
    pub const fn reads_gradients(&self, step: u32) -> bool {
        step < self.freeze_step()
    }

    /// Total rank allowed at `step`, over `n_modules` modules, for a configuration that passed
    /// [`check`](Self::check).
    ///
    /// ```text
    /// t ≤ tinit:                 b0 = init_r · n_modules
    /// t > total_step − tfinal:   bT = target_r · n_modules
    /// between:                   ⌊(b0 − bT)·(1 − (t − tinit)/(total_step − tfinal − tinit))³ + bT⌋
    /// ```
    pub fn budget(&self, step: u32, n_modules: usize) -> usize {
        let (first, last) = (self.init_r * n_modules, self.target_r * n_modules);
        if step <= self.tinit {
            return first;
        }
        if step >= self.freeze_step() {
            // At the freeze step itself the cubic is 0, the same value.
            return last;
        }
        let length = f64::from(self.freeze_step() - self.tinit);
        let remaining = 1.0 - f64::from(step - self.tinit) / length;
        // `powf`, as Python's `**`, so that results next to an integer fall on the same side.
        ((first as f64 - last as f64) * remaining.powf(3.0) + last as f64) as usize
    }

    /// What happens to the ranks at `step`: a mask every `delta_t` steps after `tinit`, one at the freeze step,
    /// and the same one again at every later step.
    pub const fn phase(&self, step: u32) -> Phase {
        if step > self.freeze_step() {
            Phase::Repeat
        } else if step == self.freeze_step()
            || (step > self.tinit && step.is_multiple_of(self.delta_t))
        {
            Phase::Choose
        } else {
            Phase::Rest
        }
    }
}

/// Scaling of the update: `lora_alpha / (init_r + 1e-5)`, unchanged when ranks are zeroed.
pub fn adalora_scaling(lora_alpha: f64, init_r: usize) -> f64 {
    lora_alpha / (init_r as f64 + RANK_OFFSET)
}

/// Target rank whose budget is nearest to a total rank found by another method:
/// `max(1, round(total_rank / n_modules))`, halves to the even side; 1 without modules.
pub fn matched_target_rank(total_rank: usize, n_modules: usize) -> usize {
    if n_modules == 0 {
        return 1;
    }
    ((total_rank as f64 / n_modules as f64).round_ties_even() as usize).max(1)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Hyper-parameters of the golden case `train/deberta_adalora`.
    pub(in crate::adalora) const RECORDED: AdaLoraConfig = AdaLoraConfig {
        init_r: 4,
        target_r: 2,
        tinit: 4,
        tfinal: 6,
        delta_t: 3,
        total_step: 30,
        beta1: 0.85,
        beta2: 0.85,
        orth_reg_weight: 0.1,
    };

    #[test]
    fn a_freeze_step_off_the_grid_still_chooses() {
        let config = AdaLoraConfig { tfinal: 5, ..RECORDED };
        assert_eq!(config.phase(24), Phase::Choose);
        assert_eq!(config.phase(25), Phase::Choose);
        assert_eq!(config.phase(26), Phase::Repeat);
    }

    #[test]
    fn every_range_is_checked_at_its_limit() {
        assert_eq!(RECORDED.check(), Ok(()));
        let ok = [
            AdaLoraConfig { target_r: 4, ..RECORDED },
            AdaLoraConfig { tinit: 23, ..RECORDED },
            AdaLoraConfig { tinit: 0, tfinal: 29, ..RECORDED },
            AdaLoraConfig { orth_reg_weight: 0.0, ..RECORDED },
        ];
        assert!(ok.iter().all(|config| config.check().is_ok()));
        let wrong = [
            ("init_r", AdaLoraConfig { init_r: 0, ..RECORDED }),
            ("target_r", AdaLoraConfig { target_r: 5, ..RECORDED }),
            ("delta_t", AdaLoraConfig { delta_t: 0, ..RECORDED }),
            ("total_step", AdaLoraConfig { total_step: 0, ..RECORDED }),
            ("tfinal", AdaLoraConfig { tfinal: 30, ..RECORDED }),
            ("tinit", AdaLoraConfig { tinit: 24, ..RECORDED }),
            ("beta1", AdaLoraConfig { beta1: 1.0, ..RECORDED }),
            ("beta2", AdaLoraConfig { beta2: 0.0, ..RECORDED }),
            ("orth_reg_weight", AdaLoraConfig { orth_reg_weight: f64::NAN, ..RECORDED }),
        ];
        for (field, config) in wrong {
            assert!(
                matches!(config.check(), Err(Error::OutOfRange { name, .. }) if name == field),
                "{field}"
            );
        }
    }

    #[test]
    fn matched_ranks_round_halves_to_even_and_stay_positive() {
        // 1094/72 = 15.2; 36/72 = 0.5 → 0 → 1; 180/72 = 2.5 → 2; 252/72 = 3.5 → 4.
        let totals = [1094, 36, 0, 180, 252];
        assert_eq!(totals.map(|total| matched_target_rank(total, 72)), [15, 1, 1, 2, 4]);
        assert_eq!(matched_target_rank(3, 0), 1);
    }

    #[test]
    fn scaling_uses_the_initial_rank() {
        assert!((adalora_scaling(8.0, 4) - 1.999_995_000_012_5).abs() < 1e-12);
    }
}
