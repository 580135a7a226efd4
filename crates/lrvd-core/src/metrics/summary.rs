//! One number for several seeds.

use super::check;
use super::error::MetricError;

/// Arithmetic mean.
///
/// # Errors
///
/// [`MetricError::TooFew`] without values, [`MetricError::NonFinite`].
pub fn mean(values: &[f64]) -> Result<f64, MetricError> {
    check::at_least("values", values.len(), 1)?;
    check::finite("values", values)?;
    Ok(values.iter().sum::<f64>() / values.len() as f64)
}

/// Sample standard deviation, with `n − 1` in the denominator.
///
/// # Errors
///
/// [`MetricError::TooFew`] below two values, [`MetricError::NonFinite`].
pub fn sample_sd(values: &[f64]) -> Result<f64, MetricError> {
    check::at_least("values", values.len(), 2)?;
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
    fn too_few_values_are_refused() {
        assert!(matches!(mean(&[]), Err(MetricError::TooFew { wanted: 1, found: 0, .. })));
        assert!(matches!(sample_sd(&[1.0]), Err(MetricError::TooFew { wanted: 2, found: 1, .. })));
        assert!(matches!(
            sample_sd(&[1.0, f64::NAN]),
            Err(MetricError::NonFinite { index: 1, .. })
        ));
    }
}
