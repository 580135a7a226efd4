//! The median, also of an even count.

/// Which value stands for the middle of an even number of values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MedianKind {
    /// The lower of the two middle values, as `torch.median` returns it.
    #[default]
    Lower,
    /// The mean of the two middle values.
    Midpoint,
}

impl MedianKind {
    /// The median of `values`, or `None` if there are none.
    pub fn of(self, values: &[f64]) -> Option<f64> {
        match self {
            Self::Lower => lower_median(values),
            Self::Midpoint => midpoint_median(values),
        }
    }
}

/// The sorted value at index `(n − 1) / 2`, rounded down; `None` for an empty slice.
///
/// A NaN among the values makes the median NaN, whatever its place.
pub fn lower_median(values: &[f64]) -> Option<f64> {
    let sorted = sorted(values)?;
    Some(sorted[(sorted.len() - 1) / 2])
}

/// The mean of the two middle values (the middle one for an odd count); `None` for an empty slice.
///
/// A NaN among the values makes the median NaN, whatever its place.
pub fn midpoint_median(values: &[f64]) -> Option<f64> {
    let sorted = sorted(values)?;
    let n = sorted.len();
    let (low, high) = (sorted[(n - 1) / 2], sorted[n / 2]);
    Some(if low == high { low } else { 0.5 * low + 0.5 * high })
}

/// A sorted copy; all NaN if one value is, so that no caller takes a median of the rest by accident.
fn sorted(values: &[f64]) -> Option<Vec<f64>> {
    if values.is_empty() {
        return None;
    }
    if values.iter().any(|v| v.is_nan()) {
        return Some(vec![f64::NAN; values.len()]);
    }
    let mut copy = values.to_vec();
    copy.sort_by(f64::total_cmp);
    Some(copy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_counts_agree_and_even_counts_differ() {
        assert_eq!(lower_median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(midpoint_median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(lower_median(&[4.0, 1.0, 2.0, 3.0]), Some(2.0));
        assert_eq!(midpoint_median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(MedianKind::default().of(&[4.0, 1.0]), Some(1.0));
        assert_eq!(MedianKind::Midpoint.of(&[4.0, 1.0]), Some(2.5));
    }

    #[test]
    fn empty_infinite_and_nan_values() {
        assert_eq!(lower_median(&[]), None);
        assert_eq!(midpoint_median(&[f64::INFINITY, f64::INFINITY]), Some(f64::INFINITY));
        assert!(lower_median(&[1.0, f64::NAN, 2.0]).is_some_and(f64::is_nan));
    }
}
