//! The table of settings: `settings!` declares one a line, and gives its struct, defaults and ranges.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};

use crate::error::Result;

/// Declares a section of settings: a documentation comment, then `name: type = default, in range;` for each.
///
/// A key in brackets differs from the field's name. The struct is read strictly, `Default` has the defaults, [`Settings::check`] holds every number to its range, and
/// [`Settings::fields`] are the same facts as data, for the JSON schema. A field whose type is a section is one here.
/// `where function` calls `function(&section, key)` for what holds between settings. `extern` lists the ranges of a struct
/// that is declared elsewhere.
macro_rules! settings {
    (extern $name:ident {
        $($field:ident $(($key:literal))?: $ty:ty $(, in $range:expr)?;)*
    } $(where $related:path)?) => {
        impl $crate::settings::table::Settings for $name {
            fn fields() -> Vec<$crate::settings::table::Field> {
                #[allow(unused_imports, reason = "not every section has a number or a plain value")]
                use $crate::settings::table::{Field, Leaf as _, Of, Range, Ranged};
                vec![$(Field {
                    name: [$($key,)? stringify!($field)][0].to_owned(),
                    optional: Of::<$ty>::OPTIONAL,
                    range: [$(Range::new::<<$ty as Ranged>::Number>(&$range))?].first().copied(),
                    fields: Of::<$ty>::FIELDS(),
                }),*]
            }

            fn check(&self, key: &str) -> $crate::error::Result<()> {
                #[allow(unused_imports, reason = "not every section has a number or a plain value")]
                use $crate::settings::table::{Leaf as _, Of, Range, Ranged, below};
                $(
                    let name = below(key, [$($key,)? stringify!($field)][0]);
                    $(Range::new::<<$ty as Ranged>::Number>(&$range).check(&name, &self.$field)?;)?
                    Of::<$ty>::CHECK(&self.$field, &name)?;
                )*
                $($related(self, key)?;)?
                Ok(())
            }
        }
    };
    ($(#[$meta:meta])* pub struct $name:ident {
        $($(#[$field_meta:meta])* $field:ident $(($key:literal))?: $ty:ty = $default:expr $(, in $range:expr)?;)*
    } $(where $related:path)?) => {
        #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
        #[serde(deny_unknown_fields)]
        $(#[$meta])*
        pub struct $name {
            $($(#[$field_meta])* $(#[serde(rename = $key)])? pub $field: $ty,)*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $default,)* }
            }
        }

        settings!(extern $name { $($field $(($key))?: $ty $(, in $range)?;)* } $(where $related)?);
    };
}
pub(super) use settings;

/// What is true of every section of settings.
pub(super) trait Settings {
    /// Its settings; none of a value that is checked by itself.
    fn fields() -> Vec<Field>;

    /// Returns an error for a number out of its range, and for settings that do not go together; `key` is the section's.
    fn check(&self, key: &str) -> Result<()>;
}

/// One setting, or a section of them.
#[derive(Clone, Debug)]
pub(super) struct Field {
    pub name: String,
    /// Whether it may be absent, which files write `"none"`.
    pub optional: bool,
    pub range: Option<Range>,
    pub fields: Vec<Self>,
}

impl Field {
    /// Whether a table of a settings file is read setting by setting: what it leaves out stays as it was. Elsewhere a table
    /// is one value.
    pub(super) fn is_section(&self) -> bool {
        !self.fields.is_empty()
    }

    /// The setting at `key` below this section.
    pub(super) fn at(&self, key: &str) -> Option<&Self> {
        key.split('.')
            .filter(|name| !name.is_empty())
            .try_fold(self, |section, name| section.fields.iter().find(|field| field.name == name))
    }
}

/// What is known of a field by its type alone. The constants of the `impl`s below hide those of [`Leaf`], where the type
/// is one of theirs.
pub(super) struct Of<T>(PhantomData<T>);

pub(super) trait Leaf<T> {
    const OPTIONAL: bool = false;
    const FIELDS: fn() -> Vec<Field> = Vec::new;
    const CHECK: fn(&T, &str) -> Result<()> = |_, _| Ok(());
}

impl<T> Leaf<T> for Of<T> {}

impl<T> Of<Option<T>> {
    pub(super) const OPTIONAL: bool = true;
}

impl<T: Settings> Of<T> {
    pub(super) const FIELDS: fn() -> Vec<Field> = T::fields;
    pub(super) const CHECK: fn(&T, &str) -> Result<()> = T::check;
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

/// What a number may be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Range {
    pub low: Bound<f64>,
    pub high: Bound<f64>,
}

impl Range {
    pub(super) fn new<N: Number>(range: &impl RangeBounds<N>) -> Self {
        let bound = |bound: Bound<&N>| bound.map(|&number| number.float());
        Self { low: bound(range.start_bound()), high: bound(range.end_bound()) }
    }

    /// Returns an error for a number of `setting` outside the range, and for one that is not finite.
    pub(super) fn check(self, key: &str, setting: &impl Ranged) -> Result<()> {
        for (part, value) in setting.numbers() {
            let found = value.float();
            if !found.is_finite() || !(self.low, self.high).contains(&found) {
                let key = format!("{key}{part}");
                return Err(OutOfRange { key, value: value.text(), range: self }.into());
            }
        }
        Ok(())
    }
}

/// A number is out of its range.
#[derive(Debug, thiserror::Error)]
#[error("setting `{key}` is {value}, expected {range}")]
pub(super) struct OutOfRange {
    key: String,
    value: String,
    range: Range,
}

pub(super) trait Number: Copy {
    fn float(self) -> f64;
    fn text(self) -> String;
}

impl Number for f64 {
    fn float(self) -> f64 {
        self
    }

    fn text(self) -> String {
        number(self)
    }
}

impl Number for usize {
    fn float(self) -> f64 {
        self as f64
    }

    fn text(self) -> String {
        self.to_string()
    }
}

impl Number for u32 {
    fn float(self) -> f64 {
        f64::from(self)
    }

    fn text(self) -> String {
        self.to_string()
    }
}

/// A setting with numbers.
pub(super) trait Ranged {
    type Number: Number;

    /// Each number, with the end of its key.
    fn numbers(&self) -> Vec<(&'static str, Self::Number)>;
}

impl<N: Number> Ranged for N {
    type Number = N;

    fn numbers(&self) -> Vec<(&'static str, N)> {
        vec![("", *self)]
    }
}

impl<N: Number> Ranged for Option<N> {
    type Number = N;

    fn numbers(&self) -> Vec<(&'static str, N)> {
        self.iter().map(|&number| ("", number)).collect()
    }
}

impl<N: Number> Ranged for Vec<N> {
    type Number = N;

    fn numbers(&self) -> Vec<(&'static str, N)> {
        self.iter().map(|&number| ("", number)).collect()
    }
}

impl<N: Number> Ranged for (N, N) {
    type Number = N;

    fn numbers(&self) -> Vec<(&'static str, N)> {
        vec![(".0", self.0), (".1", self.1)]
    }
}

/// A number in few digits: a power of ten where it is very large or very small.
fn number(value: f64) -> String {
    let plain = value == 0.0 || !value.is_finite() || (1e-5..1e7).contains(&value.abs());
    if plain { value.to_string() } else { format!("{value:e}") }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let low = match self.low {
            Bound::Included(low) => format!("at least {}", number(low)),
            Bound::Excluded(low) => format!("above {}", number(low)),
            Bound::Unbounded => String::new(),
        };
        let high = match self.high {
            Bound::Included(high) => format!("at most {}", number(high)),
            Bound::Excluded(high) => format!("below {}", number(high)),
            Bound::Unbounded => String::new(),
        };
        match (self.low, self.high) {
            (Bound::Included(low), Bound::Included(high)) => {
                write!(f, "{} to {}", number(low), number(high))
            }
            (Bound::Unbounded, Bound::Unbounded) => f.write_str("a finite number"),
            (Bound::Unbounded, _) | (_, Bound::Unbounded) => write!(f, "{low}{high}"),
            _ => write!(f, "{low} and {high}"),
        }
    }
}

/// Ranges and sections are tested with the settings: in the schema, and in assignments.
#[cfg(test)]
mod tests {
    use crate::settings::Preset;

    #[test]
    fn not_a_number_is_out_of_range() {
        let mut config = Preset::ConstantWeight.config();
        config.methods.blob.gamma = Some(f64::NAN);
        let error = config.checked().unwrap_err().to_string();
        assert!(error.starts_with("setting `methods.blob.gamma` is NaN, expected "), "{error}");
    }
}
