//! Ranges of settings, and the words for a number outside its range.

use std::ops::{Bound, RangeBounds};

use crate::error::Result;

/// A number is out of its range; the schema of the settings takes the ranges from it.
#[derive(Debug, thiserror::Error)]
#[error("setting `{key}` is {value}, wanted {}", words(*low, *high))]
pub(super) struct OutOfRange {
    pub key: String,
    pub value: String,
    pub low: Bound<f64>,
    pub high: Bound<f64>,
}

/// Above 0, without an upper end.
pub(super) const POSITIVE: (Bound<f64>, Bound<f64>) = (Bound::Excluded(0.0), Bound::Unbounded);

/// Above 0, up to `high`.
pub(super) const fn positive_to(high: f64) -> (Bound<f64>, Bound<f64>) {
    (Bound::Excluded(0.0), Bound::Included(high))
}

/// Refuses a number outside `range`, and one that is not finite.
pub(super) fn in_range(key: &str, value: f64, range: impl RangeBounds<f64>) -> Result<()> {
    if value.is_finite() && range.contains(&value) {
        return Ok(());
    }
    let (low, high) = (range.start_bound().cloned(), range.end_bound().cloned());
    Err(OutOfRange { key: key.to_owned(), value: number(value), low, high }.into())
}

pub(super) fn count_in_range(
    key: &str,
    value: usize,
    range: impl RangeBounds<usize>,
) -> Result<()> {
    if range.contains(&value) {
        return Ok(());
    }
    let bound = |bound: Bound<&usize>| bound.map(|&count| count as f64);
    let (low, high) = (bound(range.start_bound()), bound(range.end_bound()));
    Err(OutOfRange { key: key.to_owned(), value: value.to_string(), low, high }.into())
}

/// A number in few digits: a power of ten where it is very large or very small.
fn number(value: f64) -> String {
    let plain = value == 0.0 || !value.is_finite() || (1e-5..1e7).contains(&value.abs());
    if plain { value.to_string() } else { format!("{value:e}") }
}

fn words(low: Bound<f64>, high: Bound<f64>) -> String {
    match (low.map(number), high.map(number)) {
        (Bound::Included(low), Bound::Included(high)) => format!("{low} to {high}"),
        (Bound::Unbounded, Bound::Unbounded) => "a finite number".to_owned(),
        (low, high) => {
            let low = match low {
                Bound::Included(low) => format!("at least {low}"),
                Bound::Excluded(low) => format!("above {low}"),
                Bound::Unbounded => String::new(),
            };
            let high = match high {
                Bound::Included(high) => format!("at most {high}"),
                Bound::Excluded(high) => format!("below {high}"),
                Bound::Unbounded => String::new(),
            };
            let and = if low.is_empty() || high.is_empty() { "" } else { " and " };
            format!("{low}{and}{high}")
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn ranges_hold_at_their_limits() {
        for inside in [0.5, 0.0, 1.0] {
            assert!(in_range("v", inside, 0.0..=1.0).is_ok());
        }
        for outside in [-f64::MIN_POSITIVE, 1.0 + f64::EPSILON, f64::NAN, f64::INFINITY] {
            let failed = in_range("v", outside, 0.0..=1.0).unwrap_err();
            assert!(failed.is::<OutOfRange>(), "{failed}");
        }
        assert!(in_range("v", 0.0, POSITIVE).is_err() && in_range("v", 1e300, POSITIVE).is_ok());
    }

    #[test]
    fn a_range_is_said_in_few_words() {
        for (failed, wanted) in [
            (in_range("a.b", -1.0, 0.0..=1.0), "setting `a.b` is -1, wanted 0 to 1"),
            (in_range("a", 1.0, 0.0..1.0), "setting `a` is 1, wanted at least 0 and below 1"),
            (in_range("a", 0.0, POSITIVE), "setting `a` is 0, wanted above 0"),
            (
                in_range("a", 7.0, positive_to(2.0)),
                "setting `a` is 7, wanted above 0 and at most 2",
            ),
            (in_range("a", f64::NAN, 0.0..), "setting `a` is NaN, wanted at least 0"),
            (in_range("a", -1e-300, 0.0..=1e12), "setting `a` is -1e-300, wanted 0 to 1e12"),
            (count_in_range("a", 0, 1..), "setting `a` is 0, wanted at least 1"),
        ] {
            assert_eq!(failed.unwrap_err().to_string(), wanted);
        }
    }
}
