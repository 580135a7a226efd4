//! Predictions of several labels at once, each of them there or not, and the threshold of a label.

use super::NLL_FLOOR;
use super::outcomes::{ClassScores, Outcome};
use crate::error::{
    Error, at_least_one_row, check_all_in, check_at_least, check_range, check_same_length,
};

/// Measures of label sets: a probability for each label of each row, the labels that are given for it, and those that it has.
///
/// # Examples
///
/// ```
/// # use lrvd_core::metrics::LabelSetMetrics;
/// // Two rows of two labels. The second row has both and is given the first alone.
/// let (probabilities, present) = ([0.9, 0.2, 0.8, 0.4], [true, false, true, true]);
/// let found = LabelSetMetrics::new(&probabilities, &[0.5, 0.5], &present)?;
/// assert_eq!((found.subset_accuracy, found.micro_f1, found.macro_f1), (0.5, 0.8, 0.5));
/// # Ok::<(), lrvd_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LabelSetMetrics {
    /// Share of the rows that are given all of their labels and no other.
    pub subset_accuracy: f64,
    /// `2TP / (2TP + FP + FN)` over all labels of all rows; 0 where no label is there or given.
    pub micro_f1: f64,
    /// Unweighted mean of that of each label, over the labels that a row has or is given; 0 where there is none.
    pub macro_f1: f64,
    /// Mean over the rows of `−Σ_k ln p(y_k)`, nats, of probabilities floored at [`NLL_FLOOR`].
    pub nll: f64,
    /// Mean over the rows of `Σ_k (p_k − y_k)²`.
    pub brier: f64,
}

impl LabelSetMetrics {
    /// `probabilities` and `present` are `[rows, labels]`. A label is given from its entry of `thresholds` on.
    ///
    /// # Errors
    ///
    /// No label or row, lengths that differ, and a probability outside 0 to 1.
    pub fn new(probabilities: &[f64], thresholds: &[f64], present: &[bool]) -> Result<Self, Error> {
        let each = Self::outcomes(probabilities, thresholds, present)?;
        let (labels, mut exact) = (thresholds.len(), 0);
        let (mut nll, mut brier) = (0.0, 0.0);
        for (row, present) in probabilities.chunks(labels).zip(present.chunks(labels)) {
            let mut is_exact = true;
            for ((&p, &present), &threshold) in row.iter().zip(present).zip(thresholds) {
                is_exact &= (p >= threshold) == present;
                nll -= if present { p } else { 1.0 - p }.max(NLL_FLOOR).ln();
                brier += (p - f64::from(present)).powi(2);
            }
            exact += u32::from(is_exact);
        }
        let all = each.iter().fold(Outcome::default(), |all, label| Outcome {
            given: all.given + label.given,
            present: all.present + label.present,
            hits: all.hits + label.hits,
        });
        let n = (probabilities.len() / labels) as f64;
        Ok(Self {
            subset_accuracy: f64::from(exact) / n,
            micro_f1: all.f1(),
            macro_f1: ClassScores::macro_average(&each).f1,
            nll: nll / n,
            brier: brier / n,
        })
    }

    /// The counts of every label, by the arguments of [`new`](Self::new), which has the errors.
    pub fn outcomes(
        probabilities: &[f64],
        thresholds: &[f64],
        present: &[bool],
    ) -> Result<Vec<Outcome>, Error> {
        let labels = thresholds.len();
        check_at_least("thresholds", labels, 1)?;
        check_same_length("present", present.len(), "probabilities", probabilities.len())?;
        check_all_in("probabilities", probabilities, 0.0, 1.0)?;
        at_least_one_row("probabilities", probabilities.len(), "labels", labels)?;
        let mut each = vec![Outcome::default(); labels];
        for (row, present) in probabilities.chunks(labels).zip(present.chunks(labels)) {
            for (((p, &present), threshold), label) in
                row.iter().zip(present).zip(thresholds).zip(&mut each)
            {
                label.add(p >= threshold, present);
            }
        }
        Ok(each)
    }
}

/// The threshold of one label with the largest F1 on rows with these `probabilities`, of which those with the label are
/// `present`. Of thresholds with one F1 it is the one nearest to `usual`; each is the middle between two neighbouring
/// probabilities. `None` where no row has the label, since no threshold is then better than another.
///
/// # Errors
///
/// Lengths that differ, and a probability or `usual` outside 0 to 1.
pub fn f1_threshold(
    probabilities: &[f64],
    present: &[bool],
    usual: f64,
) -> Result<Option<f64>, Error> {
    check_same_length("present", present.len(), "probabilities", probabilities.len())?;
    check_all_in("probabilities", probabilities, 0.0, 1.0)?;
    check_range("usual", usual, 0.0..=1.0)?;
    let positives = present.iter().filter(|present| **present).count();
    if positives == 0 {
        return Ok(None);
    }
    let mut rows: Vec<(f64, bool)> =
        probabilities.iter().copied().zip(present.iter().copied()).collect();
    rows.sort_by(|a, b| b.0.total_cmp(&a.0));
    let mut best: Option<(f64, f64)> = None;
    let (mut given, mut hits) = (0, 0);
    for (place, (p, present)) in rows.iter().enumerate() {
        given += 1;
        hits += usize::from(*present);
        let next = rows.get(place + 1).map_or(0.0, |(next, _)| *next);
        if next == *p && place + 1 < rows.len() {
            continue;
        }
        let f1 = (2 * hits) as f64 / (given + positives) as f64;
        // Every threshold above the next probability gives the same labels.
        let is_usual = next < usual && usual <= *p;
        let threshold = if is_usual { usual } else { f64::midpoint(next, *p) };
        let distance = |(_, other): (f64, f64)| (other - usual).abs();
        let is_better = best.is_none_or(|found| {
            f1 > found.0 || f1 == found.0 && (threshold - usual).abs() < distance(found)
        });
        if is_better {
            best = Some((f1, threshold));
        }
    }
    Ok(best.map(|(_, threshold)| threshold))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `f1_score(y, p >= t, average="micro" | "macro")` and `accuracy_score` by their definitions: label 1 has TP 1, FP 1, FN 0;
    /// label 2 TP 1, FP 0, FN 1; label 3 occurs nowhere.
    #[test]
    fn sets_are_measured_by_labels_and_as_wholes() {
        let probabilities = [0.7, 0.4, 0.1, 0.6, 0.2, 0.1, 0.1, 0.1, 0.2];
        let present = [true, true, false, false, true, false, false, false, false];
        let found = LabelSetMetrics::new(&probabilities, &[0.5, 0.3, 0.5], &present).unwrap();
        // Rows 1 and 3 are exact; micro 2·2/(2·2 + 1 + 1), label 1 2/3, label 2 2/3.
        assert!((found.subset_accuracy - 2.0 / 3.0).abs() < 1e-15);
        assert!((found.micro_f1 - 2.0 / 3.0).abs() < 1e-15);
        assert!((found.macro_f1 - 2.0 / 3.0).abs() < 1e-15);
        let nll: f64 = [0.7, 0.4, 0.9, 0.4, 0.2, 0.9, 0.9, 0.9, 0.8].map(f64::ln).iter().sum();
        assert!((found.nll + nll / 3.0).abs() < 1e-12, "{found:?}");
        let brier = 0.09 + 0.36 + 0.01 + 0.36 + 0.64 + 0.01 + 0.01 + 0.01 + 0.04;
        assert!((found.brier - brier / 3.0).abs() < 1e-12, "{found:?}");
        // All labels are there and given; none is.
        let sure = LabelSetMetrics::new(&[1.0; 4], &[0.5; 2], &[true; 4]).unwrap();
        assert_eq!((sure.subset_accuracy, sure.micro_f1, sure.nll), (1.0, 1.0, 0.0));
        let none = LabelSetMetrics::new(&[0.0; 4], &[0.5; 2], &[false; 4]).unwrap();
        assert_eq!((none.subset_accuracy, none.micro_f1, none.macro_f1), (1.0, 0.0, 0.0));
        for (probabilities, thresholds, present) in [
            (&[0.5][..], &[][..], &[true][..]),
            (&[0.5], &[0.5], &[]),
            (&[1.5], &[0.5], &[true]),
            (&[], &[0.5], &[]),
        ] {
            assert!(LabelSetMetrics::new(probabilities, thresholds, present).is_err());
        }
    }

    #[test]
    fn a_threshold_has_the_largest_f1_of_all() {
        let of = |rows: &[(f64, bool)]| {
            let (p, y): (Vec<f64>, Vec<bool>) = rows.iter().copied().unzip();
            f1_threshold(&p, &y, 0.5).unwrap()
        };
        // F1 from the top: 2/3, 1, .8.
        assert!((of(&[(0.4, true), (0.1, false), (0.3, true)]).unwrap() - 0.2).abs() < 1e-15);
        // .5 is as good as any threshold of the gap.
        assert_eq!(of(&[(0.9, true), (0.2, false)]), Some(0.5));
        // Equal probabilities are given together: all of them, or no label at all.
        assert_eq!(of(&[(0.6, true), (0.6, false), (0.1, false)]), Some(0.5));
        assert_eq!(of(&[(0.2, true)]), Some(0.1));
        assert_eq!(of(&[(0.9, false), (0.2, false)]), None);
        assert_eq!(of(&[]), None);
        assert!(
            f1_threshold(&[0.5], &[], 0.5).is_err() && f1_threshold(&[2.0], &[true], 0.5).is_err()
        );
    }
}
