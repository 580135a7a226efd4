//! Reliability bins and expected calibration error.

use std::f64::consts::FRAC_2_PI;

use super::probability::ROW_SUM_TOLERANCE;
use crate::error::{Error, check_all_in, check_at_least, check_same_length};

/// Bins of equal width, as in nearly all published figures.
const BINS: usize = 15;

/// One bar of a reliability diagram.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct ReliabilityBin {
    /// Lower edge.
    pub low: f64,
    /// Upper edge; equal to the lower one for the extra bin at 1.
    pub high: f64,
    /// Examples in the bin.
    pub count: usize,
    /// Number of them that are right; of soft labels the sum of the shares of the predicted classes.
    pub correct: f64,
    /// Sum of their confidences.
    pub confidence_sum: f64,
}

impl ReliabilityBin {
    /// Share of right answers; `None` for an empty bin.
    pub fn accuracy(&self) -> Option<f64> {
        (self.count > 0).then(|| self.correct / self.count as f64)
    }

    /// Mean confidence; `None` for an empty bin.
    pub fn mean_confidence(&self) -> Option<f64> {
        (self.count > 0).then(|| self.confidence_sum / self.count as f64)
    }

    /// Distance between accuracy and mean confidence; 0 for an empty bin.
    pub fn gap(&self) -> f64 {
        match (self.accuracy(), self.mean_confidence()) {
            (Some(accuracy), Some(confidence)) => (accuracy - confidence).abs(),
            _ => 0.0,
        }
    }
}

/// Accuracy against confidence, by 15 bins of equal width.
///
/// The edges are `e[b] = b/15`; a bin is `[e[b], e[b+1])`, and confidence 1 has a separate bin, as in current torchmetrics and
/// the published baselines. With the other convention, `(e[b], e[b+1]]` of Guo et al. 2017, a published number can move by a
/// third.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct ReliabilityDiagram {
    /// 16 bins from low to high.
    pub bins: Vec<ReliabilityBin>,
}

impl ReliabilityDiagram {
    /// Sorts examples into bins.
    ///
    /// `confidence` and `correct` are `[n]`; confidences are probabilities (see [`ROW_SUM_TOLERANCE`] for the
    /// slack above 1).
    ///
    /// Edges come from the division `b / 15` and are compared exactly: a confidence that was computed by the
    /// same division is on its edge.
    pub fn new(confidence: &[f64], correct: &[bool]) -> Result<Self, Error> {
        let correct: Vec<f64> = correct.iter().map(|&correct| f64::from(correct)).collect();
        Self::from_shares(confidence, &correct)
    }

    /// Sorts examples with soft labels into bins: `correct` is the share of the predicted class, the probability that the
    /// prediction is right. Otherwise as [`new`](Self::new).
    pub fn from_shares(confidence: &[f64], correct: &[f64]) -> Result<Self, Error> {
        check_same_length("correct", correct.len(), "confidence", confidence.len())?;
        check_at_least("confidence", confidence.len(), 1)?;
        check_all_in("confidence", confidence, 0.0, 1.0 + ROW_SUM_TOLERANCE)?;
        check_all_in("correct", correct, 0.0, 1.0 + ROW_SUM_TOLERANCE)?;
        let edge = |b: usize| b as f64 / BINS as f64;
        let empty = |b| ReliabilityBin {
            low: edge(b),
            high: edge(BINS.min(b + 1)),
            count: 0,
            correct: 0.0,
            confidence_sum: 0.0,
        };
        let mut bins: Vec<_> = (0..=BINS).map(empty).collect();
        for (&confidence, &correct) in confidence.iter().zip(correct) {
            let above = bins.partition_point(|bin| bin.low <= confidence);
            let bin = &mut bins[above - 1];
            bin.count += 1;
            bin.correct += correct;
            bin.confidence_sum += confidence;
        }
        Ok(Self { bins })
    }

    /// Number of examples.
    pub fn count(&self) -> usize {
        self.bins.iter().map(|bin| bin.count).sum()
    }

    /// Expected calibration error: `Σ_b (n_b/n)·|accuracy_b − mean confidence_b|`.
    ///
    /// Source: Naeini et al. 2015; Guo et al. 2017, arXiv:1706.04599.
    pub fn ece(&self) -> f64 {
        let n = self.count() as f64;
        self.bins.iter().map(|bin| bin.count as f64 / n * bin.gap()).sum()
    }

    /// Mean of [`ece`](Self::ece) for a perfectly calibrated model with these confidences: see [`ece_floor`].
    pub fn floor(&self) -> f64 {
        let occupied = |bin: &ReliabilityBin| Some((bin.count as f64, bin.mean_confidence()?));
        ece_floor(self.bins.iter().filter_map(occupied))
    }
}

/// Expected calibration error that a perfectly calibrated model has on average, from `bins` of `(examples, mean confidence)`:
/// an ECE is evidence of miscalibration only where it is above this floor.
///
/// ```text
/// floor = Σ_b (n_b / n) E|X_b/n_b − p_b| ≈ √(2/π) Σ_b (n_b / n) √(p_b (1 − p_b) / n_b),   X_b ~ Binomial(n_b, p_b)
/// ```
///
/// The half-normal approximation is within 5 % from 20 examples in a bin on; a bin with fewer weighs little. 0 without
/// examples.
pub fn ece_floor(bins: impl IntoIterator<Item = (f64, f64)>) -> f64 {
    let (mut n, mut sum) = (0.0, 0.0);
    for (count, confidence) in bins {
        n += count;
        // A mean confidence may exceed 1 by rounding.
        sum += (count * confidence * (1.0 - confidence)).max(0.0).sqrt();
    }
    if n > 0.0 { FRAC_2_PI.sqrt() * sum / n } else { 0.0 }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn bins_of_the_worked_example() {
        // The specification's example (section 5.2): edges at 8/15 and 0.60 = 9/15, one confidence of 1.
        let confidence = [0.95, 0.91, 0.82, 0.60, 8.0 / 15.0, 1.0, 0.72, 0.55];
        let correct = [true, true, false, true, false, false, true, false];
        let diagram = ReliabilityDiagram::new(&confidence, &correct).unwrap();
        assert!((diagram.ece() - 0.465_417).abs() < 5e-7, "{}", diagram.ece());
        let bins = diagram.bins.iter().enumerate();
        let found: Vec<usize> = bins.flat_map(|(b, bin)| vec![b; bin.count]).collect();
        assert_eq!(found, [8, 8, 9, 10, 12, 13, 14, 15]);
        assert_eq!(
            (diagram.bins[14].high, diagram.bins[15].low, diagram.bins[15].high),
            (1.0, 1.0, 1.0)
        );
    }

    #[test]
    fn the_floor_is_the_mean_error_of_calibrated_answers() {
        // scipy.stats.binom: E|X/n − p| of 100 examples at 0.75, of 40 at 0.9 and of 400 at 0.55.
        let exact = [
            (100.0, 0.75, 0.034424884412563),
            (40.0, 0.9, 0.037059667819416),
            (400.0, 0.55, 0.019834560332658),
        ];
        for (n, p, expected) in exact {
            let found = ece_floor([(n, p)]);
            assert!((found / expected - 1.0).abs() < 0.025, "{n} {p}: {found}, {expected}");
        }
        let found = ece_floor(exact.map(|(n, p, _)| (n, p)));
        let expected = exact.iter().map(|(n, _, e)| n * e).sum::<f64>() / 540.0;
        assert!((found / expected - 1.0).abs() < 0.02, "{found}, expected {expected}");
        let diagram = ReliabilityDiagram::new(&[0.75; 100], &[true; 100]);
        assert_eq!(diagram.unwrap().floor(), ece_floor([(100.0, 0.75)]));
        assert_eq!([ece_floor([]), ece_floor([(3.0, 1.000_05)])], [0.0; 2]);
    }

    #[test]
    fn mistakes_are_named() {
        for (confidence, correct, message) in [
            (&[][..], &[][..], "`confidence` has length 0, expected at least 1"),
            (&[0.5], &[], "`correct` has length 0, expected 1 as `confidence`"),
            (&[0.5, 1.1], &[true; 2], "`confidence` is 1.1 at index 1, expected 0..=1.0001"),
            (&[f64::NAN], &[true], "`confidence` is NaN at index 0, expected 0..=1.0001"),
        ] {
            let error = ReliabilityDiagram::new(confidence, correct).unwrap_err();
            assert_eq!(error.to_string(), message);
        }
    }
}
