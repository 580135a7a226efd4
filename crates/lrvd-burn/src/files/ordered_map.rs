//! The pairs of a JSON object in the order of the file.
//!
//! In an adapter configuration the first pattern that matches wins, so the order of an object's
//! keys has a meaning; and a key that is written twice must not silently replace the first.

use std::collections::BTreeSet;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The pairs of an object, whose keys differ.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct OrderedMap<T>(pub(crate) Vec<(String, T)>);

/// Writes the pairs of a field; `#[serde(with = "ordered_map")]` on a field uses this and [`deserialize`].
pub(crate) fn serialize<T: Serialize, S: Serializer>(
    pairs: &[(String, T)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(pairs.iter().map(|(key, value)| (key, value)))
}

/// Reads the pairs of a field; null is none.
pub(crate) fn deserialize<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<(String, T)>, D::Error> {
    let pairs = Option::deserialize(deserializer)?;
    Ok(pairs.map_or_else(Vec::new, |OrderedMap(pairs)| pairs))
}

impl<T: Serialize> Serialize for OrderedMap<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serialize(&self.0, serializer)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for OrderedMap<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(OrderedMapVisitor(PhantomData))
    }
}

struct OrderedMapVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for OrderedMapVisitor<T> {
    type Value = OrderedMap<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<OrderedMap<T>, A::Error> {
        let mut pairs = Vec::new();
        let mut seen = BTreeSet::new();
        while let Some((key, value)) = map.next_entry::<String, T>()? {
            if !seen.insert(key.clone()) {
                return Err(A::Error::custom(format_args!(
                    "the key `{key}` is there twice, expected every key once"
                )));
            }
            pairs.push((key, value));
        }
        Ok(OrderedMap(pairs))
    }
}
