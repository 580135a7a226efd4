//! Long sums that are exact to the last digits, and medians.

/// A running sum with a second word for what rounding dropped (Neumaier's variant of Kahan).
///
/// # Numerics
///
/// The error does not grow with the number of terms. A sum that becomes infinite or NaN stays so.
///
/// # Examples
///
/// ```
/// # use lrvd_core::numeric::CompensatedSum;
/// let mut sum = CompensatedSum::default();
/// for term in [1.0, 1e100, 1.0, -1e100] {
///     sum.add(term);
/// }
/// assert_eq!(sum.value(), 2.0);
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct CompensatedSum {
    sum: f64,
    dropped: f64,
}

impl CompensatedSum {
    /// Adds one term.
    pub fn add(&mut self, term: f64) {
        let next = self.sum + term;
        if next.is_finite() {
            self.dropped += if self.sum.abs() >= term.abs() {
                (self.sum - next) + term
            } else {
                (term - next) + self.sum
            };
        }
        self.sum = next;
    }

    /// The sum of all terms added so far; 0 if there were none.
    pub fn value(&self) -> f64 {
        if self.sum.is_finite() { self.sum + self.dropped } else { self.sum }
    }
}

/// Sums all terms with compensation.
pub fn compensated_sum(terms: impl IntoIterator<Item = f64>) -> f64 {
    let mut sum = CompensatedSum::default();
    for term in terms {
        sum.add(term);
    }
    sum.value()
}

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
    fn small_terms_survive_large_ones() {
        assert_eq!(compensated_sum([1e16, 1.0, 1.0, -1e16]), 2.0);
        assert_ne!([1e16, 1.0, 1.0, -1e16].iter().sum::<f64>(), 2.0);
    }

    #[test]
    fn empty_infinite_and_nan_sums() {
        assert_eq!(compensated_sum([]), 0.0);
        assert_eq!(compensated_sum([1.0, f64::INFINITY, 2.0]), f64::INFINITY);
        assert!(compensated_sum([f64::NAN, 1.0]).is_nan());
    }

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
    fn medians_of_empty_infinite_and_nan_values() {
        assert_eq!(lower_median(&[]), None);
        assert_eq!(midpoint_median(&[f64::INFINITY, f64::INFINITY]), Some(f64::INFINITY));
        assert!(lower_median(&[1.0, f64::NAN, 2.0]).is_some_and(f64::is_nan));
    }
}
