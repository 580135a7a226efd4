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

#[cfg(test)]
mod tests {
    #![allow(unreachable_pub)]
    use super::*;

    settings! {
        /// Some numbers.
        pub struct Numbers {
            /// A share.
            share: f64 = 0.5, in 0.0..=1.0;
            /// A share that is not all.
            below: f64 = 0.5, in 0.0..1.0;
            /// A width.
            width: Option<f64> = None, in POSITIVE;
            /// A step.
            step: f64 = 1.0, in positive_to(2.0);
            /// A decay.
            decay: f64 = 0.0, in 0.0..;
            /// A precision.
            precision: f64 = 1.0, in 0.0..=1e12;
            /// Some counts.
            counts: Vec<usize> = vec![1], in 1..;
        }
    }

    settings! {
        /// A section in a section.
        pub struct Outer {
            /// The inner one.
            inner: Numbers = Numbers { below: 0.25, ..Numbers::default() };
            /// A word.
            word: String = String::new();
        }
    }

    #[test]
    fn the_table_has_names_ranges_and_sections() {
        let root =
            Field { name: String::new(), optional: false, range: None, fields: Outer::fields() };
        let width = root.at("inner.width").unwrap();
        assert_eq!((width.optional, width.range), (true, Some(Range::new::<f64>(&POSITIVE))));
        let parts = |name| root.at(name).map(|field| field.fields.len());
        assert_eq!(["inner", "word", "inner.word"].map(parts), [Some(7), Some(0), None]);
        let mut outer = Outer::default();
        assert_eq!(outer.inner.below, 0.25);
        assert!(outer.check("").is_ok());
        outer.inner.share = 2.0;
        let error = outer.check("").unwrap_err().to_string();
        assert!(error.starts_with("setting `inner.share` is 2, "), "{error}");
    }

    type Change = fn(&mut Numbers);

    #[test]
    fn ranges_hold_at_their_limits_and_are_said_in_few_words() {
        let with = |change: Change| {
            let mut numbers = Numbers::default();
            change(&mut numbers);
            numbers.check("a").map_err(|error| error.to_string())
        };
        let inside: [Change; 4] =
            [|n| n.share = 0.0, |n| n.share = 1.0, |n| n.width = Some(1e300), |n| n.step = 2.0];
        assert!(inside.into_iter().all(|change| with(change).is_ok()));
        let outside: [(Change, &str); 8] = [
            (|n| n.share = -1e-300, "share` is -1e-300, expected 0 to 1"),
            (|n| n.share = 1.0 + f64::EPSILON, "share` is 1.0000000000000002, expected 0 to 1"),
            (|n| n.below = 1.0, "below` is 1, expected at least 0 and below 1"),
            (|n| n.width = Some(0.0), "width` is 0, expected above 0"),
            (|n| n.step = 7.0, "step` is 7, expected above 0 and at most 2"),
            (|n| n.decay = f64::NAN, "decay` is NaN, expected at least 0"),
            (|n| n.precision = f64::INFINITY, "precision` is inf, expected 0 to 1e12"),
            (|n| n.counts = vec![3, 0], "counts` is 0, expected at least 1"),
        ];
        for (change, expected) in outside {
            assert_eq!(with(change).unwrap_err(), format!("setting `a.{expected}"));
        }
    }
}
