//! Settings whose every range holds.

use std::ops::Deref;

use lrvd_burn::adapter::Prior;
use lrvd_burn::train::DrawPolicy;
use lrvd_core::family::VariationalFamily;
use lrvd_core::schedule::KlDivisor;
use serde::{Deserialize, Serialize};

use super::methods::check_hyper;
use super::range::{POSITIVE, count_in_range, in_range, positive_to};
use super::{ExperimentConfig, KlWeight, PredictionDraws, SettingError, Training};

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
    type Error = SettingError;

    fn try_from(config: ExperimentConfig) -> Result<Self, SettingError> {
        config.validate()
    }
}

impl ExperimentConfig {
    pub fn validate(self) -> Result<ValidConfig, SettingError> {
        self.check_lengths()?;
        self.check_adapter()?;
        self.check_objective()?;
        self.check_optimizer()?;
        self.check_ranks()?;
        self.check_prediction()?;
        self.methods.check()?;
        Ok(ValidConfig(self))
    }

    fn check_lengths(&self) -> Result<(), SettingError> {
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
            return Err(SettingError::Pair {
                key: "accumulation",
                value: self.accumulation.to_string(),
                reason: format!("it does not divide `batch_size`, which is {}", self.batch_size),
            });
        }
        in_range("holdout", self.holdout, 0.0..=0.5)?;
        self.draws.iter().try_for_each(|&draws| count_in_range("draws", draws, 1..=MAX_DRAWS))
    }

    fn check_prediction(&self) -> Result<(), SettingError> {
        let DrawPolicy { cascade, tolerance, antithetic, .. } = self.prediction;
        let within = |key, value: Option<f64>, range| {
            value.map_or(Ok(()), |value| in_range(key, value, range))
        };
        within("prediction.cascade", cascade, DrawPolicy::CASCADE)?;
        within("prediction.tolerance", tolerance, DrawPolicy::TOLERANCE)?;
        if antithetic && self.prediction_draws == PredictionDraws::Activation {
            return Err(SettingError::Pair {
                key: "prediction.antithetic",
                value: antithetic.to_string(),
                reason: "it is for draws of weights, and `prediction_draws` is `activation`"
                    .to_owned(),
            });
        }
        Ok(())
    }

    fn check_adapter(&self) -> Result<(), SettingError> {
        count_in_range("initial_rank", self.initial_rank, 1..=65_536)?;
        in_range("lora_alpha", self.lora_alpha, POSITIVE)?;
        in_range("adapter_dropout", self.adapter_dropout, 0.0..1.0)?;
        in_range("lora_b_bound", self.lora_b_bound, 0.0..=1.0)?;
        in_range("log_variance.initial", self.log_variance.initial, -30.0..=10.0)
    }

    fn check_objective(&self) -> Result<(), SettingError> {
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
            return Err(SettingError::Pair {
                key: "family",
                value: format!("`{}`", self.family.name()),
                reason: "its variance is tied to the means, so that `prior` must be log-uniform"
                    .to_owned(),
            });
        }
        Ok(())
    }

    /// What a search for ranks needs of the other settings.
    fn check_search(&self) -> Result<(), SettingError> {
        self.rank_search.check()?;
        if self.kl_divisor == KlDivisor::NTrain {
            return Ok(());
        }
        let (key, value) = ("kl_weight", "auto".to_owned());
        let reason =
            "`rank_search.noise` weighs the divergence by the evidence bound: set `kl_divisor=n_train`"
                .to_owned();
        Err(SettingError::Pair { key, value, reason })
    }

    fn check_optimizer(&self) -> Result<(), SettingError> {
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

    fn check_ranks(&self) -> Result<(), SettingError> {
        in_range("prune.start", self.prune.start, 0.0..=1.0)?;
        in_range("prune.every", self.prune.every, 1e-9..=1.0)?;
        in_range("prune.end", self.prune.end, 0.0..=1.0)?;
        in_range("prune.log_alpha_threshold", self.prune.log_alpha_threshold, -50.0..=50.0)?;
        if self.prune.min_rank > self.initial_rank {
            return Err(SettingError::Pair {
                key: "prune.min_rank",
                value: self.prune.min_rank.to_string(),
                reason: format!("it is above `initial_rank`, which is {}", self.initial_rank),
            });
        }
        in_range("adalora.initial", self.adalora.initial, 0.0..=1.0)?;
        in_range("adalora.last", self.adalora.last, 0.0..=1.0)?;
        in_range("adalora.every", self.adalora.every, 1e-9..=1.0)?;
        in_range("adalora.orthogonal_weight", self.adalora.orthogonal_weight, 0.0..=1e6)?;
        in_range("adalora.beta", self.adalora.beta, 0.0..=1.0)
    }
}

impl ValidConfig {
    pub fn check_use(&self, training: Training) -> Result<(), SettingError> {
        if training == Training::Classifier {
            return Ok(());
        }
        let refused = |key, value: &str, reason: &str| {
            let (value, reason) = (value.to_owned(), reason.to_owned());
            Err(SettingError::Pair { key, value, reason })
        };
        if self.wording.given().is_some() {
            return refused("wording", "set", "it asks for a class, and texts have none");
        }
        if self.prediction_draws != PredictionDraws::Weights {
            let value = format!("{:?}", self.prediction_draws).to_lowercase();
            return refused("prediction_draws", &value, "a text is answered by draws of weights");
        }
        let spared = DrawPolicy { tokens_per_pass: 0, ..self.prediction };
        if spared != (DrawPolicy { tokens_per_pass: 0, ..DrawPolicy::default() }) {
            return refused("prediction", "set", "sparing draws is for classifiers");
        }
        Ok(())
    }

    pub fn with(&self, change: impl FnOnce(&mut ExperimentConfig)) -> Result<Self, SettingError> {
        let mut config = self.0.clone();
        change(&mut config);
        config.validate()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::settings::Preset;

    #[test]
    fn what_used_to_be_taken_silently_is_refused_by_name() {
        let refused = |change: &dyn Fn(&mut ExperimentConfig), wanted: &str| {
            let mut config = Preset::ConstantWeight.config();
            change(&mut config);
            assert_eq!(config.validate().unwrap_err().to_string(), wanted);
        };
        refused(
            &|c| c.optimizer.beta1 = 2.0,
            "setting `optimizer.beta1` is 2, wanted at least 0 and below 1",
        );
        refused(
            &|c| c.optimizer.beta1 = 1.0,
            "setting `optimizer.beta1` is 1, wanted at least 0 and below 1",
        );
        refused(
            &|c| c.optimizer.beta2 = -0.1,
            "setting `optimizer.beta2` is -0.1, wanted at least 0 and below 1",
        );
        refused(
            &|c| c.optimizer.epsilon = -1e-8,
            "setting `optimizer.epsilon` is -1e-8, wanted at least 0",
        );
        refused(
            &|c| c.head_weight_decay = -1.0,
            "setting `head_weight_decay` is -1, wanted at least 0",
        );
        refused(
            &|c| c.prune.min_rank = 17,
            "setting `prune.min_rank` is 17: it is above `initial_rank`, which is 16",
        );
        refused(
            &|c| c.accumulation = 5,
            "setting `accumulation` is 5: it does not divide `batch_size`, which is 32",
        );
        refused(&|c| c.gradient_clip = Some(0.0), "setting `gradient_clip` is 0, wanted above 0");
        refused(
            &|c| c.methods.laplace.holdout = 1.0,
            "setting `methods.laplace.holdout` is 1, wanted 0.01 to 0.9",
        );
        refused(
            &|c| c.prediction.cascade = Some(1.5),
            "setting `prediction.cascade` is 1.5, wanted 0 to 1",
        );
        refused(
            &|c| c.prediction.tolerance = Some(0.0),
            "setting `prediction.tolerance` is 0, wanted 1e-6 to 0.5",
        );
        refused(
            &|c| {
                c.prediction.antithetic = true;
                c.prediction_draws = PredictionDraws::Activation;
            },
            "setting `prediction.antithetic` is true: it is for draws of weights, and `prediction_draws` is \
             `activation`",
        );
        refused(
            &|c| c.prior = Prior::Gaussian { std: 0.0 },
            "setting `prior.gaussian.std` is 0, wanted above 0 and at most 1000000",
        );
    }

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
}
