//! The settings of a run that do not depend on its method.

use lrvd_core::error::{above, check_range};
use lrvd_core::schedule::{LrSchedule, RateCourse};
use serde::{Deserialize, Serialize};

use crate::optimizer::{AdamWConfig, GroupRates, ParameterGroups};
use crate::sampling::check_seed;

/// Settings of a run.
///
/// # Examples
///
/// ```
/// use lrvd_burn::TrainConfig;
///
/// let config: TrainConfig = serde_json::from_str(r#"{"steps": 500, "patience": 3}"#)?;
/// assert_eq!((config.steps, config.patience, config.seed), (500, Some(3), 0));
/// // The rates rise in 6 % of the steps, and then fall to 0.
/// let schedule = config.check()?;
/// assert!(schedule.factor(499) < 0.01 && schedule.factor(30) > 0.99);
/// assert!(TrainConfig { steps: 0, ..config }.check().is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TrainConfig {
    /// Optimizer steps, 1 to 10⁹.
    pub steps: usize,
    /// Seed of initial values, noise and dropout, at most [`MAX_SEED`](crate::sampling::MAX_SEED).
    pub seed: u64,
    /// Learning rates and decays by group, at least 0, before the method changes them.
    pub groups: ParameterGroups,
    /// `AdamW`'s constants: `beta1`, `beta2` in [0, 1), `epsilon` at least 0.
    pub optimizer: AdamWConfig,
    /// Share of the steps with a rising rate, 0 to 1.
    pub warmup_ratio: f64,
    /// Course of the rates after that.
    pub schedule: RateCourse,
    /// Learning rate of the factor B as a multiple of that of A, at least 0: LoRA+ (Hayou et al. 2024, arXiv:2402.12354).
    pub lora_plus_ratio: f64,
    /// Largest global gradient norm, above 0; `None` never clips.
    pub gradient_clip: Option<f64>,
    /// `true` for the model's own dropout in training; that of adapters follows their setting.
    pub model_dropout: bool,
    /// `true` trains a layer between encoder and head with the head.
    pub train_pooler: bool,
    /// Steps between evaluations, and between checkpoints, at least 1.
    pub evaluate_every: usize,
    /// The run ends early after as many evaluations, at least 1, whose negative log-likelihood (where there is none, whose
    /// score) is no better than that of one before them; `None` never ends it. Schedules stay those of `steps`.
    pub patience: Option<usize>,
}

impl Default for TrainConfig {
    fn default() -> Self {
        let rates = |learning_rate, weight_decay| GroupRates { learning_rate, weight_decay };
        Self {
            steps: 1000,
            seed: 0,
            groups: ParameterGroups {
                adapter: rates(1e-3, 0.0),
                log_variance: rates(1e-3, 0.0),
                pooler: rates(1e-3, 1e-2),
                head: rates(1e-2, 1e-2),
                backbone: rates(1e-3, 1e-2),
            },
            optimizer: AdamWConfig::default(),
            warmup_ratio: 0.06,
            schedule: RateCourse::Linear,
            lora_plus_ratio: 1.0,
            gradient_clip: Some(1.0),
            model_dropout: true,
            train_pooler: true,
            evaluate_every: 200,
            patience: None,
        }
    }
}

impl TrainConfig {
    /// Checks every range, and returns the factor of every learning rate by step.
    ///
    /// # Errors
    ///
    /// [`OutOfRange`](lrvd_core::Error::OutOfRange) of the first setting that is.
    pub fn check(&self) -> Result<LrSchedule, lrvd_core::Error> {
        check_range("steps", self.steps, 1..=1_000_000_000)?;
        check_seed(self.seed)?;
        check_range("evaluate_every", self.evaluate_every, 1..=1_000_000_000)?;
        check_range("patience", self.patience.unwrap_or(1), 1..=1_000_000_000)?;
        check_range("warmup_ratio", self.warmup_ratio, 0.0..=1.0)?;
        check_range("lora_plus_ratio", self.lora_plus_ratio, 0.0..=1e4)?;
        if let Some(clip) = self.gradient_clip {
            check_range("gradient_clip", clip, above(0.0))?;
        }
        self.optimizer.check()?;
        self.groups.check()?;
        let warmup = (self.warmup_ratio * self.steps as f64).floor() as u32;
        LrSchedule::new(self.schedule, warmup, self.steps as u32)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    type Change = fn(&mut TrainConfig);

    #[test]
    fn every_setting_out_of_range_is_named() {
        TrainConfig::default().check().unwrap();
        let wrong: [(&str, Change); 14] = [
            ("seed", |c| c.seed = 1 << 40),
            ("patience", |c| c.patience = Some(0)),
            ("steps", |c| c.steps = 0),
            ("evaluate_every", |c| c.evaluate_every = 0),
            ("warmup_ratio", |c| c.warmup_ratio = 1.5),
            ("gradient_clip", |c| c.gradient_clip = Some(0.0)),
            ("optimizer.beta1", |c| c.optimizer.beta1 = 2.0),
            ("optimizer.beta1", |c| c.optimizer.beta1 = 1.0),
            ("optimizer.beta2", |c| c.optimizer.beta2 = -0.1),
            ("optimizer.epsilon", |c| c.optimizer.epsilon = -1e-8),
            ("adapter.learning_rate", |c| c.groups.adapter.learning_rate = -1.0),
            ("head.weight_decay", |c| c.groups.head.weight_decay = -0.1),
            ("log_variance.learning_rate", |c| c.groups.log_variance.learning_rate = f64::NAN),
            ("pooler.learning_rate", |c| c.groups.pooler.learning_rate = f64::INFINITY),
        ];
        for (expected, change) in wrong {
            let mut config = TrainConfig::default();
            change(&mut config);
            match config.check() {
                Err(lrvd_core::Error::OutOfRange { name, .. }) => assert_eq!(name, expected),
                other => panic!("{expected}: {other:?}"),
            }
        }
    }
}
