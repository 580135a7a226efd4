//! Numbers that JSON cannot carry: a loss that became NaN, a statistic that is infinite.
//!
//! JSON has no such numbers, and a null in their place would be read back as "absent". Finite values are
//! written as numbers; the other three as the strings `"NaN"`, `"inf"` and `"-inf"`. This module is the
//! `serde(with = ...)` of a number, and of an option, a list or a map of what it can carry.

use std::collections::BTreeMap;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub(super) trait Carried: Sized {
    type Json: Serialize + for<'de> Deserialize<'de>;

    fn to_json(&self) -> Self::Json;
    fn from_json(json: Self::Json) -> Result<Self, String>;
}

pub(super) fn serialize<T: Carried, S: Serializer>(value: &T, to: S) -> Result<S::Ok, S::Error> {
    value.to_json().serialize(to)
}

pub(super) fn deserialize<'de, T: Carried, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
    T::from_json(T::Json::deserialize(from)?).map_err(D::Error::custom)
}

#[derive(Serialize, Deserialize)]
#[serde(untagged, expecting = "expected a number, or one of \"NaN\", \"inf\", \"-inf\"")]
pub(super) enum Number {
    Finite(f64),
    Named(String),
}

impl Carried for f64 {
    type Json = Number;

    fn to_json(&self) -> Number {
        match *self {
            x if x.is_finite() => Number::Finite(x),
            x => Number::Named(x.to_string()),
        }
    }

    fn from_json(json: Number) -> Result<Self, String> {
        match json {
            Number::Finite(x) => Ok(x),
            Number::Named(name) if ["NaN", "inf", "-inf"].contains(&name.as_str()) => {
                name.parse().map_err(|_| name)
            }
            Number::Named(name) => Err(format!("`{name}` is not a number")),
        }
    }
}

impl<T: Carried> Carried for Option<T> {
    type Json = Option<T::Json>;

    fn to_json(&self) -> Self::Json {
        self.as_ref().map(T::to_json)
    }

    fn from_json(json: Self::Json) -> Result<Self, String> {
        json.map(T::from_json).transpose()
    }
}

impl<T: Carried> Carried for Vec<T> {
    type Json = Vec<T::Json>;

    fn to_json(&self) -> Self::Json {
        self.iter().map(T::to_json).collect()
    }

    fn from_json(json: Self::Json) -> Result<Self, String> {
        json.into_iter().map(T::from_json).collect()
    }
}

impl<K, T: Carried> Carried for BTreeMap<K, T>
where
    K: Ord + Clone + Serialize + for<'de> Deserialize<'de>,
{
    type Json = BTreeMap<K, T::Json>;

    fn to_json(&self) -> Self::Json {
        self.iter().map(|(key, value)| (key.clone(), value.to_json())).collect()
    }

    fn from_json(json: Self::Json) -> Result<Self, String> {
        json.into_iter().map(|(key, value)| Ok((key, T::from_json(value)?))).collect()
    }
}
