//! Probabilities with labels, checked once, and the metrics of both.

use super::calibration::ReliabilityDiagram;
use super::comparison::pseudo_values;
use super::outcomes::{ClassScores, Outcome};
use super::probability::{ROW_SUM_TOLERANCE, argmax, check_row_sum};
use super::selective::RiskCoverage;
use crate::error::{
    Error, at_least_one_row, check_all_in, check_classes, check_range, check_same_length,
};

/// Floor under the probabilities of [`Predictions::nll`]: an impossible label counts 27.6 nats.
pub const NLL_FLOOR: f64 = 1e-12;

/// A score of predictions that is not a mean over rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Score {
    /// [`Predictions::f1`].
    F1,
    /// [`Predictions::macro_f1`].
    MacroF1,
    /// [`Predictions::mcc`].
    Matthews,
    /// [`Predictions::ece`].
    Ece,
    /// [`RiskCoverage::area`] of the largest probabilities.
    RiskArea,
}

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
    /// Probabilities of soft labels, `[n, n_classes]`.
    shares: Option<&'a [f64]>,
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
        let n = at_least_one_row("probabilities", probabilities.len(), "n_classes", n_classes)?;
        check_same_length("labels", labels.len(), "rows of probabilities", n)?;
        check_classes("labels", labels, n_classes)?;
        check_all_in("probabilities", probabilities, 0.0, 1.0 + ROW_SUM_TOLERANCE)?;
        for (row, values) in probabilities.chunks_exact(n_classes).enumerate() {
            check_row_sum("probabilities", row, values.iter().sum())?;
        }
        Ok(Self { probabilities, labels, shares: None, n_classes })
    }

    /// Measures [`nll`](Self::nll), [`brier`](Self::brier) and calibration against the `shares` of soft labels, `[n, n_classes]`,
    /// instead of the labels.
    ///
    /// # Errors
    ///
    /// A row of shares that is not a distribution within [`ROW_SUM_TOLERANCE`].
    pub fn with_shares(self, shares: &'a [f64]) -> Result<Self, Error> {
        check_same_length("shares", shares.len(), "probabilities", self.probabilities.len())?;
        check_all_in("shares", shares, 0.0, 1.0 + ROW_SUM_TOLERANCE)?;
        for (row, values) in shares.chunks_exact(self.n_classes).enumerate() {
            check_row_sum("shares", row, values.iter().sum())?;
        }
        Ok(Self { shares: Some(shares), ..self })
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

    /// `true` for every example whose most probable class is the label.
    pub fn correct(&self) -> Vec<bool> {
        self.rows().zip(self.labels).map(|(row, &label)| argmax(row) == label).collect()
    }

    /// Share of examples whose most probable class is the label.
    pub fn accuracy(&self) -> f64 {
        self.correct().iter().filter(|&&correct| correct).count() as f64 / self.len() as f64
    }

    /// Mean negative log-likelihood in nats per example, `p` floored at [`NLL_FLOOR`]; of soft labels the mean cross-entropy
    /// `−Σ_c s_c ln p_c` against their shares `s`.
    pub fn nll(&self) -> f64 {
        match self.shares {
            None => self.mean(|row, label| -row[label].max(NLL_FLOOR).ln()),
            Some(shares) => self.mean_of_shares(shares, |p, s| {
                // A share of 0 counts nothing, whatever the probability.
                if s > 0.0 { -s * p.max(NLL_FLOOR).ln() } else { 0.0 }
            }),
        }
    }

    /// Brier score, in `[0, 2]`: mean over examples of `Σ_c (p_c − 1[c = label])²`, of soft labels of `Σ_c (p_c − s_c)²`.
    pub fn brier(&self) -> f64 {
        if let Some(shares) = self.shares {
            return self.mean_of_shares(shares, |p, s| (p - s) * (p - s));
        }
        self.mean(|row, label| {
            let errors =
                row.iter().enumerate().map(|(c, p)| p - if c == label { 1.0 } else { 0.0 });
            errors.map(|error| error * error).sum()
        })
    }

    /// Expected calibration error of the confidences; see [`ReliabilityDiagram`].
    pub fn ece(&self) -> Result<f64, Error> {
        Ok(self.reliability()?.ece())
    }

    /// Reliability diagram of the confidences; a prediction of a soft label is right with the share of its class.
    pub fn reliability(&self) -> Result<ReliabilityDiagram, Error> {
        let confidence = self.confidence();
        let Some(shares) = self.shares else {
            return ReliabilityDiagram::new(&confidence, &self.correct());
        };
        let rows = shares.chunks_exact(self.n_classes).zip(self.predicted());
        let correct: Vec<f64> = rows.map(|(shares, class)| shares[class]).collect();
        ReliabilityDiagram::from_shares(&confidence, &correct)
    }

    /// `F1 = 2TP / (2TP + FP + FN)` of class 1 of two, as in GLUE; 0 if it is neither predicted nor present.
    pub fn f1(&self) -> Result<f64, Error> {
        self.check_two_classes()?;
        Ok(self.outcomes()[1].f1())
    }

    /// F1 of [`ClassScores::macro_average`].
    pub fn macro_f1(&self) -> f64 {
        ClassScores::macro_average(&self.outcomes()).f1
    }

    /// Matthews correlation of two classes, 0 if the denominator is 0.
    ///
    /// ```text
    /// (TP·TN − FP·FN) / √((TP + FP)(TP + FN)(TN + FP)(TN + FN))
    /// ```
    pub fn mcc(&self) -> Result<f64, Error> {
        self.check_two_classes()?;
        Ok(mcc(&self.outcomes()))
    }

    /// [`pseudo_values`] of a score by row: their mean is the score.
    ///
    /// # Errors
    ///
    /// One row; F1 of the positive class and MCC of other than two classes.
    pub fn pseudo_values(&self, score: Score) -> Result<Vec<f64>, Error> {
        let predicted = self.predicted();
        let outcomes = |kept: &[usize]| {
            count(self.n_classes, kept.iter().map(|&i| (predicted[i], self.labels[i])))
        };
        if matches!(score, Score::F1 | Score::Matthews) {
            self.check_two_classes()?;
        }
        let confidence = self.confidence();
        let correct = self.correct();
        let of_kept = |kept: &[usize]| -> (Vec<f64>, Vec<bool>) {
            kept.iter().map(|&i| (confidence[i], correct[i])).unzip()
        };
        pseudo_values(self.len(), |kept| match score {
            Score::F1 => Ok(outcomes(kept)[1].f1()),
            Score::MacroF1 => Ok(ClassScores::macro_average(&outcomes(kept)).f1),
            Score::Matthews => Ok(mcc(&outcomes(kept))),
            Score::Ece => {
                let (confidence, correct) = of_kept(kept);
                Ok(ReliabilityDiagram::new(&confidence, &correct)?.ece())
            }
            Score::RiskArea => {
                let (confidence, correct) = of_kept(kept);
                Ok(RiskCoverage::new(&confidence, &correct)?.area())
            }
        })
    }

    fn check_two_classes(&self) -> Result<(), Error> {
        check_range("n_classes", self.n_classes, 2..=2)
    }

    /// The counts of every class, each against the rest.
    pub fn outcomes(&self) -> Vec<Outcome> {
        count(self.n_classes, self.predicted().into_iter().zip(self.labels.iter().copied()))
    }

    /// Rows by label and most probable class, `[n_classes, n_classes]`, row-major.
    pub fn confusion(&self) -> Vec<usize> {
        let mut cells = vec![0; self.n_classes * self.n_classes];
        for (predicted, label) in self.predicted().into_iter().zip(self.labels) {
            cells[label * self.n_classes + predicted] += 1;
        }
        cells
    }

    fn rows(&self) -> impl Iterator<Item = &'a [f64]> {
        self.probabilities.chunks_exact(self.n_classes)
    }

    fn mean_of_shares(&self, shares: &[f64], term: impl Fn(f64, f64) -> f64) -> f64 {
        let terms = self.probabilities.iter().zip(shares).map(|(&p, &s)| term(p, s));
        terms.sum::<f64>() / self.len() as f64
    }

    fn mean(&self, of_row: impl Fn(&[f64], usize) -> f64) -> f64 {
        let sum: f64 = self.rows().zip(self.labels).map(|(row, &label)| of_row(row, label)).sum();
        sum / self.len() as f64
    }
}

/// Counts pairs `(predicted, label)` by class.
fn count(n_classes: usize, pairs: impl Iterator<Item = (usize, usize)>) -> Vec<Outcome> {
    let mut classes = vec![Outcome::default(); n_classes];
    for (predicted, label) in pairs {
        if predicted == label {
            classes[label].add(true, true);
        } else {
            classes[predicted].add(true, false);
            classes[label].add(false, true);
        }
    }
    classes
}

/// Matthews correlation of two classes.
fn mcc(classes: &[Outcome]) -> f64 {
    let (negative, positive) = (classes[0], classes[1]);
    let [tp, tn] = [positive, negative].map(|class| class.hits as f64);
    let [fp, fn_] = [positive.given - positive.hits, positive.present - positive.hits]
        .map(|count| count as f64);
    // Two roots, so that counts in the hundred thousands do not lose digits in the product of four.
    let denominator = ((tp + fp) * (tn + fn_)).sqrt() * ((tp + fn_) * (tn + fp)).sqrt();
    if denominator == 0.0 { 0.0 } else { (tp * tn - fp * fn_) / denominator }
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
        // F1 of class 0: 4/(4 + 2 + 1) = 4/7. A third class that is neither predicted nor a label does not count.
        assert!((two.macro_f1() - f64::midpoint(2.0 / 3.0, 4.0 / 7.0)).abs() < 1e-15);
        let three = certain(&predicted, 3);
        let three = Predictions::new(&three, 3, &labels).unwrap();
        assert!((three.macro_f1() - f64::midpoint(2.0 / 3.0, 4.0 / 7.0)).abs() < 1e-15);
        assert!(three.f1().is_err() && three.mcc().is_err());
        // Undefined ratios are 0.
        for (predicted, labels) in [([0, 0, 0], [0, 0, 0]), ([1, 1, 1], [1, 0, 1])] {
            let rows = certain(&predicted, 2);
            assert_eq!(Predictions::new(&rows, 2, &labels).unwrap().mcc(), Ok(0.0));
        }
        let rows = certain(&[0, 0], 2);
        assert_eq!(Predictions::new(&rows, 2, &[0, 0]).unwrap().f1(), Ok(0.0));
    }

    /// `sklearn.metrics.f1_score(y, p, average="macro")` of scikit-learn 1.9.1.
    #[test]
    fn macro_f1_is_that_of_scikit_learn() {
        for (labels, predicted, expected) in [
            (&[0, 2, 2, 5][..], &[0, 2, 2, 5][..], 1.0),
            (&[0, 2, 2, 5], &[0, 2, 5, 5], 0.777_777_777_777_777_8),
            (&[0, 2, 2, 5], &[0, 2, 3, 5], 0.666_666_666_666_666_6),
            (&[1, 1, 1, 1], &[1, 1, 1, 0], 0.428_571_428_571_428_55),
        ] {
            let rows = certain(predicted, 8);
            let found = Predictions::new(&rows, 8, labels).unwrap().macro_f1();
            assert!((found - expected).abs() < 1e-15, "{labels:?} {predicted:?}: {found}");
        }
    }

    #[test]
    fn soft_labels_are_measured_against_their_shares() {
        // Two rows of equal shares: the undecided model is the calibrated one.
        let shares = [0.5; 4];
        let nll = |p: f64| {
            let rows = [p, 1.0 - p].repeat(2);
            let predictions = Predictions::new(&rows, 2, &[0, 0]).unwrap();
            let soft = predictions.with_shares(&shares).unwrap();
            (soft.nll(), soft.brier(), soft.ece().unwrap())
        };
        let (even, sure) = (nll(0.5), nll(0.9));
        assert!((even.0 - std::f64::consts::LN_2).abs() < 1e-15 && even.1 == 0.0 && even.2 == 0.0);
        // −½ ln .9 − ½ ln .1, 2·.4², |.5 − .9|.
        assert!((sure.0 - 1.203_972_804_325_936).abs() < 1e-14, "{sure:?}");
        assert!((sure.1 - 0.32).abs() < 1e-15 && (sure.2 - 0.4).abs() < 1e-15, "{sure:?}");
        // Shares of one class are its label.
        let rows = [0.7, 0.2, 0.1, 0.1, 0.6, 0.3];
        let hard = Predictions::new(&rows, 3, &[0, 2]).unwrap();
        let soft = hard.with_shares(&[1.0, 0.0, 0.0, 0.0, 0.0, 1.0]).unwrap();
        assert!(
            (hard.nll() - soft.nll()).abs() < 1e-15 && (hard.brier() - soft.brier()).abs() < 1e-15
        );
        let eces = [hard, soft].map(|p| p.reliability().unwrap());
        assert_eq!(eces[0], eces[1]);
        assert!(hard.with_shares(&[0.5; 6]).is_err() && hard.with_shares(&[1.0, 0.0]).is_err());
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
