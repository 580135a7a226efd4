//! Checks that several baselines share.

use crate::error::ParameterError;
pub(super) use crate::error::count_rows;

/// Every value is 1 or −1.
pub(super) fn check_signs(name: &'static str, values: &[f64]) -> Result<(), ParameterError> {
    match values.iter().position(|v| v.abs() != 1.0) {
        Some(index) => Err(ParameterError::NotASign { name, index, value: values[index] }),
        None => Ok(()),
    }
}

/// No value is NaN or infinite.
pub(super) fn check_finite(name: &'static str, values: &[f64]) -> Result<(), ParameterError> {
    match values.iter().position(|v| !v.is_finite()) {
        Some(index) => Err(ParameterError::NotANumber { name, index }),
        None => Ok(()),
    }
}

/// A column sum: `out[j] += Σ_row values[row, j]`.
pub(super) fn column_sums(values: &[f64], width: usize) -> Vec<f64> {
    let mut out = vec![0.0; width];
    if width > 0 {
        for row in values.chunks_exact(width) {
            for (sum, value) in out.iter_mut().zip(row) {
                *sum += value;
            }
        }
    }
    out
}

/// `factor · values`.
pub(super) fn scaled(values: &[f64], factor: f64) -> Vec<f64> {
    values.iter().map(|v| factor * v).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs_and_finite_values_are_told_apart() {
        assert_eq!(check_signs("s", &[1.0, -1.0]), Ok(()));
        for wrong in [0.0, 0.5, f64::NAN] {
            let error = check_signs("s", &[1.0, wrong]);
            assert!(matches!(error, Err(ParameterError::NotASign { index: 1, .. })), "{wrong}");
        }
        assert!(check_finite("x", &[0.0, f64::MAX]).is_ok());
        assert!(check_finite("x", &[0.0, f64::INFINITY]).is_err());
    }

    #[test]
    fn columns_are_summed() {
        assert_eq!(column_sums(&[1.0, 2.0, 3.0, 4.0], 2), [4.0, 6.0]);
        assert!(column_sums(&[], 0).is_empty());
        assert_eq!(scaled(&[1.0, -2.0], 0.5), [0.5, -1.0]);
    }
}
