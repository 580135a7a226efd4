//! Numbers that JSON cannot carry: a loss that became NaN, a statistic that is infinite.
//!
//! JSON has no such numbers, and a null in their place would be read back as "absent". Finite values are
//! written as numbers; the other three as the strings `"NaN"`, `"inf"` and `"-inf"`. Each submodule is the
//! `serde(with = ...)` of one container.

use std::fmt;

use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// One `f64`, in the representation above.
struct Real(f64);

impl Serialize for Real {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            x if x.is_finite() => serializer.serialize_f64(x),
            x if x.is_nan() => serializer.serialize_str("NaN"),
            x if x > 0.0 => serializer.serialize_str("inf"),
            _ => serializer.serialize_str("-inf"),
        }
    }
}

struct RealVisitor;

impl Visitor<'_> for RealVisitor {
    type Value = Real;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number, or one of \"NaN\", \"inf\", \"-inf\"")
    }

    fn visit_f64<E>(self, value: f64) -> Result<Real, E> {
        Ok(Real(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Real, E> {
        Ok(Real(value as f64))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Real, E> {
        Ok(Real(value as f64))
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<Real, E> {
        match value {
            "NaN" => Ok(Real(f64::NAN)),
            "inf" => Ok(Real(f64::INFINITY)),
            "-inf" => Ok(Real(f64::NEG_INFINITY)),
            other => Err(E::custom(format!("`{other}` is no number"))),
        }
    }
}

impl<'de> Deserialize<'de> for Real {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RealVisitor)
    }
}

/// One number.
pub(super) mod one {
    use super::{Deserialize, Deserializer, Real, Serialize, Serializer};

    /// Writes one number.
    ///
    /// # Errors
    ///
    /// Whatever the serialiser reports.
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
    pub(crate) fn serialize<S: Serializer>(value: &f64, s: S) -> Result<S::Ok, S::Error> {
        Real(*value).serialize(s)
    }

    /// Reads one number.
    ///
    /// # Errors
    ///
    /// If the value is neither a number nor one of the three names.
    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<f64, D::Error> {
        Ok(Real::deserialize(d)?.0)
    }
}

/// A number or null.
pub(super) mod option {
    use super::{Deserialize, Deserializer, Real, Serialize, Serializer};

    /// Writes a number or null.
    ///
    /// # Errors
    ///
    /// Whatever the serialiser reports.
    #[expect(clippy::ref_option, reason = "serde hands out references")]
    pub(crate) fn serialize<S: Serializer>(value: &Option<f64>, s: S) -> Result<S::Ok, S::Error> {
        value.map(Real).serialize(s)
    }

    /// Reads a number or null.
    ///
    /// # Errors
    ///
    /// If the value is neither null, a number, nor one of the three names.
    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Option<f64>, D::Error> {
        Ok(Option::<Real>::deserialize(d)?.map(|x| x.0))
    }
}

/// A list of numbers.
pub(super) mod list {
    use super::{Deserialize, Deserializer, Real, Serializer};

    /// Writes a list.
    ///
    /// # Errors
    ///
    /// Whatever the serialiser reports.
    pub(crate) fn serialize<S: Serializer>(values: &[f64], s: S) -> Result<S::Ok, S::Error> {
        s.collect_seq(values.iter().map(|x| Real(*x)))
    }

    /// Reads a list.
    ///
    /// # Errors
    ///
    /// If an entry is neither a number nor one of the three names.
    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<f64>, D::Error> {
        Ok(Vec::<Real>::deserialize(d)?.into_iter().map(|x| x.0).collect())
    }
}

/// Numbers by name, or by count of posterior draws, which JSON writes as a string.
pub(super) mod map {
    use std::collections::BTreeMap;

    use super::{Deserialize, Deserializer, Real, Serialize, Serializer};

    /// Writes numbers by name.
    ///
    /// # Errors
    ///
    /// Whatever the serialiser reports.
    pub(crate) fn serialize<K: Serialize, S: Serializer>(
        values: &BTreeMap<K, f64>,
        s: S,
    ) -> Result<S::Ok, S::Error> {
        s.collect_map(values.iter().map(|(k, x)| (k, Real(*x))))
    }

    /// Reads numbers by name.
    ///
    /// # Errors
    ///
    /// If a key is of another kind, or a value neither a number nor one of the three names.
    pub(crate) fn deserialize<'de, K: Deserialize<'de> + Ord, D: Deserializer<'de>>(
        d: D,
    ) -> Result<BTreeMap<K, f64>, D::Error> {
        Ok(BTreeMap::<K, Real>::deserialize(d)?.into_iter().map(|(k, x)| (k, x.0)).collect())
    }
}

/// Lists of numbers by name (a module path, as a rule), or by count of posterior draws.
pub(super) mod map_list {
    use std::collections::BTreeMap;

    use super::{Deserialize, Deserializer, Real, Serialize, Serializer};

    /// Writes lists by name.
    ///
    /// # Errors
    ///
    /// Whatever the serialiser reports.
    pub(crate) fn serialize<K: Serialize, S: Serializer>(
        values: &BTreeMap<K, Vec<f64>>,
        s: S,
    ) -> Result<S::Ok, S::Error> {
        s.collect_map(
            values.iter().map(|(k, list)| (k, list.iter().map(|x| Real(*x)).collect::<Vec<_>>())),
        )
    }

    /// Reads lists by name.
    ///
    /// # Errors
    ///
    /// If an entry is neither a number nor one of the three names.
    pub(crate) fn deserialize<'de, K: Deserialize<'de> + Ord, D: Deserializer<'de>>(
        d: D,
    ) -> Result<BTreeMap<K, Vec<f64>>, D::Error> {
        let read = BTreeMap::<K, Vec<Real>>::deserialize(d)?;
        Ok(read.into_iter().map(|(k, v)| (k, v.into_iter().map(|x| x.0).collect())).collect())
    }
}
