//! Long sums that are exact to the last digits, and medians.

/// Sums all terms, with a second word for what rounding dropped (Neumaier's variant of Kahan).
///
/// # Numerics
///
/// The error does not grow with the number of terms. A sum that becomes infinite or NaN stays so; 0 without terms.
///
/// # Examples
///
/// ```
/// # use lrvd_core::numeric::compensated_sum;
/// assert_eq!(compensated_sum([1.0, 1e100, 1.0, -1e100]), 2.0);
/// ```
pub fn compensated_sum(terms: impl IntoIterator<Item = f64>) -> f64 {
    let (mut sum, mut dropped) = (0.0_f64, 0.0);
    for term in terms {
        let next = sum + term;
        if next.is_finite() {
            dropped +=
                if sum.abs() >= term.abs() { (sum - next) + term } else { (term - next) + sum };
        }
        sum = next;
    }
    if sum.is_finite() { sum + dropped } else { sum }
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
    /// The median of `values`, or `None` if there are none. NaN if one of them is, whatever its place.
    pub fn of(self, values: &[f64]) -> Option<f64> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let n = sorted.len();
        let (low, high) = (*sorted.get(n.saturating_sub(1) / 2)?, sorted[n / 2]);
        Some(match self {
            _ if values.iter().any(|value| value.is_nan()) => f64::NAN,
            Self::Midpoint if low != high => 0.5 * low + 0.5 * high,
            _ => low,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_infinite_and_nan_sums() {
        assert_eq!(compensated_sum([]), 0.0);
        assert_eq!(compensated_sum([1.0, f64::INFINITY, 2.0]), f64::INFINITY);
        assert!(compensated_sum([f64::NAN, 1.0]).is_nan());
    }

    #[test]
    fn medians() {
        let both = |values: &[f64]| [MedianKind::Lower.of(values), MedianKind::Midpoint.of(values)];
        assert_eq!(both(&[3.0, 1.0, 2.0]), [Some(2.0); 2]);
        assert_eq!(both(&[4.0, 1.0, 2.0, 3.0]), [Some(2.0), Some(2.5)]);
        assert_eq!(both(&[f64::INFINITY; 2]), [Some(f64::INFINITY); 2]);
        assert_eq!(both(&[]), [None; 2]);
        assert!(MedianKind::default().of(&[1.0, f64::NAN, 2.0]).is_some_and(f64::is_nan));
    }
}
