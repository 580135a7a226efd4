//! Reliability bins and expected calibration error.

use std::f64::consts::FRAC_2_PI;

use super::probability::ROW_SUM_TOLERANCE;
use crate::error::{Error, check_all_in, check_at_least, check_range, check_same_length};

/// The number of bins in nearly all published figures.
pub const DEFAULT_BINS: usize = 15;

/// Which bin a confidence on an edge belongs to. The edges are `e[b] = b / n_bins`.
///
/// A published number can move by a third between them: state which one was used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum Binning {
    /// `[e[b], e[b+1])`, and a separate bin for confidence 1: current torchmetrics, published baselines.
    #[default]
    Torchmetrics,
    /// `(e[b], e[b+1]]`, Guo et al. 2017; confidence 0, which a largest probability cannot be, joins the first bin.
    RightClosed,
    /// `[e[b], e[b+1])`, and the last bin includes 1: the authors' GLUE script.
    LeftClosed,
}

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
    /// How many of them are right; of soft labels the sum of the shares of the predicted classes.
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

/// Accuracy against confidence, by bins of equal width.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct ReliabilityDiagram {
    /// The convention for edges.
    pub binning: Binning,
    /// Bins from low to high; one more than `n_bins` under [`Binning::Torchmetrics`].
    pub bins: Vec<ReliabilityBin>,
}

impl ReliabilityDiagram {
    /// Sorts examples into bins.
    ///
    /// `confidence` and `correct` are `[n]`; confidences are probabilities (see [`ROW_SUM_TOLERANCE`] for the
    /// slack above 1).
    ///
    /// Edges come from the division `b / n_bins` and are compared exactly: a confidence that was computed by the
    /// same division is on its edge.
    pub fn new(
        confidence: &[f64],
        correct: &[bool],
        n_bins: usize,
        binning: Binning,
    ) -> Result<Self, Error> {
        let correct: Vec<f64> = correct.iter().map(|&correct| f64::from(correct)).collect();
        Self::of_shares(confidence, &correct, n_bins, binning)
    }

    /// Sorts examples with soft labels into bins: `correct` is the share of the predicted class, the probability that the
    /// prediction is right. Otherwise as [`new`](Self::new).
    pub fn of_shares(
        confidence: &[f64],
        correct: &[f64],
        n_bins: usize,
        binning: Binning,
    ) -> Result<Self, Error> {
        check_range("n_bins", n_bins as f64, 1.0, f64::MAX)?;
        check_same_length("correct", correct.len(), "confidence", confidence.len())?;
        check_at_least("confidence", confidence.len(), 1)?;
        check_all_in("confidence", confidence, 0.0, 1.0 + ROW_SUM_TOLERANCE)?;
        check_all_in("correct", correct, 0.0, 1.0 + ROW_SUM_TOLERANCE)?;
        let edges: Vec<f64> = (0..=n_bins).map(|b| b as f64 / n_bins as f64).collect();
        let empty =
            |low, high| ReliabilityBin { low, high, count: 0, correct: 0.0, confidence_sum: 0.0 };
        let mut bins: Vec<_> = edges.windows(2).map(|edge| empty(edge[0], edge[1])).collect();
        if binning == Binning::Torchmetrics {
            bins.push(empty(1.0, 1.0));
        }
        for (&confidence, &correct) in confidence.iter().zip(correct) {
            // Number of edges below it, which for the closed side includes the edge itself.
            let passed = match binning {
                Binning::RightClosed => edges.partition_point(|&edge| edge < confidence),
                Binning::Torchmetrics | Binning::LeftClosed => {
                    edges.partition_point(|&edge| edge <= confidence)
                }
            };
            let index = passed.saturating_sub(1).min(bins.len() - 1);
            let bin = &mut bins[index];
            bin.count += 1;
            bin.correct += correct;
            bin.confidence_sum += confidence;
        }
        Ok(Self { binning, bins })
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

    /// What [`ece`](Self::ece) is on average for a perfectly calibrated model with these confidences: see [`ece_floor`].
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
    fn the_three_conventions_of_the_worked_example() {
        // The specification's example (section 5.2): edges at 8/15 and 0.60 = 9/15, one confidence of 1.
        let confidence = [0.95, 0.91, 0.82, 0.60, 8.0 / 15.0, 1.0, 0.72, 0.55];
        let correct = [true, true, false, true, false, false, true, false];
        for (binning, ece, occupied) in [
            (Binning::RightClosed, 0.352_917, &[7, 8, 8, 10, 12, 13, 14, 14][..]),
            (Binning::LeftClosed, 0.452_917, &[8, 8, 9, 10, 12, 13, 14, 14]),
            (Binning::Torchmetrics, 0.465_417, &[8, 8, 9, 10, 12, 13, 14, 15]),
        ] {
            let diagram = ReliabilityDiagram::new(&confidence, &correct, 15, binning).unwrap();
            assert!((diagram.ece() - ece).abs() < 5e-7, "{binning:?}: {}", diagram.ece());
            let bins = diagram.bins.iter().enumerate();
            let found: Vec<usize> =
                bins.flat_map(|(b, bin)| std::iter::repeat_n(b, bin.count)).collect();
            assert_eq!(found, occupied, "{binning:?}");
        }
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
        let diagram = ReliabilityDiagram::new(&[0.75; 100], &[true; 100], 15, Binning::default());
        assert_eq!(diagram.unwrap().floor(), ece_floor([(100.0, 0.75)]));
        assert_eq!([ece_floor([]), ece_floor([(3.0, 1.000_05)])], [0.0; 2]);
    }

    #[test]
    fn mistakes_are_named() {
        let new = |c: &[f64], k: &[bool], n| {
            ReliabilityDiagram::new(c, k, n, Binning::default()).unwrap_err()
        };
        assert!(matches!(new(&[0.5], &[true], 0), Error::OutOfRange { name: "n_bins", .. }));
        assert_eq!(new(&[], &[], 15), Error::length("confidence", 0, "at least 1"));
        assert_eq!(new(&[0.5], &[], 15), Error::length("correct", 0, "1 as `confidence`"));
        assert!(matches!(new(&[0.5, 1.1], &[true; 2], 15), Error::Entry { index: 1, .. }));
        assert!(matches!(new(&[f64::NAN], &[true], 15), Error::Entry { index: 0, .. }));
    }
}
