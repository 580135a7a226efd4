//! Checks shared by the metrics.

use super::error::MetricError;

/// Number of rows of `size` values; both must be positive.
pub(super) fn rows(
    name: &'static str,
    len: usize,
    size_name: &'static str,
    size: usize,
) -> Result<usize, MetricError> {
    if size == 0 {
        return Err(MetricError::Zero { name: size_name });
    }
    at_least(name, len, 1)?;
    if !len.is_multiple_of(size) {
        return Err(MetricError::Rows { name, size_name, size, found: len });
    }
    Ok(len / size)
}

pub(super) fn at_least(name: &'static str, found: usize, wanted: usize) -> Result<(), MetricError> {
    if found >= wanted { Ok(()) } else { Err(MetricError::TooFew { name, wanted, found }) }
}

pub(super) fn same_length(
    name: &'static str,
    found: usize,
    other: &'static str,
    wanted: usize,
) -> Result<(), MetricError> {
    if found == wanted { Ok(()) } else { Err(MetricError::Length { name, other, wanted, found }) }
}

pub(super) fn classes(
    name: &'static str,
    values: &[usize],
    n_classes: usize,
) -> Result<(), MetricError> {
    match values.iter().position(|&class| class >= n_classes) {
        Some(row) => Err(MetricError::Class { name, row, found: values[row], n_classes }),
        None => Ok(()),
    }
}

pub(super) fn finite(name: &'static str, values: &[f64]) -> Result<(), MetricError> {
    match values.iter().position(|value| !value.is_finite()) {
        Some(index) => Err(MetricError::NonFinite { name, index, value: values[index] }),
        None => Ok(()),
    }
}

/// Every value in `low..=high`; NaN never is.
pub(super) fn range(
    name: &'static str,
    values: &[f64],
    low: f64,
    high: f64,
) -> Result<(), MetricError> {
    match values.iter().position(|value| !(low..=high).contains(value)) {
        Some(index) => Err(MetricError::Range { name, index, value: values[index], low, high }),
        None => Ok(()),
    }
}
