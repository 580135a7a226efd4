//! A number with a name, for what a record has no field for.

use serde::{Deserialize, Serialize};

use super::real;

/// One number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measurement {
    /// What it is: `nll`, `total_rank`.
    pub metric: String,
    /// What it is a function of, if anything: draws, ranks kept.
    #[serde(with = "real")]
    pub at: Option<f64>,
    /// The number.
    #[serde(with = "real")]
    pub value: f64,
}

impl Measurement {
    /// `metric`, a function of nothing.
    pub fn new(metric: impl Into<String>, value: f64) -> Self {
        Self { metric: metric.into(), at: None, value }
    }

    /// `metric` at `at`.
    pub fn at(metric: impl Into<String>, at: f64, value: f64) -> Self {
        Self { metric: metric.into(), at: Some(at), value }
    }
}
