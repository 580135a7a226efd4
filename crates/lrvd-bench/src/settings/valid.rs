//! Ranges of settings, and settings whose every range holds.

use std::ops::{Bound, Deref, RangeBounds};

use anyhow::{anyhow, bail};
use lrvd_burn::adapter::Prior;
use lrvd_burn::train::DrawPolicy;
use lrvd_core::family::VariationalFamily;
use lrvd_core::schedule::KlDivisor;
use serde::{Deserialize, Serialize};

use super::methods::check_hyper;
use super::{ExperimentConfig, KlWeight, PredictionDraws, Training};
use crate::error::{Error, Result};

/// Most draws that an answer is averaged over. The error of the average falls by their square root, and all of them are kept
/// until it is taken.
pub const MAX_DRAWS: usize = 10_000;

/// Settings whose every range holds, and the only ones that can be run; read like the
/// [`ExperimentConfig`] that they are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "ExperimentConfig", into = "ExperimentConfig")]
pub struct ValidConfig(ExperimentConfig);

impl Deref for ValidConfig {
    type Target = ExperimentConfig;

    fn deref(&self) -> &ExperimentConfig {
        &self.0
    }
}

impl From<ValidConfig> for ExperimentConfig {
    fn from(config: ValidConfig) -> Self {
        config.0
    }
}

impl TryFrom<ExperimentConfig> for ValidConfig {
    type Error = Error;

    fn try_from(config: ExperimentConfig) -> Result<Self> {
        config.validate()
    }
}

impl ExperimentConfig {
    pub fn validate(self) -> Result<ValidConfig> {
        self.check_lengths()?;
        self.check_adapter()?;
        self.check_objective()?;
        self.check_optimizer()?;
        self.check_ranks()?;
        self.check_prediction()?;
        self.methods.check()?;
        Ok(ValidConfig(self))
    }

    fn check_lengths(&self) -> Result<()> {
        let count = |key, value: usize| count_in_range(key, value, 1..=1_000_000_000);
        count("steps", self.steps)?;
        self.train_rows.map_or(Ok(()), |rows| count("train_rows", rows))?;
        self.validation_rows.map_or(Ok(()), |rows| count("validation_rows", rows))?;
        count("batch_size", self.batch_size)?;
        count("evaluation_batch_size", self.evaluation_batch_size)?;
        count("evaluate_every", self.evaluate_every)?;
        if let Some(patience) = self.patience {
            count("patience", patience)?;
        }
        count_in_range("max_length", self.max_length, 8..=65_536)?;
        count("accumulation", self.accumulation)?;
        if !self.batch_size.is_multiple_of(self.accumulation) {
            bail!(
                "setting `accumulation` is {value}: it does not divide `batch_size`, which is {}",
                self.batch_size,
                value = self.accumulation
            );
        }
        in_range("holdout", self.holdout, 0.0..=0.5)?;
        self.draws.iter().try_for_each(|&draws| count_in_range("draws", draws, 1..=MAX_DRAWS))
    }

    fn check_prediction(&self) -> Result<()> {
        let DrawPolicy { cascade, tolerance, antithetic, .. } = self.prediction;
        let within = |key, value: Option<f64>, range| {
            value.map_or(Ok(()), |value| in_range(key, value, range))
        };
        within("prediction.cascade", cascade, DrawPolicy::CASCADE)?;
        within("prediction.tolerance", tolerance, DrawPolicy::TOLERANCE)?;
        if antithetic && self.prediction_draws == PredictionDraws::Activation {
            bail!(
                "setting `prediction.antithetic` is {antithetic}: it is for draws of weights, and \
                 `prediction_draws` is `activation`"
            );
        }
        Ok(())
    }

    fn check_adapter(&self) -> Result<()> {
        count_in_range("initial_rank", self.initial_rank, 1..=65_536)?;
        in_range("lora_alpha", self.lora_alpha, POSITIVE)?;
        in_range("adapter_dropout", self.adapter_dropout, 0.0..1.0)?;
        in_range("lora_b_bound", self.lora_b_bound, 0.0..=1.0)?;
        in_range("log_variance.initial", self.log_variance.initial, -30.0..=10.0)
    }

    fn check_objective(&self) -> Result<()> {
        match self.kl_weight {
            KlWeight::Fixed(weight) => in_range("kl_weight", weight, 0.0..=1e6)?,
            KlWeight::Auto => self.check_search()?,
        }
        in_range("kl_warmup", self.kl_warmup, 0.0..=1.0)?;
        match self.prior {
            Prior::LogUniform => return Ok(()),
            Prior::Ard { hyper, .. } => check_hyper("prior.ard.hyper", hyper)?,
            Prior::Gaussian { std } => in_range("prior.gaussian.std", std, positive_to(1e6))?,
        }
        if self.family == VariationalFamily::NoiseToSignal {
            bail!(
                "setting `family` is `{}`: its variance is tied to the means, so that `prior` must be log-uniform",
                self.family.name()
            );
        }
        Ok(())
    }

    fn check_search(&self) -> Result<()> {
        self.rank_search.check()?;
        if self.kl_divisor == KlDivisor::NTrain {
            return Ok(());
        }
        bail!(
            "setting `kl_weight` is auto: `rank_search.noise` weighs the divergence by the evidence bound: \
             set `kl_divisor=n_train`"
        )
    }

    fn check_optimizer(&self) -> Result<()> {
        in_range("learning_rate", self.learning_rate, 0.0..=1e3)?;
        in_range("head_learning_rate", self.head_learning_rate, 0.0..=1e3)?;
        let factor = self.log_variance.learning_rate_factor;
        in_range("log_variance.learning_rate_factor", factor, 0.0..=1e4)?;
        in_range("baseline_weight_decay", self.baseline_weight_decay, 0.0..)?;
        in_range("adapter_weight_decay", self.adapter_weight_decay, 0.0..)?;
        in_range("head_weight_decay", self.head_weight_decay, 0.0..)?;
        in_range("optimizer.beta1", self.optimizer.beta1, 0.0..1.0)?;
        in_range("optimizer.beta2", self.optimizer.beta2, 0.0..1.0)?;
        in_range("optimizer.epsilon", self.optimizer.epsilon, 0.0..)?;
        in_range("warmup_ratio", self.warmup_ratio, 0.0..=1.0)?;
        self.gradient_clip.map_or(Ok(()), |clip| in_range("gradient_clip", clip, POSITIVE))
    }

    fn check_ranks(&self) -> Result<()> {
        in_range("prune.start", self.prune.start, 0.0..=1.0)?;
        in_range("prune.every", self.prune.every, 1e-9..=1.0)?;
        in_range("prune.end", self.prune.end, 0.0..=1.0)?;
        in_range("prune.log_alpha_threshold", self.prune.log_alpha_threshold, -50.0..=50.0)?;
        if self.prune.min_rank > self.initial_rank {
            bail!(
                "setting `prune.min_rank` is {}: it is above `initial_rank`, which is {}",
                self.prune.min_rank,
                self.initial_rank
            );
        }
        in_range("adalora.initial", self.adalora.initial, 0.0..=1.0)?;
        in_range("adalora.last", self.adalora.last, 0.0..=1.0)?;
        in_range("adalora.every", self.adalora.every, 1e-9..=1.0)?;
        in_range("adalora.orthogonal_weight", self.adalora.orthogonal_weight, 0.0..=1e6)?;
        in_range("adalora.beta", self.adalora.beta, 0.0..=1.0)
    }
}

impl ValidConfig {
    pub fn check_use(&self, training: Training) -> Result<()> {
        if training == Training::Classifier {
            return Ok(());
        }
        let rejected =
            |key, value: &str, reason: &str| Err(anyhow!("setting `{key}` is {value}: {reason}"));
        if self.wording.given().is_some() {
            return rejected("wording", "set", "it asks for a class, and texts have none");
        }
        if self.prediction_draws != PredictionDraws::Weights {
            let value = format!("{:?}", self.prediction_draws).to_lowercase();
            return rejected("prediction_draws", &value, "a text is answered by draws of weights");
        }
        let spared = DrawPolicy { tokens_per_pass: 0, ..self.prediction };
        if spared != (DrawPolicy { tokens_per_pass: 0, ..DrawPolicy::default() }) {
            return rejected("prediction", "set", "sparing draws is for classifiers");
        }
        Ok(())
    }

    pub fn with(&self, change: impl FnOnce(&mut ExperimentConfig)) -> Result<Self> {
        let mut config = self.0.clone();
        change(&mut config);
        config.validate()
    }
}

/// A number is out of its range; the schema of the settings takes the ranges from it.
#[derive(Debug, thiserror::Error)]
#[error("setting `{key}` is {value}, expected {}", words(*low, *high))]
pub(super) struct OutOfRange {
    pub key: String,
    pub value: String,
    pub low: Bound<f64>,
    pub high: Bound<f64>,
}

/// Above 0, without an upper end.
pub(super) const POSITIVE: (Bound<f64>, Bound<f64>) = (Bound::Excluded(0.0), Bound::Unbounded);

/// Above 0, up to `high`.
pub(super) const fn positive_to(high: f64) -> (Bound<f64>, Bound<f64>) {
    (Bound::Excluded(0.0), Bound::Included(high))
}

/// Rejects a number outside `range`, and one that is not finite.
pub(super) fn in_range(key: &str, value: f64, range: impl RangeBounds<f64>) -> Result<()> {
    if value.is_finite() && range.contains(&value) {
        return Ok(());
    }
    let (low, high) = (range.start_bound().cloned(), range.end_bound().cloned());
    Err(OutOfRange { key: key.to_owned(), value: number(value), low, high }.into())
}

pub(super) fn count_in_range(
    key: &str,
    value: usize,
    range: impl RangeBounds<usize>,
) -> Result<()> {
    if range.contains(&value) {
        return Ok(());
    }
    let bound = |bound: Bound<&usize>| bound.map(|&count| count as f64);
    let (low, high) = (bound(range.start_bound()), bound(range.end_bound()));
    Err(OutOfRange { key: key.to_owned(), value: value.to_string(), low, high }.into())
}

/// A number in few digits: a power of ten where it is very large or very small.
fn number(value: f64) -> String {
    let plain = value == 0.0 || !value.is_finite() || (1e-5..1e7).contains(&value.abs());
    if plain { value.to_string() } else { format!("{value:e}") }
}

fn words(low: Bound<f64>, high: Bound<f64>) -> String {
    match (low.map(number), high.map(number)) {
        (Bound::Included(low), Bound::Included(high)) => format!("{low} to {high}"),
        (Bound::Unbounded, Bound::Unbounded) => "a finite number".to_owned(),
        (low, high) => {
            let low = match low {
                Bound::Included(low) => format!("at least {low}"),
                Bound::Excluded(low) => format!("above {low}"),
                Bound::Unbounded => String::new(),
            };
            let high = match high {
                Bound::Included(high) => format!("at most {high}"),
                Bound::Excluded(high) => format!("below {high}"),
                Bound::Unbounded => String::new(),
            };
            let and = if low.is_empty() || high.is_empty() { "" } else { " and " };
            format!("{low}{and}{high}")
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::settings::Preset;

    #[test]
    fn a_file_with_settings_out_of_range_is_not_read() {
        let good = Preset::ConstantWeight.config().validate().unwrap();
        let mut json = serde_json::to_value(&good).unwrap();
        assert_eq!(serde_json::from_value::<ValidConfig>(json.clone()).unwrap(), good);
        json["optimizer"]["beta1"] = 2.0.into();
        let error = serde_json::from_value::<ValidConfig>(json).unwrap_err().to_string();
        assert!(error.contains("`optimizer.beta1`"), "{error}");
    }

    #[test]
    fn only_changed_settings_of_methods_are_written() {
        let config = Preset::DefaultReasoning.config().validate().unwrap();
        assert_eq!(serde_json::to_value(&config).unwrap()["methods"], serde_json::json!({}));
        // The presets of GLUE have BLoB's rate for it.
        let glue = serde_json::to_value(Preset::ConstantWeight.config()).unwrap();
        assert_eq!(glue["methods"].as_object().unwrap().keys().collect::<Vec<_>>(), ["blob"]);
        assert_eq!(glue["methods"]["blob"]["kl_learning_rate"], 0.002);
        let changed = config.with(|c| c.methods.mcd.dropout = 0.2).unwrap();
        let json = serde_json::to_value(&changed).unwrap();
        assert_eq!(json["methods"], serde_json::json!({ "mcd": { "dropout": 0.2 } }));
        assert_eq!(serde_json::from_value::<ValidConfig>(json).unwrap(), changed);
    }

    #[test]
    fn ranges_hold_at_their_limits() {
        for inside in [0.5, 0.0, 1.0] {
            assert!(in_range("v", inside, 0.0..=1.0).is_ok());
        }
        for outside in [-f64::MIN_POSITIVE, 1.0 + f64::EPSILON, f64::NAN, f64::INFINITY] {
            let failed = in_range("v", outside, 0.0..=1.0).unwrap_err();
            assert!(failed.is::<OutOfRange>(), "{failed}");
        }
        assert!(in_range("v", 0.0, POSITIVE).is_err() && in_range("v", 1e300, POSITIVE).is_ok());
    }

    #[test]
    fn a_range_is_said_in_few_words() {
        for (failed, expected) in [
            (in_range("a.b", -1.0, 0.0..=1.0), "setting `a.b` is -1, expected 0 to 1"),
            (in_range("a", 1.0, 0.0..1.0), "setting `a` is 1, expected at least 0 and below 1"),
            (in_range("a", 0.0, POSITIVE), "setting `a` is 0, expected above 0"),
            (
                in_range("a", 7.0, positive_to(2.0)),
                "setting `a` is 7, expected above 0 and at most 2",
            ),
            (in_range("a", f64::NAN, 0.0..), "setting `a` is NaN, expected at least 0"),
            (in_range("a", -1e-300, 0.0..=1e12), "setting `a` is -1e-300, expected 0 to 1e12"),
            (count_in_range("a", 0, 1..), "setting `a` is 0, expected at least 1"),
        ] {
            assert_eq!(failed.unwrap_err().to_string(), expected);
        }
    }
}
