//! Probabilities with labels, checked once.

use super::calibration::{Binning, ReliabilityDiagram};
use crate::error::{
    Error, check_all_in, check_classes, check_finite, check_same_length, some_rows,
};

/// Largest distance of a row's sum from 1. Wide enough for a softmax in `f32` over tens of thousands of classes,
/// narrow enough to catch logits, percentages and dropped columns.
pub const ROW_SUM_TOLERANCE: f64 = 1e-4;

/// Floor under the probabilities of [`Predictions::nll`]: an impossible label counts 27.6 nats.
pub const NLL_FLOOR: f64 = 1e-12;

/// Predicted probabilities of `n` examples, `[n, n_classes]`, row-major, with their labels `[n]`.
///
/// # Examples
///
/// ```
/// use lrvd_core::metrics::Predictions;
///
/// let predictions = Predictions::new(&[0.7, 0.2, 0.1, 0.1, 0.6, 0.3], 3, &[0, 2])?;
/// assert_eq!(predictions.accuracy(), 0.5);
/// assert!((predictions.nll() - 0.780_324).abs() < 1e-6);
/// assert!((predictions.brier() - 0.5).abs() < 1e-12);
/// # Ok::<(), lrvd_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Predictions<'a> {
    probabilities: &'a [f64],
    labels: &'a [usize],
    n_classes: usize,
}

impl<'a> Predictions<'a> {
    /// Checks shapes, labels and probabilities.
    ///
    /// # Errors
    ///
    /// A label outside the classes, or a row that is not a distribution within [`ROW_SUM_TOLERANCE`].
    pub fn new(
        probabilities: &'a [f64],
        n_classes: usize,
        labels: &'a [usize],
    ) -> Result<Self, Error> {
        let n = some_rows("probabilities", probabilities.len(), "n_classes", n_classes)?;
        check_same_length("labels", labels.len(), "rows of probabilities", n)?;
        check_classes("labels", labels, n_classes)?;
        check_distributions("probabilities", probabilities, n_classes)?;
        Ok(Self { probabilities, labels, n_classes })
    }

    /// Number of examples.
    #[expect(
        clippy::len_without_is_empty,
        reason = "the constructor returns an error for an empty set"
    )]
    pub const fn len(&self) -> usize {
        self.labels.len()
    }

    /// Number of classes.
    pub const fn n_classes(&self) -> usize {
        self.n_classes
    }

    /// The most probable class of every example; ties go to the lowest.
    pub fn predicted(&self) -> Vec<usize> {
        self.rows().map(argmax).collect()
    }

    /// The largest probability of every example.
    pub fn confidence(&self) -> Vec<f64> {
        self.rows().map(|row| row[argmax(row)]).collect()
    }

    /// Whether the most probable class is the label, by example.
    pub fn correct(&self) -> Vec<bool> {
        self.rows().zip(self.labels).map(|(row, &label)| argmax(row) == label).collect()
    }

    /// Share of examples whose most probable class is the label.
    pub fn accuracy(&self) -> f64 {
        self.correct().iter().filter(|&&correct| correct).count() as f64 / self.len() as f64
    }

    /// Mean negative log-likelihood in nats per example, `p` floored at [`NLL_FLOOR`].
    pub fn nll(&self) -> f64 {
        self.mean(|row, label| -row[label].max(NLL_FLOOR).ln())
    }

    /// Mean negative log-likelihood without a floor: infinite if a label has probability 0.
    pub fn nll_unclamped(&self) -> f64 {
        self.mean(|row, label| -row[label].ln())
    }

    /// Brier score, in `[0, 2]`: mean over examples of `Σ_c (p_c − 1[c = label])²`.
    pub fn brier(&self) -> f64 {
        self.mean(|row, label| {
            let errors =
                row.iter().enumerate().map(|(c, p)| p - if c == label { 1.0 } else { 0.0 });
            errors.map(|error| error * error).sum()
        })
    }

    /// [`brier`](Self::brier) divided by the number of classes, as some libraries print it.
    pub fn brier_mean_over_classes(&self) -> f64 {
        self.brier() / self.n_classes as f64
    }

    /// Expected calibration error of the confidences; see [`ReliabilityDiagram`].
    pub fn ece(&self, n_bins: usize, binning: Binning) -> Result<f64, Error> {
        Ok(self.reliability(n_bins, binning)?.ece())
    }

    /// Reliability diagram of the confidences.
    pub fn reliability(
        &self,
        n_bins: usize,
        binning: Binning,
    ) -> Result<ReliabilityDiagram, Error> {
        ReliabilityDiagram::new(&self.confidence(), &self.correct(), n_bins, binning)
    }

    fn rows(&self) -> impl Iterator<Item = &'a [f64]> {
        self.probabilities.chunks_exact(self.n_classes)
    }

    fn mean(&self, of_row: impl Fn(&[f64], usize) -> f64) -> f64 {
        let sum: f64 = self.rows().zip(self.labels).map(|(row, &label)| of_row(row, label)).sum();
        sum / self.len() as f64
    }
}

/// The largest entry of every row of `[n, n_classes]` scores (logits or probabilities); ties go to the lowest.
pub fn argmax_rows(scores: &[f64], n_classes: usize) -> Result<Vec<usize>, Error> {
    some_rows("scores", scores.len(), "n_classes", n_classes)?;
    check_finite("scores", scores)?;
    Ok(scores.chunks_exact(n_classes).map(argmax).collect())
}

/// Rows of non-negative numbers that sum to 1, within [`ROW_SUM_TOLERANCE`].
pub(super) fn check_distributions(
    name: &'static str,
    probabilities: &[f64],
    n_classes: usize,
) -> Result<(), Error> {
    check_all_in(name, probabilities, 0.0, 1.0 + ROW_SUM_TOLERANCE)?;
    for (row, values) in probabilities.chunks_exact(n_classes).enumerate() {
        check_row_sum(name, row, values.iter().sum())?;
    }
    Ok(())
}

pub(super) fn check_row_sum(name: &str, row: usize, sum: f64) -> Result<(), Error> {
    if (sum - 1.0).abs() > ROW_SUM_TOLERANCE {
        let expected = format!("1 within {ROW_SUM_TOLERANCE}");
        return Err(Error::entry(format!("row sum of {name}"), row, sum, expected));
    }
    Ok(())
}

fn argmax(row: &[f64]) -> usize {
    (1..row.len()).fold(0, |best, c| if row[c] > row[best] { c } else { best })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn worked_example() {
        let predictions = Predictions::new(&[0.7, 0.2, 0.1, 0.1, 0.6, 0.3], 3, &[0, 2]).unwrap();
        // Brier (0.09 + 0.04 + 0.01 + 0.01 + 0.36 + 0.49)/2; NLL −(ln 0.7 + ln 0.3)/2.
        assert!((predictions.brier() - 0.5).abs() < 1e-15);
        assert!((predictions.brier_mean_over_classes() - 0.5 / 3.0).abs() < 1e-15);
        assert!((predictions.nll() + 0.21f64.ln() / 2.0).abs() < 1e-15);
        assert_eq!(predictions.predicted(), [0, 1]);
        assert_eq!(predictions.correct(), [true, false]);
        assert_eq!(predictions.confidence(), [0.7, 0.6]);
    }

    #[test]
    fn the_floor_bounds_an_impossible_label() {
        let predictions = Predictions::new(&[1.0, 0.0], 2, &[1]).unwrap();
        assert_eq!(predictions.nll_unclamped(), f64::INFINITY);
        assert!((predictions.nll() - 12.0 * 10f64.ln()).abs() < 1e-12);
    }

    #[test]
    fn ties_go_to_the_lowest_class() {
        assert_eq!(argmax_rows(&[1.0, 1.0, 0.0, -2.0, 3.0, 3.0], 3).unwrap(), [0, 1]);
        assert!(matches!(argmax_rows(&[1.0, f64::NAN], 2), Err(Error::Entry { .. })));
    }

    #[test]
    fn mistakes_are_named() {
        let error_of = |p: &[f64], c, y: &[usize]| Predictions::new(p, c, y).unwrap_err();
        for (values, n_classes, labels, message) in [
            (&[0.5; 2][..], 0, &[0][..], "`n_classes` is 0, expected at least 1"),
            (&[], 2, &[], "`probabilities` has length 0, expected at least 1"),
            (
                &[0.5; 3],
                2,
                &[0],
                "`probabilities` has length 3, expected a multiple of `n_classes` = 2",
            ),
            (&[0.5; 4], 2, &[0], "`labels` has length 1, expected 2 as `rows of probabilities`"),
            (&[0.5; 4], 2, &[0, 2], "`labels` is 2 at index 1, expected a class below 2"),
            (&[f64::NAN, 1.0], 2, &[0], "`probabilities` is NaN at index 0, expected 0..=1.0001"),
            (&[1.01, -0.01], 2, &[0], "`probabilities` is 1.01 at index 0, expected 0..=1.0001"),
        ] {
            assert_eq!(error_of(values, n_classes, labels).to_string(), message);
        }
        let sum = error_of(&[0.5, 0.5, 0.5, 0.4], 2, &[0, 0]);
        assert_eq!(
            sum.to_string(),
            "`row sum of probabilities` is 0.9 at index 1, expected 1 within 0.0001"
        );
    }

    #[test]
    fn row_sums_are_checked_at_their_tolerance() {
        let near = 0.5 * ROW_SUM_TOLERANCE;
        assert!(Predictions::new(&[0.5, 0.5 + near], 2, &[0]).is_ok());
        assert!(Predictions::new(&[0.5, 0.5 + 4.0 * near], 2, &[0]).is_err());
        assert!(Predictions::new(&[0.5, 0.5 - 4.0 * near], 2, &[0]).is_err());
    }
}
