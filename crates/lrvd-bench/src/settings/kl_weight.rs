//! The factor of the divergence: a number, or what held-out rows choose.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::SettingError;
use super::range::in_range;

/// Share of `rows` training rows that is held out where a method needs some and nobody says how many: a tenth, or as much
/// as 5000 rows are, since they are looked at again and again. They are drawn: a file may be in any order.
pub fn holdout_share(rows: usize) -> f64 {
    0.1_f64.min(5000.0 / rows.max(1) as f64)
}

/// Factor of the KL, written as a number or as `"auto"`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum KlWeight {
    /// This one.
    Fixed(f64),
    /// The weight rises along the path of `kl_path` while ranks go, once the model has learnt, and held-out training rows choose.
    Auto,
}

impl KlWeight {
    /// `factor` times a fixed weight; the one that is chosen stays.
    #[must_use]
    pub fn times(self, factor: f64) -> Self {
        match self {
            Self::Fixed(weight) => Self::Fixed(factor * weight),
            Self::Auto => Self::Auto,
        }
    }
}

impl JsonSchema for KlWeight {
    fn schema_name() -> Cow<'static, str> {
        "KlWeight".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [{ "type": "number" }, { "const": "auto" }] })
    }
}

impl Serialize for KlWeight {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Fixed(weight) => to.serialize_f64(*weight),
            Self::Auto => to.serialize_str("auto"),
        }
    }
}

impl<'de> Deserialize<'de> for KlWeight {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Written;

        impl Visitor<'_> for Written {
            type Value = KlWeight;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number or \"auto\"")
            }

            fn visit_f64<E: Error>(self, weight: f64) -> Result<KlWeight, E> {
                Ok(KlWeight::Fixed(weight))
            }

            fn visit_i64<E: Error>(self, weight: i64) -> Result<KlWeight, E> {
                Ok(KlWeight::Fixed(weight as f64))
            }

            fn visit_u64<E: Error>(self, weight: u64) -> Result<KlWeight, E> {
                Ok(KlWeight::Fixed(weight as f64))
            }

            fn visit_str<E: Error>(self, word: &str) -> Result<KlWeight, E> {
                let unknown = || E::invalid_value(serde::de::Unexpected::Str(word), &self);
                (word == "auto").then_some(KlWeight::Auto).ok_or_else(unknown)
            }
        }

        from.deserialize_any(Written)
    }
}

/// The path of `kl_weight = "auto"`.
///
/// ```text
/// w(t) = 0, no noise, no prune                 until the adapters earn something on the held-out rows
///        unit · low · (high/low)^u             from then on; u would go from 0 to 1 between the first look and `until`
/// end:    the first look after `until` that is worse than one before by more than the tolerance below
/// unit:   nats that the adapters take off the loss of a row · training rows / entries of the adapters
/// chosen: the fewest ranks within `standard_errors` standard errors but no more than `share` of what the adapters earn, or within
///         `nats`, of the smallest loss
///         on the held-out rows (`holdout`, a tenth or 5000 rows unless it is set); training goes on from that model, at
///         its weight
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct KlPathSettings {
    /// Weight where the path begins, in units, above 0 (0.1).
    pub low: f64,
    /// Weight at the end of a whole path, in units, at least `low` (5).
    pub high: f64,
    /// Share of the run after which the first look that is worse than one before, beyond the tolerance, ends the path, 0 to 1 (0.75).
    pub until: f64,
    /// What the noise begins with: `ln` of its energy over that of the mean, the same for every rank, -20 to 0 (-4).
    pub log_alpha: f64,
    /// Tolerance in standard errors of the difference, at least 0 (1).
    pub standard_errors: f64,
    /// Tolerance in nats a row, at least 0 (0.001).
    pub nats: f64,
    /// The most of it as a share of what the adapters earn, at least 0 (0.05): few rows have large standard errors.
    pub share: f64,
}

impl Default for KlPathSettings {
    fn default() -> Self {
        Self {
            low: 0.1,
            high: 5.0,
            until: 0.75,
            log_alpha: -4.0,
            standard_errors: 1.0,
            nats: 1e-3,
            share: 0.05,
        }
    }
}

impl KlPathSettings {
    pub(super) fn check(&self) -> Result<(), SettingError> {
        in_range("kl_path.low", self.low, 1e-12..=1e6)?;
        in_range("kl_path.high", self.high, 1e-12..=1e6)?;
        if self.high < self.low {
            return Err(SettingError::Pair {
                key: "kl_path.high",
                value: self.high.to_string(),
                reason: format!("it is below `kl_path.low`, which is {}", self.low),
            });
        }
        in_range("kl_path.until", self.until, 0.0..=1.0)?;
        in_range("kl_path.log_alpha", self.log_alpha, -20.0..=0.0)?;
        in_range("kl_path.standard_errors", self.standard_errors, 0.0..=1e3)?;
        in_range("kl_path.nats", self.nats, 0.0..=1e3)?;
        in_range("kl_path.share", self.share, 0.0..=1e3)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_number_or_the_word() {
        for (text, wanted) in [
            ("0.5", KlWeight::Fixed(0.5)),
            ("1", KlWeight::Fixed(1.0)),
            ("\"auto\"", KlWeight::Auto),
        ] {
            let found: KlWeight = serde_json::from_str(text).unwrap();
            assert_eq!(found, wanted);
            assert_eq!(
                serde_json::from_value::<KlWeight>(serde_json::to_value(found).unwrap()).unwrap(),
                wanted
            );
        }
        let error = serde_json::from_str::<KlWeight>("\"automatic\"").unwrap_err().to_string();
        assert!(error.contains("a number or \"auto\""), "{error}");
        assert_eq!(KlWeight::Fixed(2.0).times(3.0), KlWeight::Fixed(6.0));
    }
}
