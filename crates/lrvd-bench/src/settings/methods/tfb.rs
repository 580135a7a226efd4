//! Settings of TFB.

use lrvd_burn::schema::words;
use lrvd_core::baselines::tfb::{ANCHORS, ITERATIONS, RANGE, SearchAnswer, TOLERANCE};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::settings::range::{count_in_range, in_range};

/// Settings of TFB.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TfbSettings {
    /// Where `σ_q` is looked for, within 0 to 100 (0.001 to 0.015).
    pub range: (f64, f64),
    /// Bisections, 1 to 100 (5).
    pub iterations: u32,
    /// Training examples looked at, fewer if there are not so many; at least 1 (500).
    pub anchors: usize,
    /// Draws whose probabilities are averaged, 1 to 10,000 (10).
    pub samples: usize,
    /// What must not change (`nll-per-anchor`).
    pub criterion: TfbCriterion,
    /// By how much, at least 0 (0.003); the publication takes 0.01 with `flipped`.
    pub tolerance: f64,
    /// Which level is the answer (`last-admissible`).
    #[schemars(schema_with = "words::<SearchAnswer>")]
    pub answer: SearchAnswer,
}

/// What must not change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TfbCriterion {
    /// Relative change of the mean negative log-likelihood.
    Nll,
    /// The same, divided by the number of examples.
    NllPerAnchor,
    /// Share of examples with another answer.
    Flipped,
}

impl Default for TfbSettings {
    fn default() -> Self {
        Self {
            range: RANGE,
            iterations: ITERATIONS,
            anchors: ANCHORS,
            samples: 10,
            criterion: TfbCriterion::NllPerAnchor,
            tolerance: TOLERANCE,
            answer: SearchAnswer::LastAdmissible,
        }
    }
}

impl TfbSettings {
    pub(super) fn check(&self, key: &str) -> Result<()> {
        let name = |field: &str| format!("{key}.{field}");
        let (low, high) = self.range;
        in_range(&name("range.0"), low, 0.0..=100.0)?;
        in_range(&name("range.1"), high, low..=100.0)?;
        count_in_range(&name("iterations"), self.iterations as usize, 1..=100)?;
        count_in_range(&name("anchors"), self.anchors, 1..)?;
        count_in_range(&name("samples"), self.samples, 1..=10_000)?;
        in_range(&name("tolerance"), self.tolerance, 0.0..)
    }
}
