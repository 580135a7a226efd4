//! The table of settings: `settings!` declares one a line, and gives its struct, its defaults and its [`Field`].

use std::fmt;
use std::ops::{Bound, RangeBounds};

use anyhow::bail;
use lrvd_burn::schema::names;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::table;
use crate::error::Result;

/// Declares a section of settings: a documentation comment, then `name: type = default, in range;` for each.
///
/// A key in brackets differs from the field's name. The struct is read strictly, `Default` has the defaults, and the table of
/// [`Field`]s the rest. `for` declares the table alone, of a struct that is elsewhere.
macro_rules! settings {
    ($(#[$meta:meta])* pub struct $name:ident {
        $($(#[doc = $doc:literal])* $field:ident $(($key:literal))?: $ty:ty = $default:expr $(, in $range:expr)?;)*
    }) => {
        #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        $(#[$meta])*
        pub struct $name {
            $($(#[doc = $doc])* $(#[serde(rename = $key)])? pub $field: $ty,)*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $default,)* }
            }
        }

        settings! { for $name { $($(#[doc = $doc])* $field $(($key))?: $ty $(, in $range)?;)* } }
    };
    (for $name:ident {
        $($(#[doc = $doc:literal])* $field:ident $(($key:literal))?: $ty:ty $(, in $range:expr)?;)*
    }) => {
        impl table::Setting for $name {
            const FIELDS: &'static [table::Field] = &[$(table::Field::new::<$ty>(
                [$($key,)? stringify!($field)][0],
                concat!($($doc, "\n"),*),
                || None$(.or(Some(table::Range::of(&($range)))))?,
            )),*];

            fn check(&self, key: &str, _: Option<table::Range>) -> Result<()> {
                let [$($field),*] = Self::FIELDS else { unreachable!("one for each") };
                $(table::Setting::check(&self.$field, &table::below(key, $field.key), ($field.range)())?;)*
                Ok(())
            }
        }
    };
}
pub(super) use settings;

/// A type of settings: a section or a value.
pub(super) trait Setting: DeserializeOwned {
    /// Settings of a section; a value has none.
    const FIELDS: &'static [Field] = &[];
    /// `true` if a value may be absent, which files write `"none"`.
    const OPTIONAL: bool = false;

    /// JSON schema: by default that of a section or of an enumeration.
    fn schema() -> Value {
        let words = || json!({ "type": "string", "enum": names::<Self>() });
        if Self::FIELDS.is_empty() { words() } else { section(Self::FIELDS) }
    }

    /// Returns an error for a number in the setting `key` that is not finite or outside `range`: by default there is none.
    fn check(&self, _key: &str, _range: Option<Range>) -> Result<()> {
        Ok(())
    }
}

/// Declares values that derive a JSON schema, those with numbers by a check of them; after `enum` enumerations that do not.
macro_rules! values {
    ($($ty:ty $(= |$value:pat_param, $key:ident, $range:ident| $check:expr)?;)* $(enum $($word:ty),*)?) => {
        $(impl table::Setting for $ty {
            fn schema() -> serde_json::Value {
                table::schema_of::<Self>()
            }

            $(fn check(&self, $key: &str, $range: Option<table::Range>) -> Result<()> {
                let $value = self;
                $check
            })?
        })*
        $($(impl table::Setting for $word {})*)?
    };
}
pub(super) use values;

values! {
    bool; String;
    usize = |value, key, range| (*value as f64).check(key, range);
    u32 = |value, key, range| f64::from(*value).check(key, range);
    f64 = |value, key, range| match range {
        _ if !value.is_finite() => bail!("setting `{key}` is not finite, expected a finite number"),
        Some(range) if !(range.0, range.1).contains(value) => {
            bail!("setting `{key}` is {}, expected {range}", number(*value))
        }
        _ => Ok(()),
    };
    (f64, f64) = |(first, second), key, range| {
        first.check(&below(key, "0"), range)?;
        second.check(&below(key, "1"), range)
    };
}

/// The JSON schema of a type, with every definition in its place.
pub(super) fn schema_of<T: JsonSchema>() -> Value {
    let settings =
        SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    settings.into_generator().subschema_for::<T>().to_value()
}

impl<T: Setting> Setting for Option<T> {
    const OPTIONAL: bool = true;

    fn schema() -> Value {
        let schema = T::schema();
        // Any text includes that word.
        let includes = schema == json!({ "type": "string" });
        if includes { schema } else { json!({ "anyOf": [schema, { "const": "none" }] }) }
    }

    fn check(&self, key: &str, range: Option<Range>) -> Result<()> {
        self.iter().try_for_each(|value| value.check(key, range))
    }
}

impl<T: Setting> Setting for Vec<T> {
    fn schema() -> Value {
        json!({ "type": "array", "items": T::schema() })
    }

    fn check(&self, key: &str, range: Option<Range>) -> Result<()> {
        self.iter().try_for_each(|value| value.check(key, range))
    }
}

/// A line of the table: a setting, or a section of them.
pub(super) struct Field {
    pub key: &'static str,
    doc: &'static str,
    /// Range of its numbers.
    pub range: fn() -> Option<Range>,
    /// Settings of a section. A table of a settings file is read setting by setting into a section: what it leaves out stays
    /// as it was. Elsewhere a table is one value.
    pub fields: &'static [Self],
    pub is_optional: bool,
    /// The words of an enumeration.
    pub words: fn() -> &'static [&'static str],
    schema: fn() -> Value,
}

impl Field {
    pub(super) const fn new<T: Setting>(
        key: &'static str,
        doc: &'static str,
        range: fn() -> Option<Range>,
    ) -> Self {
        Self {
            key,
            doc,
            range,
            fields: T::FIELDS,
            is_optional: T::OPTIONAL,
            words: names::<T>,
            schema: T::schema,
        }
    }

    /// Its documentation, in the words of settings files.
    pub(super) fn doc(&self) -> String {
        let lines: Vec<&str> = self.doc.lines().map(str::trim).collect();
        lines.join("\n").replace("`None`", "`\"none\"`")
    }
}

/// The JSON schema of a section.
pub(super) fn section(fields: &[Field]) -> Value {
    let property = |field: &Field| {
        let mut schema = (field.schema)();
        limit(&mut schema, (field.range)());
        schema["description"] = field.doc().into();
        (field.key.to_owned(), schema)
    };
    let properties: Map<String, Value> = fields.iter().map(property).collect();
    json!({ "type": "object", "properties": properties, "additionalProperties": false })
}

/// Limits the numbers of a schema, which are what has a format, that of Rust's type.
fn limit(schema: &mut Value, range: Option<Range>) {
    match schema {
        Value::Object(map) => {
            if let (Some(_), Some(range)) = (map.remove("format"), range) {
                // What the type's sign says.
                map.remove("minimum");
                let is_count = map["type"] == "integer";
                let names = ["minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"];
                map.extend(range.ends(names).map(|(name, end)| {
                    (name.to_owned(), if is_count { json!(end as u64) } else { json!(end) })
                }));
            }
            map.values_mut().for_each(|part| limit(part, range));
        }
        Value::Array(parts) => parts.iter_mut().for_each(|part| limit(part, range)),
        _ => {}
    }
}

/// The key of `name` in the section `key`.
pub(super) fn below(key: &str, name: &str) -> String {
    if key.is_empty() { name.to_owned() } else { format!("{key}.{name}") }
}

/// Above 0, without an upper end.
pub(super) const POSITIVE: (Bound<f64>, Bound<f64>) = (Bound::Excluded(0.0), Bound::Unbounded);

/// Above 0, up to `high`.
pub(super) const fn positive_to(high: f64) -> (Bound<f64>, Bound<f64>) {
    (Bound::Excluded(0.0), Bound::Included(high))
}

/// Range of a number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Range(Bound<f64>, Bound<f64>);

impl Range {
    pub(super) fn of<N: Serialize>(range: &impl RangeBounds<N>) -> Self {
        let real = |end: &N| json!(end).as_f64().unwrap_or(f64::NAN);
        Self(range.start_bound().map(real), range.end_bound().map(real))
    }

    /// Its ends, each with its name among those of a lower one, included and excluded, and of an upper one.
    fn ends(self, names: [&str; 4]) -> impl Iterator<Item = (&str, f64)> {
        let [at_least, above, at_most, below] = names;
        let end = |end, included, excluded| match end {
            Bound::Included(end) => Some((included, end)),
            Bound::Excluded(end) => Some((excluded, end)),
            Bound::Unbounded => None,
        };
        [end(self.0, at_least, above), end(self.1, at_most, below)].into_iter().flatten()
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Self(Bound::Included(low), Bound::Included(high)) = *self {
            return write!(f, "{} to {}", number(low), number(high));
        }
        let ends = self.ends(["at least", "above", "at most", "below"]);
        let ends: Vec<String> = ends.map(|(name, end)| format!("{name} {}", number(end))).collect();
        f.write_str(&ends.join(" and "))
    }
}

/// A number in few digits: a power of ten where it is very large or very small.
fn number(value: f64) -> String {
    let plain = value == 0.0 || !value.is_finite() || (1e-5..1e7).contains(&value.abs());
    if plain { value.to_string() } else { format!("{value:e}") }
}

#[cfg(test)]
mod tests {
    use crate::settings::Preset;

    #[test]
    fn not_a_number_is_out_of_range() {
        let start = Preset::ConstantWeight.config();
        let (mut rate, mut gamma) = (start.clone(), start);
        rate.methods.blob.kl_learning_rate = f64::NAN;
        gamma.methods.blob.gamma = Some(f64::NAN);
        for (config, key) in [(rate, "kl_learning_rate"), (gamma, "gamma")] {
            let expected =
                format!("setting `methods.blob.{key}` is not finite, expected a finite number");
            assert_eq!(config.checked().unwrap_err().to_string(), expected);
        }
    }
}
