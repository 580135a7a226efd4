//! The error of this crate, and the checks of arguments that return it.

use std::fmt::Display;

use thiserror::Error as ThisError;

/// Argument outside the domain of a formula.
#[derive(Debug, Clone, PartialEq, ThisError)]
#[non_exhaustive]
pub enum Error {
    /// A number outside `low..=high`, or NaN.
    #[error("`{name}` is {}, {}", number(*.value), outside(*.low, *.high))]
    OutOfRange {
        /// The argument.
        name: &'static str,
        /// Its value.
        value: f64,
        /// The smallest value allowed.
        low: f64,
        /// The largest value allowed.
        high: f64,
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
    #[error("`{name}` is {} at index {index}, expected {expected}", number(*.value))]
    Entry {
        /// The argument.
        name: String,
        /// The place of the first such value.
        index: usize,
        /// The value.
        value: f64,
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
        value: f64,
        expected: impl Display,
    ) -> Self {
        Self::Entry { name: name.into(), index, value, expected: expected.to_string() }
    }

    /// [`Error::Undefined`].
    pub fn undefined(name: impl Into<String>, reason: impl Display) -> Self {
        Self::Undefined { name: name.into(), reason: reason.to_string() }
    }
}

/// A number in few digits: a power of ten where it is very large or very small.
fn number(value: f64) -> String {
    let plain = value == 0.0 || !value.is_finite() || (1e-5..1e16).contains(&value.abs());
    if plain { value.to_string() } else { format!("{value:e}") }
}

/// A range in words, without the limits of the type.
fn outside(low: f64, high: f64) -> String {
    match (low == f64::MIN_POSITIVE, high == f64::MAX) {
        (false, false) => format!("outside {}..={}", number(low), number(high)),
        (true, false) => format!("expected above 0 and at most {}", number(high)),
        (false, true) => format!("expected at least {}", number(low)),
        (true, true) => "expected above 0".to_owned(),
    }
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

/// Checks that a number is in `low..=high`; NaN never is.
pub fn check_range(name: &'static str, value: f64, low: f64, high: f64) -> Result<(), Error> {
    if value >= low && value <= high {
        Ok(())
    } else {
        Err(Error::OutOfRange { name, value, low, high })
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
    check_range(size_name, size as f64, 1.0, f64::MAX)?;
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
            Err(Error::entry(name, row, values[row] as f64, expected))
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
        let out = |value, low, high| Error::OutOfRange { name: "x", value, low, high };
        for (error, message) in [
            (out(1.5, 0.0, 1.0), "`x` is 1.5, outside 0..=1"),
            (out(0.0, f64::MIN_POSITIVE, f64::MAX), "`x` is 0, expected above 0"),
            (out(-1e-300, 0.0, f64::MAX), "`x` is -1e-300, expected at least 0"),
            (out(9.0, f64::MIN_POSITIVE, 8.0), "`x` is 9, expected above 0 and at most 8"),
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
            assert_eq!(check_range("v", value, 0.0, 1.0).is_ok(), within, "{value}");
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
