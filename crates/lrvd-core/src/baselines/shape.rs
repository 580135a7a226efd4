//! Checks that several baselines share.

use crate::error::ParameterError;
pub(super) use crate::error::count_rows;

/// No value is NaN or infinite.
pub(super) fn check_finite(name: &'static str, values: &[f64]) -> Result<(), ParameterError> {
    match values.iter().position(|v| !v.is_finite()) {
        Some(index) => Err(ParameterError::NotANumber { name, index }),
        None => Ok(()),
    }
}

/// `factor · values`.
pub(super) fn scaled(values: &[f64], factor: f64) -> Vec<f64> {
    values.iter().map(|v| factor * v).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finite_values_are_told_apart() {
        assert!(check_finite("x", &[0.0, f64::MAX]).is_ok());
        assert!(check_finite("x", &[0.0, f64::INFINITY]).is_err());
        assert_eq!(scaled(&[1.0, -2.0], 0.5), [0.5, -1.0]);
    }
}
