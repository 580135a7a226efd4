//! Metrics of predicted classes.

use crate::error::{Error, check_at_least, check_classes, check_range, check_same_length};

/// Outcomes of a two-class task; class 1 is the positive one, as in GLUE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BinaryCounts {
    /// Predicted 1, label 1.
    pub true_positive: usize,
    /// Predicted 1, label 0.
    pub false_positive: usize,
    /// Predicted 0, label 0.
    pub true_negative: usize,
    /// Predicted 0, label 1.
    pub false_negative: usize,
}

impl BinaryCounts {
    /// Counts the four outcomes.
    ///
    /// # Errors
    ///
    /// A class above 1.
    pub fn new(predicted: &[usize], labels: &[usize]) -> Result<Self, Error> {
        check_pair(predicted, labels)?;
        check_classes("predicted", predicted, 2)?;
        check_classes("labels", labels, 2)?;
        let pairs = || predicted.iter().copied().zip(labels.iter().copied());
        let count = |p, y| pairs().filter(|&pair| pair == (p, y)).count();
        Ok(Self {
            true_positive: count(1, 1),
            false_positive: count(1, 0),
            true_negative: count(0, 0),
            false_negative: count(0, 1),
        })
    }

    /// `F1 = 2TP / (2TP + FP + FN)`, 0 if class 1 is neither predicted nor present.
    pub fn f1(self) -> f64 {
        f1_of(self.true_positive, self.false_positive, self.false_negative)
    }

    /// Matthews correlation, 0 if the denominator is 0.
    ///
    /// ```text
    /// (TP·TN − FP·FN) / √((TP + FP)(TP + FN)(TN + FP)(TN + FN))
    /// ```
    pub fn mcc(self) -> f64 {
        let [tp, fp, tn, fn_] =
            [self.true_positive, self.false_positive, self.true_negative, self.false_negative]
                .map(|count| count as f64);
        // Two roots, so that counts in the hundred thousands do not lose digits in the product of four.
        let denominator = ((tp + fp) * (tn + fn_)).sqrt() * ((tp + fn_) * (tn + fp)).sqrt();
        if denominator == 0.0 { 0.0 } else { (tp * tn - fp * fn_) / denominator }
    }
}

/// Unweighted mean of the F1 of every class against the rest; 0 for a class where it is undefined.
pub fn f1_macro(predicted: &[usize], labels: &[usize], n_classes: usize) -> Result<f64, Error> {
    check_pair(predicted, labels)?;
    check_range("n_classes", n_classes as f64, 1.0, f64::MAX)?;
    check_classes("predicted", predicted, n_classes)?;
    check_classes("labels", labels, n_classes)?;
    let mut hits = vec![0; n_classes];
    let mut n_predicted = vec![0; n_classes];
    let mut n_labels = vec![0; n_classes];
    for (&p, &y) in predicted.iter().zip(labels) {
        n_predicted[p] += 1;
        n_labels[y] += 1;
        hits[y] += usize::from(p == y);
    }
    let sum: f64 = (0..n_classes)
        .map(|c| f1_of(hits[c], n_predicted[c] - hits[c], n_labels[c] - hits[c]))
        .sum();
    Ok(sum / n_classes as f64)
}

fn f1_of(true_positive: usize, false_positive: usize, false_negative: usize) -> f64 {
    let denominator = 2 * true_positive + false_positive + false_negative;
    if denominator == 0 { 0.0 } else { (2 * true_positive) as f64 / denominator as f64 }
}

fn check_pair(predicted: &[usize], labels: &[usize]) -> Result<(), Error> {
    check_same_length("predicted", predicted.len(), "labels", labels.len())?;
    check_at_least("labels", labels.len(), 1)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    // TP 3, FP 1, TN 2, FN 2.
    const PREDICTED: [usize; 8] = [1, 1, 1, 1, 0, 0, 0, 0];
    const LABELS: [usize; 8] = [1, 1, 1, 0, 0, 0, 1, 1];

    #[test]
    fn worked_example() {
        let counts = BinaryCounts::new(&PREDICTED, &LABELS).unwrap();
        assert!((counts.f1() - 6.0 / 9.0).abs() < 1e-15);
        // (3·2 − 1·2)/√(4·5·3·4) = 4/√240
        assert!((counts.mcc() - 4.0 / 240f64.sqrt()).abs() < 1e-15);
        // F1 of class 0: 4/(4 + 2 + 1) = 4/7; with a third, absent class the mean is over three.
        let both = f1_macro(&PREDICTED, &LABELS, 2).unwrap();
        assert!((both - f64::midpoint(2.0 / 3.0, 4.0 / 7.0)).abs() < 1e-15);
        let three = f1_macro(&PREDICTED, &LABELS, 3).unwrap();
        assert!((three - (2.0 / 3.0 + 4.0 / 7.0) / 3.0).abs() < 1e-15);
    }

    #[test]
    fn undefined_ratios_are_zero() {
        let none = BinaryCounts::new(&[0, 0], &[0, 0]).unwrap();
        assert_eq!((none.f1(), none.mcc()), (0.0, 0.0));
        let one_sided = BinaryCounts::new(&[1, 1, 1], &[1, 0, 1]).unwrap();
        assert_eq!(one_sided.mcc(), 0.0);
    }

    #[test]
    fn mistakes_are_named() {
        assert!(matches!(BinaryCounts::new(&[], &[]), Err(Error::Length { .. })));
        assert!(matches!(f1_macro(&[0], &[0, 1], 2), Err(Error::Length { .. })));
        let class = BinaryCounts::new(&[0, 2], &[0, 1]);
        let error = Error::entry("predicted", 1, 2.0, "a class below 2");
        assert_eq!(class, Err(error));
        assert_eq!(f1_macro(&[0], &[3], 3), Err(Error::entry("labels", 0, 3.0, "a class below 3")));
        let none = f1_macro(&[0], &[0], 0);
        assert!(matches!(none, Err(Error::OutOfRange { name: "n_classes", .. })));
    }

    proptest! {
        #[test]
        fn the_correlation_is_that_of_the_indicators(pairs in prop::collection::vec((0usize..2, 0usize..2), 2..80)) {
            let (predicted, labels): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
            let mcc = BinaryCounts::new(&predicted, &labels).unwrap().mcc();
            let as_numbers = |classes: &[usize]| classes.iter().map(|&c| c as f64).collect::<Vec<_>>();
            // Where one side never varies the correlation is undefined, and the metric is 0 by convention.
            let correlation = super::super::pearson(&as_numbers(&predicted), &as_numbers(&labels));
            prop_assert!((mcc - correlation.unwrap_or(0.0)).abs() < 1e-12);
        }
    }
}
