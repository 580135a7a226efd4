//! The factor of the divergence: a number, or the search for ranks by held-out rows.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::table::settings;

/// Share of `rows` training rows that is held out by default where a method needs some: a tenth, or as much as 5000 rows
/// are, since they are answered several times. They are drawn: a file may be in any order.
pub fn holdout_share(rows: usize) -> f64 {
    0.1_f64.min(5000.0 / rows.max(1) as f64)
}

/// Factor of the KL, written as a number or as `"auto"`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum KlWeight {
    /// This one.
    Fixed(f64),
    /// The model is trained whole without divergence, cut by held-out training rows and refined, by the settings of
    /// `rank_search`.
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

settings! {
    /// The search for ranks of `kl_weight = "auto"`.
    ///
    /// ```text
    /// train    the whole model for `steps` steps at its mean, without divergence, as LoRA is trained
    /// rotate   every update to its singular directions
    /// cut      the fewest directions over all modules whose held-out loss is non-inferior to that of the whole model: the upper end of
    ///          the one-sided 95 % interval of the mean difference is at most `margin`
    /// refine   `refine · steps` further steps with the posterior, at `rate` times the learning rates; the means stay if they are
    ///          non-inferior to the whole model, too
    /// ```
    ///
    /// The held-out rows are `holdout` of the training rows, or a tenth and at most 5000. Fewer than 100 show nothing: all ranks stay.
    #[derive(Copy)]
    #[serde(default)]
    pub struct RankSearchSettings {
        /// The most that the held-out loss may rise by the cut, nats a row (squared error of numbers).
        margin: f64 = 0.01, in 0.0..=1e3;
        /// Steps of the refinement as a share of `steps`.
        refine: f64 = 0.1, in 0.0..=1.0;
        /// Peak learning rates of the refinement as a share of those of the whole model.
        rate: f64 = 0.1, in 0.0..=1e3;
        /// What the noise of a draw may cost, nats a row: the weight of the divergence in the refinement follows from it.
        noise: f64 = 0.01, in 0.0..=1e6;
        /// What the noise starts the refinement with: `ln` of its energy over that of the mean, the same for every rank.
        log_alpha: f64 = -4.0, in -20.0..=0.0;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_number_or_the_word() {
        for (text, expected) in [
            ("0.5", KlWeight::Fixed(0.5)),
            ("1", KlWeight::Fixed(1.0)),
            ("\"auto\"", KlWeight::Auto),
        ] {
            let found: KlWeight = serde_json::from_str(text).unwrap();
            assert_eq!(found, expected);
            assert_eq!(
                serde_json::from_value::<KlWeight>(serde_json::to_value(found).unwrap()).unwrap(),
                expected
            );
        }
        let error = serde_json::from_str::<KlWeight>("\"automatic\"").unwrap_err().to_string();
        assert!(error.contains("a number or \"auto\""), "{error}");
        assert_eq!(KlWeight::Fixed(2.0).times(3.0), KlWeight::Fixed(6.0));
    }
}
