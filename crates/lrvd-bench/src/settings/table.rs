//! The table of settings: `settings!` declares one a line, and gives its struct and defaults; ranges are in its JSON schema.

use std::fmt;
use std::ops::{Bound, RangeBounds};

use anyhow::bail;
use schemars::generate::SchemaSettings;
use schemars::transform::{RecursiveTransform, Transform as _};
use schemars::{JsonSchema, Schema};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::error::Result;

/// Declares a section of settings: a documentation comment, then `name: type = default, in range;` for each.
///
/// A key in brackets differs from the field's name. The struct is read strictly, `Default` has the defaults, and the JSON
/// schema the ranges, to which [`check`] holds every number.
macro_rules! settings {
    ($(#[$meta:meta])* pub struct $name:ident {
        $($(#[$field_meta:meta])* $field:ident $(($key:literal))?: $ty:ty = $default:expr $(, in $range:expr)?;)*
    }) => {
        #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
        #[serde(deny_unknown_fields)]
        $(#[$meta])*
        pub struct $name {
            $(
                $(#[$field_meta])*
                $(#[serde(rename = $key)])?
                $(#[schemars(transform = $crate::settings::table::limited(&($range)))])?
                pub $field: $ty,
            )*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $default,)* }
            }
        }
    };
}
pub(super) use settings;

/// The JSON schema of a type, with every definition in its place.
pub(super) fn schema_of<T: JsonSchema>() -> Value {
    let settings =
        SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    settings.into_generator().subschema_for::<T>().to_value()
}

/// A range of numbers in the words of a schema.
fn ends<N: Serialize>(range: &impl RangeBounds<N>) -> Map<String, Value> {
    let end = |end: Bound<&N>, included: &str, excluded: &str| match end {
        Bound::Included(end) => Some((included.to_owned(), json!(end))),
        Bound::Excluded(end) => Some((excluded.to_owned(), json!(end))),
        Bound::Unbounded => None,
    };
    let low = end(range.start_bound(), "minimum", "exclusiveMinimum");
    low.into_iter().chain(end(range.end_bound(), "maximum", "exclusiveMaximum")).collect()
}

/// Limits the numbers of a setting.
pub(super) fn limited<N: Serialize, R: RangeBounds<N>>(
    range: &R,
) -> impl FnMut(&mut Schema) + use<N, R> {
    let ends = ends(range);
    move |schema| schema.as_object_mut().into_iter().for_each(|map| limit(map, &ends))
}

/// Limits the numbers called `name` within a setting whose type is declared elsewhere.
pub(super) fn limited_part<N: Serialize, R: RangeBounds<N>>(
    name: &'static str,
    range: &R,
) -> impl FnMut(&mut Schema) + use<N, R> {
    let ends = ends(range);
    move |schema| {
        let part = |schema: &mut Schema| {
            let properties = schema.get_mut("properties").and_then(Value::as_object_mut);
            let part = properties.and_then(|all| all.get_mut(name)?.as_object_mut());
            part.into_iter().for_each(|part| limit(part, &ends));
        };
        RecursiveTransform(part).transform(schema);
    }
}

fn limit(schema: &mut Map<String, Value>, ends: &Map<String, Value>) {
    if let Some(Value::Object(items)) = schema.get_mut("items") {
        return limit(items, ends);
    }
    for list in ["anyOf", "prefixItems"] {
        if let Some(Value::Array(parts)) = schema.get_mut(list) {
            let parts = parts.iter_mut().filter_map(Value::as_object_mut);
            return parts.for_each(|part| limit(part, ends));
        }
    }
    let is_number = |kind: &Value| kind == "number" || kind == "integer";
    let limits = schema.get("type").is_some_and(|kind| match kind {
        Value::Array(kinds) => kinds.iter().any(is_number),
        kind => is_number(kind),
    });
    if limits {
        // What the type's sign says.
        schema.remove("minimum");
        schema.extend(ends.clone());
    }
}

/// Whether a table of a settings file is read setting by setting: what it leaves out stays as it was. Elsewhere a table is one
/// value.
pub(super) fn is_section(schema: &Value) -> bool {
    schema["properties"].is_object()
}

/// Whether a setting may be absent, which files write `"none"`.
pub(super) fn is_optional(schema: &Value) -> bool {
    let list = |name: &str| schema[name].as_array().into_iter().flatten();
    list("type").any(|kind| kind == "null") || list("anyOf").any(|form| form["type"] == "null")
}

/// The schema of the setting at `key` below a section.
pub(super) fn at<'a>(section: &'a Value, key: &str) -> Option<&'a Value> {
    let mut names = key.split('.').filter(|name| !name.is_empty());
    names.try_fold(section, |section, name| section["properties"].get(name))
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

/// Returns an error for a number in the setting `key` that is outside the range of its schema, and for an absent one that must
/// be there: JSON has no number that is not finite.
pub(super) fn check(key: &str, value: &Value, schema: &Value) -> Result<()> {
    for forms in ["oneOf", "anyOf"] {
        if let Value::Array(forms) = &schema[forms] {
            return forms.iter().try_for_each(|form| check(key, value, form));
        }
    }
    let fail = |found: String, range| bail!("setting `{key}` is {found}, expected {range}");
    match (value, &schema["prefixItems"]) {
        (Value::Object(map), _) => map.iter().try_for_each(|(name, value)| {
            check(&below(key, name), value, &schema["properties"][name])
        }),
        (Value::Array(items), Value::Array(parts)) => items
            .iter()
            .zip(parts)
            .enumerate()
            .try_for_each(|(i, (item, part))| check(&below(key, &i.to_string()), item, part)),
        (Value::Array(items), _) => {
            items.iter().try_for_each(|item| check(key, item, &schema["items"]))
        }
        (Value::Number(found), _) => match Range::of(schema) {
            Some(range) if !range.contains(value) => fail(
                found.as_f64().filter(|_| found.is_f64()).map_or(found.to_string(), number),
                range,
            ),
            _ => Ok(()),
        },
        (Value::Null, _) if schema["type"] == "number" => {
            fail("not finite".to_owned(), Range(Bound::Unbounded, Bound::Unbounded))
        }
        _ => Ok(()),
    }
}

/// What a number may be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Range(Bound<f64>, Bound<f64>);

impl Range {
    /// The one that a schema states of its numbers; that a count is not negative is none.
    pub(super) fn of(schema: &Value) -> Option<Self> {
        let end = |included: &str, excluded: &str| {
            let included = schema[included].as_f64().map(Bound::Included);
            included.or_else(|| schema[excluded].as_f64().map(Bound::Excluded))
        };
        match (end("minimum", "exclusiveMinimum"), end("maximum", "exclusiveMaximum")) {
            (None, None) => {
                let forms = schema["anyOf"].as_array().into_iter().flatten();
                forms.chain(schema.get("items")).find_map(Self::of)
            }
            (Some(Bound::Included(0.0)), None) if schema["format"] == "uint" => None,
            (low, high) => {
                Some(Self(low.unwrap_or(Bound::Unbounded), high.unwrap_or(Bound::Unbounded)))
            }
        }
    }

    fn contains(self, number: &Value) -> bool {
        number.as_f64().is_some_and(|number| (self.0, self.1).contains(&number))
    }
}

/// A number in few digits: a power of ten where it is very large or very small.
fn number(value: f64) -> String {
    let plain = value == 0.0 || !value.is_finite() || (1e-5..1e7).contains(&value.abs());
    if plain { value.to_string() } else { format!("{value:e}") }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let low = match self.0 {
            Bound::Included(low) => format!("at least {}", number(low)),
            Bound::Excluded(low) => format!("above {}", number(low)),
            Bound::Unbounded => String::new(),
        };
        let high = match self.1 {
            Bound::Included(high) => format!("at most {}", number(high)),
            Bound::Excluded(high) => format!("below {}", number(high)),
            Bound::Unbounded => String::new(),
        };
        match (self.0, self.1) {
            (Bound::Included(low), Bound::Included(high)) => {
                write!(f, "{} to {}", number(low), number(high))
            }
            (Bound::Unbounded, Bound::Unbounded) => f.write_str("a finite number"),
            (Bound::Unbounded, _) | (_, Bound::Unbounded) => write!(f, "{low}{high}"),
            _ => write!(f, "{low} and {high}"),
        }
    }
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
        let expected =
            "setting `methods.blob.kl_learning_rate` is not finite, expected a finite number";
        for (config, expected) in [(rate, expected), (gamma, "a setting is not a finite number")] {
            assert_eq!(config.checked().unwrap_err().to_string(), expected);
        }
    }
}
