//! Settings of the baselines on plain LoRA.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::settings::range::{POSITIVE, count_in_range, in_range, positive_to};

/// Settings of MAP.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MapSettings {
    /// Decoupled decay of the factors, at least 0; without one, the decay that takes a factor without a gradient to
    /// `1/e` within the run. The published 1e-5 leaves all but some millionths. Unused with `l2_in_loss`.
    pub weight_decay: Option<f64>,
    /// Whether the prior is in the loss instead (false).
    pub l2_in_loss: bool,
    /// Precision of the prior, at least 0 (1); used with `l2_in_loss`.
    pub precision: f64,
}

impl Default for MapSettings {
    fn default() -> Self {
        Self { weight_decay: None, l2_in_loss: false, precision: 1.0 }
    }
}

impl MapSettings {
    pub(super) fn check(&self, key: &str) -> Result<()> {
        let decay = |decay| in_range(&format!("{key}.weight_decay"), decay, 0.0..=1e6);
        self.weight_decay.map_or(Ok(()), decay)?;
        in_range(&format!("{key}.precision"), self.precision, 0.0..=1e12)
    }
}

/// Settings of MC dropout.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct McDropoutSettings {
    /// Drop probability of the adapter's input, above 0 and below 1 (0.1).
    pub dropout: f64,
}

impl Default for McDropoutSettings {
    fn default() -> Self {
        Self { dropout: 0.1 }
    }
}

impl McDropoutSettings {
    pub(super) fn check(self, key: &str) -> Result<()> {
        let inside = (POSITIVE.0, std::ops::Bound::Excluded(1.0));
        in_range(&format!("{key}.dropout"), self.dropout, inside)
    }
}

/// Settings of LoRA-Ensemble.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LoraEnsembleSettings {
    /// Adapters side by side, 1 to 4096 (4).
    pub members: usize,
    /// Gain of the initialisation of A, above 0 (10).
    pub gain: f64,
    /// Rate of the factors, published with that gain and a scaling of 1, at least 0 (1e-4).
    pub learning_rate: f64,
}

impl Default for LoraEnsembleSettings {
    fn default() -> Self {
        Self { members: 4, gain: 10.0, learning_rate: 1e-4 }
    }
}

impl LoraEnsembleSettings {
    pub(super) fn check(&self, key: &str) -> Result<()> {
        count_in_range(&format!("{key}.members"), self.members, 1..=4096)?;
        in_range(&format!("{key}.gain"), self.gain, positive_to(1e6))?;
        in_range(&format!("{key}.learning_rate"), self.learning_rate, 0.0..=1e3)
    }
}
