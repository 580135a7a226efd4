//! The error of this crate, and the checks of arguments that return it.

use std::fmt::Display;
use std::ops::{Bound, RangeBounds};

use thiserror::Error as ThisError;

/// Argument outside the domain of a formula.
///
/// # Examples
///
/// ```
/// use lrvd_core::Error;
/// use lrvd_core::prune::PruneRule;
///
/// let error = PruneRule::new(f64::NAN, 0).unwrap_err();
/// assert!(matches!(error, Error::OutOfRange { name: "log_alpha_threshold", .. }));
/// assert_eq!(error.to_string(), "`log_alpha_threshold` is NaN, expected a finite number");
/// ```
#[derive(Debug, Clone, PartialEq, ThisError)]
#[non_exhaustive]
pub enum Error {
    /// A number outside its range, or one that is not finite.
    #[error("`{name}` is {found}, {range}")]
    OutOfRange {
        /// The argument.
        name: &'static str,
        /// Its value.
        found: String,
        /// The range that it is outside of, in words.
        range: String,
    },
    /// A slice of another length than the formula needs.
    #[error("`{name}` has length {found}, expected {expected}")]
    Length {
        /// The argument.
        name: String,
        /// Its length.
        found: usize,
        /// The length that the formula needs.
        expected: String,
    },
    /// One value of a slice.
    #[error("`{name}` is {found} at index {index}, expected {expected}")]
    Entry {
        /// The argument.
        name: String,
        /// The place of the first such value.
        index: usize,
        /// The value.
        found: String,
        /// The values allowed.
        expected: String,
    },
    /// A quantity that has no value for these arguments.
    #[error("`{name}` {reason}")]
    Undefined {
        /// The quantity.
        name: String,
        /// Why it has no value.
        reason: String,
    },
}

impl Error {
    /// [`Error::Length`].
    pub fn length(name: impl Into<String>, found: usize, expected: impl Display) -> Self {
        Self::Length { name: name.into(), found, expected: expected.to_string() }
    }

    /// [`Error::Entry`].
    pub fn entry(
        name: impl Into<String>,
        index: usize,
        value: impl Number,
        expected: impl Display,
    ) -> Self {
        let found = value.text();
        Self::Entry { name: name.into(), index, found, expected: expected.to_string() }
    }

    /// [`Error::Undefined`].
    pub fn undefined(name: impl Into<String>, reason: impl Display) -> Self {
        Self::Undefined { name: name.into(), reason: reason.to_string() }
    }
}

/// A number that has a range: a count or an `f64`.
pub trait Number: Copy + PartialOrd + Display {
    /// `false` of an infinity and of NaN.
    fn is_finite(self) -> bool {
        true
    }

    /// The number in few digits.
    fn text(self) -> String {
        self.to_string()
    }
}

impl Number for usize {}
impl Number for u64 {}
impl Number for u32 {}

impl Number for f64 {
    fn is_finite(self) -> bool {
        self.is_finite()
    }

    /// A power of ten where the number is very large or very small.
    fn text(self) -> String {
        let plain = self == 0.0 || !self.is_finite() || (1e-5..1e16).contains(&self.abs());
        if plain { self.to_string() } else { format!("{self:e}") }
    }
}

/// Numbers above `low`, which is not one of them.
pub fn above<T>(low: T) -> (Bound<T>, Bound<T>) {
    (Bound::Excluded(low), Bound::Unbounded)
}

/// Numbers above `low`, which is not one of them, and at most `high`.
pub fn above_up_to<T>(low: T, high: T) -> (Bound<T>, Bound<T>) {
    (Bound::Excluded(low), Bound::Included(high))
}

/// A range in words.
fn in_words<T: Number>(range: &impl RangeBounds<T>) -> String {
    let (low, high) = (range.start_bound(), range.end_bound());
    if let (Bound::Included(low), Bound::Included(high)) = (low, high) {
        return format!("outside {}..={}", low.text(), high.text());
    }
    let low = match low {
        Bound::Included(low) => Some(format!("at least {}", low.text())),
        Bound::Excluded(low) => Some(format!("above {}", low.text())),
        Bound::Unbounded => None,
    };
    let high = match high {
        Bound::Included(high) => Some(format!("at most {}", high.text())),
        Bound::Excluded(high) => Some(format!("below {}", high.text())),
        Bound::Unbounded => None,
    };
    let ends: Vec<String> = low.into_iter().chain(high).collect();
    let words = if ends.is_empty() { "a finite number".to_owned() } else { ends.join(" and ") };
    format!("expected {words}")
}

/// Names that a message shows.
const NAMES: usize = 10;

/// Names in backticks, separated by commas; of many the first ten, and how many more there are.
///
/// ```
/// assert_eq!(lrvd_core::error::quoted(["a", "b"]), "`a`, `b`");
/// ```
pub fn quoted<T: AsRef<str>>(names: impl IntoIterator<Item = T>) -> String {
    let mut names = names.into_iter();
    let shown: Vec<String> =
        names.by_ref().take(NAMES).map(|name| format!("`{}`", name.as_ref())).collect();
    match names.count() {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// Checks that a number is finite and in `range`.
///
/// ```
/// use lrvd_core::error::{above, check_range};
///
/// assert!(check_range("rank", 8, 1..=64_usize).is_ok());
/// let error = check_range("scale", 0.0, above(0.0)).unwrap_err();
/// assert_eq!(error.to_string(), "`scale` is 0, expected above 0");
/// ```
pub fn check_range<T: Number>(
    name: &'static str,
    value: T,
    range: impl RangeBounds<T>,
) -> Result<(), Error> {
    if value.is_finite() && range.contains(&value) {
        Ok(())
    } else {
        Err(Error::OutOfRange { name, found: value.text(), range: in_words(&range) })
    }
}

pub(crate) fn check_length(name: &str, found: usize, expected: usize) -> Result<(), Error> {
    if found == expected { Ok(()) } else { Err(Error::length(name, found, expected)) }
}

pub(crate) fn check_at_least(name: &str, found: usize, least: usize) -> Result<(), Error> {
    if found >= least {
        Ok(())
    } else {
        Err(Error::length(name, found, format!("at least {least}")))
    }
}

/// The quotient of the length of `values` and `count`: the rows of a width, or the width of a number of rows. There may be none.
pub(crate) fn row_count(name: &str, values: &[f64], count: usize) -> Result<usize, Error> {
    let times = values.len().checked_div(count).unwrap_or(0);
    if times * count == values.len() {
        Ok(times)
    } else {
        Err(Error::length(name, values.len(), format!("a multiple of {count}")))
    }
}

/// The number of rows of `size` values in `len` values; both are positive.
pub(crate) fn at_least_one_row(
    name: &str,
    len: usize,
    size_name: &'static str,
    size: usize,
) -> Result<usize, Error> {
    check_range(size_name, size, 1..)?;
    check_at_least(name, len, 1)?;
    if !len.is_multiple_of(size) {
        return Err(Error::length(name, len, format!("a multiple of `{size_name}` = {size}")));
    }
    Ok(len / size)
}

/// Checks that two slices that belong together have the same length.
pub(crate) fn check_same_length(
    name: &str,
    found: usize,
    other: &str,
    expected: usize,
) -> Result<(), Error> {
    let expected_text = || format!("{expected} as `{other}`");
    if found == expected { Ok(()) } else { Err(Error::length(name, found, expected_text())) }
}

/// Checks that every value is one that `allowed` accepts.
fn check_values(
    name: &str,
    values: &[f64],
    expected: &str,
    allowed: impl Fn(f64) -> bool,
) -> Result<(), Error> {
    match values.iter().position(|&value| !allowed(value)) {
        Some(index) => Err(Error::entry(name, index, values[index], expected)),
        None => Ok(()),
    }
}

pub(crate) fn check_finite(name: &str, values: &[f64]) -> Result<(), Error> {
    check_values(name, values, "a finite number", f64::is_finite)
}

pub(crate) fn check_numbers(name: &str, values: &[f64]) -> Result<(), Error> {
    check_values(name, values, "a number", |value| !value.is_nan())
}

/// Checks that every value is in `low..=high`; NaN never is.
pub(crate) fn check_all_in(name: &str, values: &[f64], low: f64, high: f64) -> Result<(), Error> {
    check_values(name, values, &format!("{low}..={high}"), |value| (low..=high).contains(&value))
}

pub(crate) fn check_classes(name: &str, values: &[usize], n_classes: usize) -> Result<(), Error> {
    match values.iter().position(|&class| class >= n_classes) {
        Some(row) => {
            let expected = format!("a class below {n_classes}");
            Err(Error::entry(name, row, values[row], expected))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn messages_name_the_argument_what_was_found_and_what_was_expected() {
        let above_to_eight = above_up_to(0.0, 8.0);
        for (error, message) in [
            (check_range("x", 1.5, 0.0..=1.0).unwrap_err(), "`x` is 1.5, outside 0..=1"),
            (check_range("x", 7, 0..=5_u64).unwrap_err(), "`x` is 7, outside 0..=5"),
            (check_range("x", 0.0, above(0.0)).unwrap_err(), "`x` is 0, expected above 0"),
            (check_range("x", -1e-300, 0.0..).unwrap_err(), "`x` is -1e-300, expected at least 0"),
            (
                check_range("x", 9.0, above_to_eight).unwrap_err(),
                "`x` is 9, expected above 0 and at most 8",
            ),
            (
                check_range("x", 1.0, 0.0..1.0).unwrap_err(),
                "`x` is 1, expected at least 0 and below 1",
            ),
            (
                check_range("x", f64::INFINITY, ..).unwrap_err(),
                "`x` is inf, expected a finite number",
            ),
            (Error::length("x", 5, 6), "`x` has length 5, expected 6"),
            (
                at_least_one_row("x", 5, "n_classes", 2).unwrap_err(),
                "`x` has length 5, expected a multiple of `n_classes` = 2",
            ),
            (
                check_finite("x", &[0.0, f64::NAN]).unwrap_err(),
                "`x` is NaN at index 1, expected a finite number",
            ),
            (
                check_classes("x", &[2], 2).unwrap_err(),
                "`x` is 2 at index 0, expected a class below 2",
            ),
            (Error::undefined("x", "is singular"), "`x` is singular"),
        ] {
            assert_eq!(error.to_string(), message);
        }
    }

    #[test]
    fn of_many_names_some_are_shown() {
        let names = |n: usize| (0..n).map(|i| i.to_string());
        assert!(quoted(names(10)).ends_with(", `9`"));
        assert!(quoted(names(1_000_000)).ends_with(", `9` and 999990 more"));
        assert_eq!(quoted(names(0)), "");
    }

    #[test]
    fn a_range_includes_its_ends_and_never_nan() {
        for (value, within) in [
            (0.0, true),
            (1.0, true),
            (1.0 + f64::EPSILON, false),
            (-f64::MIN_POSITIVE, false),
            (f64::NAN, false),
        ] {
            assert_eq!(check_range("v", value, 0.0..=1.0).is_ok(), within, "{value}");
        }
    }

    #[test]
    fn rows_are_whole() {
        assert_eq!(row_count("x", &[0.0; 6], 3), Ok(2));
        assert_eq!(row_count("x", &[], 0), Ok(0));
        assert_eq!(at_least_one_row("x", 6, "size", 3), Ok(2));
        assert!(row_count("x", &[0.0; 7], 3).is_err() && row_count("x", &[0.0], 0).is_err());
        assert!(
            at_least_one_row("x", 0, "size", 3).is_err()
                && at_least_one_row("x", 6, "size", 0).is_err()
        );
        assert!(check_length("x", 3, 3).is_ok() && check_length("x", 2, 3).is_err());
    }
}
