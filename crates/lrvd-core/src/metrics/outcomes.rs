//! Counts of a class, and its precision, recall and F1.

/// Rows in which a class is given, is there, and both.
///
/// ```text
/// precision = TP / (TP + FP) = hits / given
/// recall    = TP / (TP + FN) = hits / present
/// F1        = 2TP / (2TP + FP + FN) = 2 hits / (given + present)
/// ```
///
/// A ratio with denominator 0 is 0, as in `classification_report(zero_division=0)` of scikit-learn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Rows that are given the class.
    pub given: usize,
    /// Rows that have the class: its support.
    pub present: usize,
    /// Rows that have it and are given it.
    pub hits: usize,
}

/// Precision, recall and F1, of a class or averaged over classes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ClassScores {
    /// Share of the rows that are given the class which have it.
    pub precision: f64,
    /// Share of the rows that have the class which are given it.
    pub recall: f64,
    /// Harmonic mean of both.
    pub f1: f64,
}

impl Outcome {
    pub(super) fn add(&mut self, given: bool, present: bool) {
        self.given += usize::from(given);
        self.present += usize::from(present);
        self.hits += usize::from(given && present);
    }

    /// `true` if a row has the class or is given it.
    pub const fn occurs(self) -> bool {
        self.given + self.present > 0
    }

    pub(super) fn f1(self) -> f64 {
        ratio(2 * self.hits, self.given + self.present)
    }

    /// Precision, recall and F1 by the counts.
    pub fn scores(self) -> ClassScores {
        let Self { given, present, hits } = self;
        ClassScores { precision: ratio(hits, given), recall: ratio(hits, present), f1: self.f1() }
    }
}

fn ratio(part: usize, whole: usize) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

impl ClassScores {
    /// Unweighted mean over the classes that a row has or is given; 0 without one.
    ///
    /// Source: Opitz, Burst 2019, arXiv:1911.03347, equation 1; `average="macro"` of scikit-learn, which averages over the
    /// classes that occur.
    pub fn macro_average(classes: &[Outcome]) -> Self {
        Self::mean(classes, |class| f64::from(u8::from(class.occurs())))
    }

    /// Mean over the classes with their supports as weights; 0 where no row has a class.
    pub fn weighted_average(classes: &[Outcome]) -> Self {
        Self::mean(classes, |class| class.present as f64)
    }

    fn mean(classes: &[Outcome], weight: impl Fn(Outcome) -> f64) -> Self {
        let all: f64 = classes.iter().map(|&class| weight(class)).sum();
        let mean = |score: fn(Self) -> f64| {
            let sum: f64 = classes.iter().map(|&class| weight(class) * score(class.scores())).sum();
            if all == 0.0 { 0.0 } else { sum / all }
        };
        Self { precision: mean(|s| s.precision), recall: mean(|s| s.recall), f1: mean(|s| s.f1) }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::{LabelSetMetrics, Predictions};
    use super::*;

    const ROUNDING: f64 = 1e-15;

    fn is_close(found: ClassScores, [precision, recall, f1]: [f64; 3]) -> bool {
        let pairs = [(found.precision, precision), (found.recall, recall), (found.f1, f1)];
        pairs.into_iter().all(|(found, expected)| (found - expected).abs() < ROUNDING)
    }

    /// `classification_report(y, p, output_dict=True, zero_division=0)` and `confusion_matrix(y, p, labels=range(5))` of
    /// scikit-learn 1.9.1. Class 2 is never given, class 3 occurs nowhere.
    #[test]
    fn scores_of_classes_are_those_of_scikit_learn() {
        let labels = [0, 0, 0, 0, 1, 1, 1, 2, 2, 4];
        let given = [0, 0, 1, 4, 1, 1, 0, 1, 1, 4];
        let row = |&p: &usize| (0..5).map(move |c| f64::from(u8::from(c == p)));
        let rows: Vec<f64> = given.iter().flat_map(row).collect();
        let predictions = Predictions::new(&rows, 5, &labels).unwrap();
        let classes = predictions.outcomes();
        for (class, expected, support) in [
            (0, [0.666_666_666_666_666_6, 0.5, 0.571_428_571_428_571_4], 4),
            (1, [0.4, 0.666_666_666_666_666_6, 0.5], 3),
            (2, [0.0; 3], 2),
            (3, [0.0; 3], 0),
            (4, [0.5, 1.0, 0.666_666_666_666_666_6], 1),
        ] {
            let found = classes[class];
            assert!(is_close(found.scores(), expected), "{class}: {found:?}");
            assert_eq!((found.present, found.occurs()), (support, class != 3));
        }
        let average = ClassScores::macro_average(&classes);
        let expected =
            [0.391_666_666_666_666_66, 0.541_666_666_666_666_6, 0.434_523_809_523_809_53];
        assert!(is_close(average, expected), "{average:?}");
        assert!((average.f1 - predictions.macro_f1()).abs() < ROUNDING);
        let average = ClassScores::weighted_average(&classes);
        assert!(is_close(average, [0.436_666_666_666_666_7, 0.5, 0.445_238_095_238_095_27]));
        let cells = [2, 1, 0, 0, 1, 1, 2, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
        assert_eq!(predictions.confusion(), cells);
    }

    /// `classification_report` of rows of three labels by the same version; label 1 is given and never there.
    #[test]
    fn scores_of_labels_are_those_of_scikit_learn() {
        let present = [1, 0, 1, 0, 0, 1, 1, 0, 0, 1, 0, 1, 0, 0, 0].map(|flag| flag == 1);
        let given = [1, 0, 0, 0, 1, 1, 1, 0, 1, 0, 0, 1, 0, 0, 0].map(f64::from);
        let classes = LabelSetMetrics::outcomes(&given, &[0.5; 3], &present).unwrap();
        for (label, expected) in [
            (0, [1.0, 0.666_666_666_666_666_6, 0.8]),
            (1, [0.0; 3]),
            (2, [0.666_666_666_666_666_6; 3]),
        ] {
            assert!(is_close(classes[label].scores(), expected), "{label}: {classes:?}");
        }
        let average = ClassScores::macro_average(&classes);
        assert!(is_close(
            average,
            [0.555_555_555_555_555_5, 0.444_444_444_444_444_4, 0.488_888_888_888_888_9]
        ));
        let average = ClassScores::weighted_average(&classes);
        assert!(is_close(
            average,
            [0.833_333_333_333_333_4, 0.666_666_666_666_666_6, 0.733_333_333_333_333_4]
        ));
        assert!(is_close(ClassScores::macro_average(&[]), [0.0; 3]));
        assert!(is_close(ClassScores::weighted_average(&[Outcome::default()]), [0.0; 3]));
    }
}
