//! The factor of the divergence: a number, or what held-out rows choose.

use std::fmt;

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
    /// The weight rises along the path of `kl_path` while ranks go, and held-out training rows choose.
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
/// w(t) = low                                   until the first prune, after the warm-up
///        low · (high/low)^u                    u from 0 to 1 between the first prune and the last
/// chosen: the fewest ranks within `standard_errors` standard errors, or `nats`, of the smallest loss
///         on the held-out rows (`holdout`, a tenth or 5000 rows unless it is set); training goes on from that model, at
///         its weight
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct KlPathSettings {
    /// Weight at the first prune, above 0 (0.01).
    pub low: f64,
    /// Weight at the last prune, at least `low` (0.2).
    pub high: f64,
    /// Tolerance in standard errors of the difference, at least 0 (1).
    pub standard_errors: f64,
    /// Tolerance in nats a row, at least 0 (0.001).
    pub nats: f64,
}

impl Default for KlPathSettings {
    fn default() -> Self {
        Self { low: 0.01, high: 0.2, standard_errors: 1.0, nats: 1e-3 }
    }
}

impl KlPathSettings {
    pub(super) fn check(&self) -> Result<(), SettingError> {
        in_range("kl_path.low", self.low, 1e-12..=1e6)?;
        in_range("kl_path.high", self.high, self.low..=1e6)?;
        in_range("kl_path.standard_errors", self.standard_errors, 0.0..=1e3)?;
        in_range("kl_path.nats", self.nats, 0.0..=1e3)
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
