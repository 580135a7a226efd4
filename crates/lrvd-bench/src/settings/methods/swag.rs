//! Settings of SWAG-LoRA.

use lrvd_core::baselines::swag::MAX_DEVIATIONS;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::settings::range::{count_in_range, in_range, positive_to};

/// Settings of SWAG-LoRA.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SwagSettings {
    /// Share of the steps before the tail, 0 to 1 (8 of 15 epochs).
    pub start: f64,
    /// Share of the steps between collections, above 0, to 1 (an epoch of 15).
    pub every: f64,
    /// The tail's rate as a share of the peak rate, above 0, to 10 (0.1).
    pub learning_rate_factor: f64,
    /// Share of the steps over which the rate goes there in a line, 0 to 1 (5 epochs of 15).
    pub anneal: f64,
    /// Deviations kept, `K`, 2 to 1000 (5).
    pub deviations: usize,
    /// Share of the covariance that draws have, 0 to 100 (1).
    pub scale: f64,
}

impl Default for SwagSettings {
    fn default() -> Self {
        Self {
            start: 8.0 / 15.0,
            every: 1.0 / 15.0,
            learning_rate_factor: 0.1,
            anneal: 5.0 / 15.0,
            deviations: MAX_DEVIATIONS,
            scale: 1.0,
        }
    }
}

impl SwagSettings {
    pub(super) fn check(&self, key: &str) -> Result<()> {
        let name = |field: &str| format!("{key}.{field}");
        in_range(&name("start"), self.start, 0.0..=1.0)?;
        in_range(&name("every"), self.every, positive_to(1.0))?;
        in_range(&name("learning_rate_factor"), self.learning_rate_factor, positive_to(10.0))?;
        in_range(&name("anneal"), self.anneal, 0.0..=1.0)?;
        count_in_range(&name("deviations"), self.deviations, 2..=1000)?;
        in_range(&name("scale"), self.scale, 0.0..=100.0)
    }
}
