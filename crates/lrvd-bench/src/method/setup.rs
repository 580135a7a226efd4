//! What methods share when they are set up: settings, ranges, adapters, rates, draws.

use lrvd_burn::adapter::{AdapterConfig, AdapterKind};
use lrvd_burn::optimizer::ParameterGroups;
use lrvd_core::error::ParameterError;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{MethodError, RankRequest};
use crate::settings::{ExperimentConfig, SettingError};

/// The settings of the method called `key`: `base`, with what the experiment says of it put over.
///
/// For methods that share a settings type and differ in its defaults; a single one reads
/// [`ExperimentConfig::method`].
///
/// # Errors
///
/// [`SettingError::Method`] for a key or a value that the method does not know.
pub(super) fn settings_over<T: Serialize + DeserializeOwned>(
    config: &ExperimentConfig,
    key: &str,
    base: T,
) -> Result<T, SettingError> {
    let Some(given) = config.methods.get(key) else { return Ok(base) };
    let failed = |source| SettingError::Method { method: key.to_owned(), source };
    let mut value = serde_json::to_value(base).map_err(failed)?;
    match (value.as_object_mut(), given.as_object()) {
        (Some(all), Some(given)) => all.extend(given.clone()),
        _ => value = given.clone(),
    }
    serde_json::from_value(value).map_err(failed)
}

/// Refuses a setting outside `low..=high`.
///
/// # Errors
///
/// [`ParameterError::OutOfRange`] naming it.
pub(super) fn in_range(
    name: &'static str,
    value: f64,
    low: f64,
    high: f64,
) -> Result<(), MethodError> {
    if value >= low && value <= high {
        return Ok(());
    }
    Err(ParameterError::OutOfRange { name, value, low, high }.into())
}

/// The adapter of `kind` with the experiment's scaling and dropout, at the rank asked for.
pub(super) fn adapter(
    config: &ExperimentConfig,
    kind: AdapterKind,
    request: RankRequest,
) -> AdapterConfig {
    let rank = match request {
        RankRequest::Initial => config.initial_rank,
        RankRequest::Average(rank) => rank,
    };
    AdapterConfig { kind, rank, lora_alpha: config.lora_alpha, dropout: config.adapter_dropout }
}

/// The rates of a method whose noise parameters learn `noise_factor` times as fast as its means, and
/// whose means decay as `BayesLoRA`'s: its prior does what decay would.
pub(super) fn noisy_groups(config: &ExperimentConfig, noise_factor: f64) -> ParameterGroups {
    let mut groups = config.groups(true);
    groups.log_variance.learning_rate = config.learning_rate * noise_factor;
    groups
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde::Deserialize;
    use serde_json::json;

    use super::*;
    use crate::settings::Preset;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Two {
        first: f64,
        second: Option<f64>,
    }

    #[test]
    fn what_is_said_goes_over_the_defaults_of_the_entry() {
        let base = || Two { first: 1.0, second: Some(2.0) };
        let mut config = Preset::Default.config();
        assert_eq!(settings_over(&config, "two", base()).unwrap(), base());
        let mut say = |value| {
            config.methods.insert("two".to_owned(), value);
            settings_over(&config, "two", base())
        };
        let wanted = Two { first: 3.0, second: None };
        assert_eq!(say(json!({ "first": 3.0, "second": null })).unwrap(), wanted);
        for wrong in [json!({ "third": 1.0 }), json!({ "first": "x" }), json!(4)] {
            let failed = say(wrong).unwrap_err();
            assert!(matches!(failed, SettingError::Method { method, .. } if method == "two"));
        }
    }

    #[test]
    fn ranges_hold_at_their_limits() {
        for inside in [0.5, 0.0, 1.0] {
            assert!(in_range("v", inside, 0.0, 1.0).is_ok());
        }
        for outside in [-f64::MIN_POSITIVE, 1.0 + f64::EPSILON, f64::NAN] {
            let failed = in_range("v", outside, 0.0, 1.0).unwrap_err();
            assert!(matches!(failed, MethodError::Parameter(_)), "{failed}");
        }
    }
}
