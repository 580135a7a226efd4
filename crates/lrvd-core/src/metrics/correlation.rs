//! Correlations, for regression tasks.

use crate::error::{Error, check_at_least, check_finite, check_same_length};

/// Pearson's correlation, by centred sums.
///
/// ```text
/// Σ (x − x̄)(y − ȳ) / √( Σ (x − x̄)² · Σ (y − ȳ)² ),   kept within [−1, 1]
/// ```
///
/// # Errors
///
/// Fewer than two values, one that is not finite, or a slice that does not vary.
pub fn pearson(predicted: &[f64], target: &[f64]) -> Result<f64, Error> {
    check_same_length("predicted", predicted.len(), "target", target.len())?;
    check_at_least("target", target.len(), 2)?;
    let x = standardised("predicted", predicted)?;
    let y = standardised("target", target)?;
    let product: f64 = x.iter().zip(&y).map(|(x, y)| x * y).sum();
    Ok(product.clamp(-1.0, 1.0))
}

/// Spearman's correlation: Pearson's of the ranks, ties sharing their average rank.
pub fn spearman(predicted: &[f64], target: &[f64]) -> Result<f64, Error> {
    check_finite("predicted", predicted)?;
    check_finite("target", target)?;
    pearson(&average_ranks(predicted), &average_ranks(target))
}

/// Ranks from 1, smallest value first; equal values share the average of their places.
pub fn average_ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&i, &k| values[i].total_cmp(&values[k]));
    let mut ranks = vec![0.0; values.len()];
    let mut start = 0;
    // `==` rather than the sort's total order, so that 0 and −0 tie.
    for group in order.chunk_by(|&i, &k| values[i] == values[k]) {
        let rank = start as f64 + (group.len() + 1) as f64 / 2.0;
        for &i in group {
            ranks[i] = rank;
        }
        start += group.len();
    }
    ranks
}

/// Centred and scaled to unit length.
fn standardised(name: &'static str, values: &[f64]) -> Result<Vec<f64>, Error> {
    check_finite(name, values)?;
    // Decided on the values themselves: rounding of the mean may leave a constant with a tiny variance.
    if values.iter().all(|&value| value == values[0]) {
        return Err(constant(name));
    }
    // Scaling first keeps the squares of very large and very small values in range.
    let largest = values.iter().fold(0.0f64, |largest, value| largest.max(value.abs()));
    let scaled: Vec<f64> = values.iter().map(|value| value / largest).collect();
    let mean = scaled.iter().sum::<f64>() / scaled.len() as f64;
    let norm = scaled.iter().map(|value| (value - mean).powi(2)).sum::<f64>().sqrt();
    if norm == 0.0 {
        return Err(constant(name));
    }
    Ok(scaled.iter().map(|value| (value - mean) / norm).collect())
}

fn constant(name: &str) -> Error {
    Error::undefined(name, "is constant, so its correlation is not defined")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn worked_example() {
        // x̄ = 2.5, ȳ = 3; deviations of y: −1, −2, −2, 5; products 1.5 + 1 − 1 + 7.5 = 9; squares 5 and 34.
        let (x, y) = ([1.0, 2.0, 3.0, 4.0], [2.0, 1.0, 1.0, 8.0]);
        assert!((pearson(&x, &y).unwrap() - 9.0 / (5.0f64 * 34.0).sqrt()).abs() < 1e-15);
        // Ranks of y: 3, 1.5, 1.5, 4 with mean 2.5; products −0.75 + 0.5 − 0.5 + 2.25 = 1.5; squares 4.5.
        assert!((spearman(&x, &y).unwrap() - 1.5 / (5.0f64 * 4.5).sqrt()).abs() < 1e-15);
    }

    #[test]
    fn ties_share_their_average_rank() {
        assert_eq!(average_ranks(&[3.0, 1.0, 3.0, 2.0, 3.0]), [4.0, 1.0, 4.0, 2.0, 4.0]);
        assert_eq!(average_ranks(&[0.0, -0.0]), [1.5, 1.5]);
        assert!(average_ranks(&[]).is_empty());
    }

    #[test]
    fn what_is_not_defined_is_an_error() {
        assert_eq!(pearson(&[0.1; 3], &[1.0, 2.0, 3.0]), Err(constant("predicted")));
        assert_eq!(spearman(&[1.0, 2.0], &[7.0, 7.0]), Err(constant("target")));
        assert_eq!(pearson(&[1.0], &[1.0]), Err(Error::length("target", 1, "at least 2")));
        assert_eq!(
            pearson(&[1.0], &[1.0, 2.0]),
            Err(Error::length("predicted", 1, "2 as `target`"))
        );
        let nan = spearman(&[1.0, f64::NAN], &[1.0, 2.0]);
        assert!(matches!(nan, Err(Error::Entry { name, index: 1, .. }) if name == "predicted"));
    }

    proptest! {
        #[test]
        fn a_rising_line_leaves_both_unchanged(
            pairs in prop::collection::vec((-1e3..1e3, -1e3..1e3), 3..40), slope in 0.1..10.0, shift in -5.0..5.0
        ) {
            let (x, y): (Vec<f64>, Vec<f64>) = pairs.into_iter().unzip();
            let moved: Vec<f64> = x.iter().map(|x| slope * x + shift).collect();
            let (before, after) = (pearson(&x, &y).unwrap(), pearson(&moved, &y).unwrap());
            prop_assert!((before - after).abs() < 1e-9);
            prop_assert!((-1.0..=1.0).contains(&before));
            prop_assert_eq!(pearson(&y, &x).unwrap(), before);
            let cubes: Vec<f64> = x.iter().map(|x| x.powi(3)).collect();
            if average_ranks(&cubes) == average_ranks(&x) {
                prop_assert_eq!(spearman(&cubes, &y).unwrap(), spearman(&x, &y).unwrap());
            }
        }
    }
}
