//! The refusals of arguments, and what they say.
//!
//! Two kinds of mistake can reach this crate: slices whose lengths do not fit together
//! ([`ShapeError`]) and numbers outside the range a formula is defined on ([`ParameterError`]).
//! Functions that can meet both return [`Error`].

use thiserror::Error as ThisError;

/// Slices whose lengths do not fit together.
#[derive(Debug, Clone, PartialEq, Eq, ThisError)]
#[non_exhaustive]
pub enum ShapeError {
    /// A slice is longer or shorter than the formula needs.
    #[error("`{name}` holds {found} values, wanted {wanted}")]
    Length {
        /// The argument at fault.
        name: &'static str,
        /// The number of values the formula needs.
        wanted: usize,
        /// The number of values handed in.
        found: usize,
    },
    /// A flat slice that should hold `rank` rows of `width` values does not.
    #[error("`{name}` holds {len} values, which is not `rank x width` = {rank} x {width}")]
    Factor {
        /// The argument at fault.
        name: &'static str,
        /// The number of values handed in.
        len: usize,
        /// The number of rows wanted.
        rank: usize,
        /// The number of columns wanted.
        width: usize,
    },
}

/// A number outside the range a formula is defined on.
#[derive(Debug, Clone, PartialEq, ThisError)]
#[non_exhaustive]
pub enum ParameterError {
    /// The value lies outside `low..=high`, or is not a number.
    #[error("`{name}` is {}, {}", number(*.value), outside(*.low, *.high))]
    OutOfRange {
        /// The argument at fault.
        name: &'static str,
        /// The value handed in.
        value: f64,
        /// The smallest value allowed.
        low: f64,
        /// The largest value allowed.
        high: f64,
    },
    /// The slice has no entries, and the quantity has no value without them.
    #[error("`{name}` is empty, wanted at least one value")]
    Empty {
        /// The argument at fault.
        name: &'static str,
    },
    /// The matrix cannot be inverted in floating point.
    #[error("`{name}` of size {size} x {size} is singular to working precision")]
    Singular {
        /// The argument at fault.
        name: &'static str,
        /// The number of rows and columns.
        size: usize,
    },
    /// The symmetric matrix has no Cholesky factor.
    #[error("`{name}` of size {size} x {size} is not positive definite")]
    NotPositiveDefinite {
        /// The argument at fault.
        name: &'static str,
        /// The number of rows and columns.
        size: usize,
    },
    /// The index names no entry.
    #[error("`{name}` is {index}, wanted an index below {len}")]
    Index {
        /// The argument at fault.
        name: &'static str,
        /// The index handed in.
        index: usize,
        /// The number of entries it may point into.
        len: usize,
    },
    /// The same index appears more than once where each may appear once only.
    #[error("`{name}` holds the index {index} more than once")]
    Repeated {
        /// The argument at fault.
        name: &'static str,
        /// The repeated index.
        index: usize,
    },
    /// The value is not a number.
    #[error("`{name}` is not a number at index {index}")]
    NotANumber {
        /// The argument at fault.
        name: &'static str,
        /// The place of the first such value.
        index: usize,
    },
    /// The quantity has no value for this choice.
    #[error("`{name}` is undefined: {reason}")]
    Undefined {
        /// The quantity asked for.
        name: &'static str,
        /// Why it has no value.
        reason: &'static str,
    },
    /// The operation does not exist for this variational family.
    #[error("{operation} is not defined for the family `{family}`: {reason}")]
    Family {
        /// What was asked for.
        operation: &'static str,
        /// The family's name.
        family: &'static str,
        /// Why it is refused.
        reason: &'static str,
    },
}

/// A number in few digits: a power of ten where it is very large or very small.
fn number(value: f64) -> String {
    let plain = value == 0.0 || !value.is_finite() || (1e-5..1e16).contains(&value.abs());
    if plain { value.to_string() } else { format!("{value:e}") }
}

/// A range in words; the limits of the type are no limits to speak of.
fn outside(low: f64, high: f64) -> String {
    match (low == f64::MIN_POSITIVE, high == f64::MAX) {
        (false, false) => format!("outside {}..={}", number(low), number(high)),
        (true, false) => format!("wanted above 0 and at most {}", number(high)),
        (false, true) => format!("wanted at least {}", number(low)),
        (true, true) => "wanted above 0".to_owned(),
    }
}

/// Names that a message shows.
const NAMES: usize = 40;

/// Names in backticks, separated by commas; of many the first 40, and how many more there are.
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

/// Either kind of mistake, for functions that can meet both.
#[derive(Debug, Clone, PartialEq, ThisError)]
#[non_exhaustive]
pub enum Error {
    /// Slices whose lengths do not fit together.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// A number outside the range a formula is defined on.
    #[error(transparent)]
    Parameter(#[from] ParameterError),
}

/// Checks that a slice has the wanted length.
pub(crate) fn check_length(
    name: &'static str,
    found: usize,
    wanted: usize,
) -> Result<(), ShapeError> {
    if found == wanted { Ok(()) } else { Err(ShapeError::Length { name, wanted, found }) }
}

/// The number of rows of `width` values in `values`.
pub(crate) fn count_rows(
    name: &'static str,
    values: &[f64],
    width: usize,
) -> Result<usize, ShapeError> {
    let rank = values.len().checked_div(width).unwrap_or(0);
    if rank * width == values.len() {
        Ok(rank)
    } else {
        Err(ShapeError::Factor { name, len: values.len(), rank, width })
    }
}

/// Checks that a number lies in `low..=high`; NaN never does.
pub(crate) fn check_range(
    name: &'static str,
    value: f64,
    low: f64,
    high: f64,
) -> Result<(), ParameterError> {
    if value >= low && value <= high {
        Ok(())
    } else {
        Err(ParameterError::OutOfRange { name, value, low, high })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_the_argument_and_both_numbers() {
        let length = ShapeError::Length { name: "x", wanted: 6, found: 5 };
        assert_eq!(length.to_string(), "`x` holds 5 values, wanted 6");
        let factor = ShapeError::Factor { name: "a_mean", len: 5, rank: 2, width: 3 };
        assert_eq!(
            factor.to_string(),
            "`a_mean` holds 5 values, which is not `rank x width` = 2 x 3"
        );
        let wrapped = Error::from(ParameterError::OutOfRange {
            name: "beta",
            value: 1.5,
            low: 0.0,
            high: 1.0,
        });
        assert_eq!(wrapped.to_string(), "`beta` is 1.5, outside 0..=1");
    }

    #[test]
    fn of_many_names_some_are_shown() {
        let names = |n: usize| (0..n).map(|i| i.to_string());
        assert!(quoted(names(40)).ends_with(", `39`"));
        assert!(quoted(names(1_000_000)).ends_with(", `39` and 999960 more"));
        assert_eq!(quoted(names(0)), "");
    }

    #[test]
    fn a_range_without_limits_is_said_in_few_digits() {
        let out = |value, low, high| ParameterError::OutOfRange { name: "x", value, low, high };
        for (error, wanted) in [
            (out(0.0, f64::MIN_POSITIVE, f64::MAX), "`x` is 0, wanted above 0"),
            (out(-1e-300, 0.0, f64::MAX), "`x` is -1e-300, wanted at least 0"),
            (out(9.0, f64::MIN_POSITIVE, 8.0), "`x` is 9, wanted above 0 and at most 8"),
        ] {
            assert_eq!(error.to_string(), wanted);
        }
    }

    #[test]
    fn a_range_includes_its_ends_and_never_nan() {
        assert!(check_range("v", 0.0, 0.0, 1.0).is_ok());
        assert!(check_range("v", 1.0, 0.0, 1.0).is_ok());
        assert!(check_range("v", 1.0 + f64::EPSILON, 0.0, 1.0).is_err());
        assert!(check_range("v", -f64::MIN_POSITIVE, 0.0, 1.0).is_err());
        assert!(check_range("v", f64::NAN, 0.0, 1.0).is_err());
    }

    #[test]
    fn rows_are_whole() {
        assert_eq!(count_rows("x", &[0.0; 6], 3), Ok(2));
        assert!(count_rows("x", &[0.0; 7], 3).is_err());
        assert_eq!(count_rows("x", &[], 0), Ok(0));
        assert!(count_rows("x", &[0.0], 0).is_err());
    }

    #[test]
    fn a_length_must_match_exactly() {
        assert!(check_length("x", 3, 3).is_ok());
        assert!(check_length("x", 2, 3).is_err());
        assert!(check_length("x", 4, 3).is_err());
    }
}
