//! Settings that are a value, or one word in its place: the factor of the divergence, and the layers to adapt.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use lrvd_burn::model::AdapterTargets;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::SeqAccessDeserializer;
use serde::de::{Error, IntoDeserializer, SeqAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

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

/// The linear layers that get an adapter, written as a list of names or as `"all-linear"`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetModules {
    /// Those whose path ends in one of the names.
    Names(Vec<String>),
    /// All but the output layer of a language model, as PEFT reads this word.
    AllLinear,
}

impl TargetModules {
    pub fn names<T: ToString>(names: impl IntoIterator<Item = T>) -> Self {
        Self::Names(names.into_iter().map(|name| name.to_string()).collect())
    }

    pub fn layers(&self) -> AdapterTargets {
        match self {
            Self::Names(names) => AdapterTargets::Names(names.clone()),
            Self::AllLinear => AdapterTargets::AllLinear,
        }
    }
}

const AUTO: &str = "auto";
const ALL_LINEAR: &str = "all-linear";

impl JsonSchema for KlWeight {
    fn schema_name() -> Cow<'static, str> {
        "KlWeight".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [{ "type": "number" }, { "const": AUTO }] })
    }
}

impl JsonSchema for TargetModules {
    fn schema_name() -> Cow<'static, str> {
        "TargetModules".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let names = generator.subschema_for::<Vec<String>>();
        json_schema!({ "anyOf": [names, { "const": ALL_LINEAR }] })
    }
}

impl Serialize for KlWeight {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Fixed(weight) => to.serialize_f64(*weight),
            Self::Auto => to.serialize_str(AUTO),
        }
    }
}

impl Serialize for TargetModules {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Names(names) => names.serialize(to),
            Self::AllLinear => to.serialize_str(ALL_LINEAR),
        }
    }
}

impl<'de> Deserialize<'de> for KlWeight {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let weight = WordOr::read(from, AUTO, "a number or \"auto\"")?;
        Ok(weight.map_or(Self::Auto, Self::Fixed))
    }
}

impl<'de> Deserialize<'de> for TargetModules {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let names = WordOr::read(from, ALL_LINEAR, "a list of names or \"all-linear\"")?;
        Ok(names.map_or(Self::AllLinear, Self::Names))
    }
}

/// Reads one word as `None`, and anything else as `T`.
struct WordOr<T> {
    word: &'static str,
    expected: &'static str,
    value: PhantomData<T>,
}

impl<'de, T: Deserialize<'de>> WordOr<T> {
    fn read<D: Deserializer<'de>>(
        from: D,
        word: &'static str,
        expected: &'static str,
    ) -> Result<Option<T>, D::Error> {
        from.deserialize_any(Self { word, expected, value: PhantomData })
    }
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for WordOr<T> {
    type Value = Option<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_str<E: Error>(self, word: &str) -> Result<Option<T>, E> {
        let unknown = || E::invalid_value(Unexpected::Str(word), &self);
        if word == self.word { Ok(None) } else { Err(unknown()) }
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Option<T>, E> {
        T::deserialize(number.into_deserializer()).map(Some)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Option<T>, E> {
        T::deserialize(number.into_deserializer()).map(Some)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Option<T>, E> {
        T::deserialize(number.into_deserializer()).map(Some)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Option<T>, A::Error> {
        T::deserialize(SeqAccessDeserializer::new(list)).map(Some)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::fmt::Debug;

    use serde::de::DeserializeOwned;
    use serde_json::{Value, json};

    use super::*;

    fn read_and_written<T>(json: Value, expected: T)
    where
        T: Debug + PartialEq + Serialize + DeserializeOwned,
    {
        let found: T = serde_json::from_value(json.clone()).unwrap();
        assert_eq!(found, expected);
        assert_eq!(
            serde_json::from_value::<T>(serde_json::to_value(&found).unwrap()).unwrap(),
            found
        );
    }

    #[test]
    fn a_value_or_the_word() {
        read_and_written(json!(0.5), KlWeight::Fixed(0.5));
        read_and_written(json!(1), KlWeight::Fixed(1.0));
        read_and_written(json!("auto"), KlWeight::Auto);
        read_and_written(json!(["q_proj", "v_proj"]), TargetModules::names(["q_proj", "v_proj"]));
        read_and_written(json!("all-linear"), TargetModules::AllLinear);
        let error = serde_json::from_value::<KlWeight>(json!("automatic")).unwrap_err().to_string();
        assert!(error.contains("a number or \"auto\""), "{error}");
        let error = serde_json::from_value::<TargetModules>(json!("all")).unwrap_err().to_string();
        assert!(error.contains("a list of names or \"all-linear\""), "{error}");
        assert!(serde_json::from_value::<TargetModules>(json!([1])).is_err());
        assert_eq!(KlWeight::Fixed(2.0).times(3.0), KlWeight::Fixed(6.0));
    }
}
