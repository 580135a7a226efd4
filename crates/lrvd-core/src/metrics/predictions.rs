//! Probabilities with labels, checked once, and the metrics of both.

use super::calibration::{Binning, ReliabilityDiagram};
use super::probability::{ROW_SUM_TOLERANCE, argmax, check_row_sum};
use crate::error::{Error, check_all_in, check_classes, check_range, check_same_length, some_rows};

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
        check_all_in("probabilities", probabilities, 0.0, 1.0 + ROW_SUM_TOLERANCE)?;
        for (row, values) in probabilities.chunks_exact(n_classes).enumerate() {
            check_row_sum("probabilities", row, values.iter().sum())?;
        }
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

    /// `F1 = 2TP / (2TP + FP + FN)` of class 1 of two, as in GLUE; 0 if it is neither predicted nor present.
    pub fn f1(&self) -> Result<f64, Error> {
        check_range("n_classes", self.n_classes as f64, 2.0, 2.0)?;
        Ok(self.outcomes()[1].f1())
    }

    /// Unweighted mean of the F1 of every class against the rest; 0 for a class where it is undefined.
    pub fn macro_f1(&self) -> f64 {
        self.outcomes().iter().map(Outcomes::f1).sum::<f64>() / self.n_classes as f64
    }

    /// Matthews correlation of two classes, 0 if the denominator is 0.
    ///
    /// ```text
    /// (TP·TN − FP·FN) / √((TP + FP)(TP + FN)(TN + FP)(TN + FN))
    /// ```
    pub fn mcc(&self) -> Result<f64, Error> {
        check_range("n_classes", self.n_classes as f64, 2.0, 2.0)?;
        let [negative, positive] = [0, 1].map(|class| self.outcomes()[class]);
        let [tp, tn] = [positive, negative].map(|class| class.hits as f64);
        let [fp, fn_] = [positive.predicted - positive.hits, positive.labels - positive.hits]
            .map(|count| count as f64);
        // Two roots, so that counts in the hundred thousands do not lose digits in the product of four.
        let denominator = ((tp + fp) * (tn + fn_)).sqrt() * ((tp + fn_) * (tn + fp)).sqrt();
        Ok(if denominator == 0.0 { 0.0 } else { (tp * tn - fp * fn_) / denominator })
    }

    fn outcomes(&self) -> Vec<Outcomes> {
        let mut classes = vec![Outcomes::default(); self.n_classes];
        for (predicted, &label) in self.predicted().into_iter().zip(self.labels) {
            classes[predicted].predicted += 1;
            classes[label].labels += 1;
            classes[label].hits += usize::from(predicted == label);
        }
        classes
    }

    fn rows(&self) -> impl Iterator<Item = &'a [f64]> {
        self.probabilities.chunks_exact(self.n_classes)
    }

    fn mean(&self, of_row: impl Fn(&[f64], usize) -> f64) -> f64 {
        let sum: f64 = self.rows().zip(self.labels).map(|(row, &label)| of_row(row, label)).sum();
        sum / self.len() as f64
    }
}

/// How often one class is predicted, is the label, and both.
#[derive(Clone, Copy, Default)]
struct Outcomes {
    predicted: usize,
    labels: usize,
    hits: usize,
}

impl Outcomes {
    fn f1(&self) -> f64 {
        let denominator = self.predicted + self.labels;
        if denominator == 0 { 0.0 } else { (2 * self.hits) as f64 / denominator as f64 }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// Certain answers.
    fn certain(predicted: &[usize], n_classes: usize) -> Vec<f64> {
        let row = |&p: &usize| (0..n_classes).map(move |c| f64::from(u8::from(c == p)));
        predicted.iter().flat_map(row).collect()
    }

    #[test]
    fn scores_of_classes_by_hand() {
        // TP 3, FP 1, TN 2, FN 2.
        let (predicted, labels) = ([1, 1, 1, 1, 0, 0, 0, 0], [1, 1, 1, 0, 0, 0, 1, 1]);
        let two = certain(&predicted, 2);
        let two = Predictions::new(&two, 2, &labels).unwrap();
        assert!((two.f1().unwrap() - 6.0 / 9.0).abs() < 1e-15);
        // (3·2 − 1·2)/√(4·5·3·4) = 4/√240
        assert!((two.mcc().unwrap() - 4.0 / 240f64.sqrt()).abs() < 1e-15);
        // F1 of class 0: 4/(4 + 2 + 1) = 4/7; with a third, absent class the mean is over three.
        assert!((two.macro_f1() - f64::midpoint(2.0 / 3.0, 4.0 / 7.0)).abs() < 1e-15);
        let three = certain(&predicted, 3);
        let three = Predictions::new(&three, 3, &labels).unwrap();
        assert!((three.macro_f1() - (2.0 / 3.0 + 4.0 / 7.0) / 3.0).abs() < 1e-15);
        assert!(three.f1().is_err() && three.mcc().is_err());
        // Undefined ratios are 0.
        for (predicted, labels) in [([0, 0, 0], [0, 0, 0]), ([1, 1, 1], [1, 0, 1])] {
            let rows = certain(&predicted, 2);
            assert_eq!(Predictions::new(&rows, 2, &labels).unwrap().mcc(), Ok(0.0));
        }
        let rows = certain(&[0, 0], 2);
        assert_eq!(Predictions::new(&rows, 2, &[0, 0]).unwrap().f1(), Ok(0.0));
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
}
