//! Settings of the variants of `BayesLoRA`.

use lrvd_burn::adapter::ArdHyper;
use lrvd_burn::schema::words;
use lrvd_core::kl::ArdScales;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::settings::range::{in_range, positive_to};

/// Settings of `lrvd-nts`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NoiseToSignalSettings {
    /// Initial `ln α`, -30 to 10 (-4).
    pub initial: f64,
    /// Rate of `ln α`, at least 0; without one, the rate that reaches the threshold within the run.
    pub learning_rate: Option<f64>,
}

impl Default for NoiseToSignalSettings {
    fn default() -> Self {
        Self { initial: -4.0, learning_rate: None }
    }
}

impl NoiseToSignalSettings {
    pub(super) fn check(&self, key: &str) -> Result<()> {
        in_range(&format!("{key}.initial"), self.initial, -30.0..=10.0)?;
        let rate = |rate| in_range(&format!("{key}.learning_rate"), rate, 0.0..=1e3);
        self.learning_rate.map_or(Ok(()), rate)
    }
}

/// Settings of `lrvd-ard`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ArdSettings {
    /// One scale per rank for A and B, or separate ones (`shared`).
    #[schemars(schema_with = "words::<ArdScales>")]
    pub scales: ArdScales,
    /// How the scales come about: in closed form (`empirical-bayes`), or by an inverse-gamma law.
    pub hyper: ArdHyper,
}

impl ArdSettings {
    pub(super) fn check(&self, key: &str) -> Result<()> {
        check_hyper(&format!("{key}.hyper"), self.hyper)
    }
}

/// Validates the inverse-gamma parameters.
pub(in crate::settings) fn check_hyper(key: &str, hyper: ArdHyper) -> Result<()> {
    match hyper {
        ArdHyper::EmpiricalBayes => Ok(()),
        ArdHyper::InverseGamma { shape, rate } => {
            in_range(&format!("{key}.shape"), shape, positive_to(1e6))?;
            in_range(&format!("{key}.rate"), rate, positive_to(1e6))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::range::OutOfRange;

    #[test]
    fn settings_out_of_range_are_refused() {
        let hyper = ArdHyper::InverseGamma { shape: 0.0, rate: 1.0 };
        let nts = NoiseToSignalSettings { learning_rate: Some(-1.0), ..Default::default() };
        for refused in [
            nts.check("methods.lrvd-nts"),
            ArdSettings { hyper, ..ArdSettings::default() }.check("methods.lrvd-ard"),
        ] {
            assert!(refused.is_err_and(|error| error.is::<OutOfRange>()));
        }
        assert!(serde_json::from_str::<NoiseToSignalSettings>(r#"{"start": -1.0}"#).is_err());
    }
}
