//! Long sums that are exact to the last digits.

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
}
