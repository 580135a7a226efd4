//! Mean and standard deviation over seeds.

use crate::error::{Error, check_at_least, check_finite};

/// Arithmetic mean.
pub fn mean(values: &[f64]) -> Result<f64, Error> {
    check_at_least("values", values.len(), 1)?;
    check_finite("values", values)?;
    Ok(values.iter().sum::<f64>() / values.len() as f64)
}

/// Sample standard deviation, with `n − 1` in the denominator.
///
/// # Errors
///
/// Fewer than two values.
pub fn sample_sd(values: &[f64]) -> Result<f64, Error> {
    check_at_least("values", values.len(), 2)?;
    let mean = mean(values)?;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    Ok((squares / (values.len() - 1) as f64).sqrt())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn worked_example() {
        let values = [4.0, 1.0, 7.0];
        assert_eq!(mean(&values), Ok(4.0));
        assert_eq!(sample_sd(&values), Ok(3.0)); // √((0 + 9 + 9)/2)
    }

    #[test]
    fn too_few_values_are_errors() {
        assert_eq!(mean(&[]), Err(Error::length("values", 0, "at least 1")));
        assert_eq!(sample_sd(&[1.0]), Err(Error::length("values", 1, "at least 2")));
        assert!(matches!(sample_sd(&[1.0, f64::NAN]), Err(Error::Entry { index: 1, .. })));
    }
}
