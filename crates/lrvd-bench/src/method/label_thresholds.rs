//! Thresholds of labels: a stage after training for rows with several labels.
//!
//! A label is given from a probability on that has the largest F1 on rows that did not choose the model
//! ([`f1_threshold`]); one for each label and number of draws. A label that none of these rows has keeps [`USUAL`]. F1 on the rows
//! of the fit is larger than on new ones.

use std::collections::BTreeMap;

use lrvd_core::metrics::f1_threshold;
use serde::{Deserialize, Serialize};

use crate::error::Result;

/// Threshold of a label for which none was fitted.
pub(crate) const USUAL: f64 = 0.5;

/// Thresholds of a model's labels; empty of another model, and where no rows are left for them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LabelThresholds {
    /// Rows of the fit.
    pub rows: usize,
    /// Threshold of every label, in their order, by number of draws.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub by_draws: BTreeMap<usize, Vec<f64>>,
}

impl LabelThresholds {
    /// Fits the thresholds of so many `labels` to their probabilities by number of draws, `[rows, labels]`, and to the labels that
    /// are `present`.
    pub(crate) fn fit(
        labels: usize,
        present: &[bool],
        probabilities: impl IntoIterator<Item = (usize, Vec<f64>)>,
    ) -> Result<Self> {
        let mut by_draws = BTreeMap::new();
        for (draws, probabilities) in probabilities {
            let of_label = |label: usize| {
                let of =
                    |p: &[f64]| p.iter().skip(label).step_by(labels).copied().collect::<Vec<_>>();
                let present: Vec<bool> =
                    present.iter().skip(label).step_by(labels).copied().collect();
                Ok(f1_threshold(&of(&probabilities), &present, USUAL)?.unwrap_or(USUAL))
            };
            by_draws.insert(draws, (0..labels).map(of_label).collect::<Result<_>>()?);
        }
        Ok(Self { rows: present.len() / labels.max(1), by_draws })
    }

    /// The thresholds of so many `labels` for the answers of `draws` draws.
    pub fn of(&self, draws: usize, labels: usize) -> Vec<f64> {
        self.by_draws.get(&draws).cloned().unwrap_or_else(|| vec![USUAL; labels])
    }

    /// A note on what was fitted; `None` where nothing was.
    pub fn describe(&self) -> Option<String> {
        if self.is_empty() {
            return None;
        }
        let rows = format!("{} held-out row{}", self.rows, if self.rows == 1 { "" } else { "s" });
        let each = |(draws, all): (&usize, &Vec<f64>)| {
            let all: Vec<String> = all.iter().map(|threshold| format!("{threshold:.3}")).collect();
            match draws {
                0 => all.join(", "),
                draws => format!("{} of {draws} draws", all.join(", ")),
            }
        };
        let all: Vec<String> = self.by_draws.iter().map(each).collect();
        Some(format!("thresholds of the labels {}, of the largest F1 on {rows}", all.join("; ")))
    }

    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Label 1 is there above .2, from .4 on; .5 is right for label 2; no row has label 3.
    #[test]
    fn every_label_has_its_own_threshold() {
        let probabilities = vec![0.4, 0.9, 0.8, 0.2, 0.1, 0.9, 0.6, 0.3, 0.1];
        let present = [true, true, false, false, false, false, true, false, false];
        let fitted =
            LabelThresholds::fit(3, &present, [(0, probabilities.clone()), (4, probabilities)]);
        let fitted = fitted.unwrap();
        let found = fitted.of(4, 3);
        assert!((found[0] - 0.3).abs() < 1e-12 && found[1..] == [0.5, 0.5], "{found:?}");
        assert_eq!(fitted.of(0, 3), found);
        assert_eq!(fitted.of(7, 2), [0.5; 2]);
        let words = "thresholds of the labels 0.300, 0.500, 0.500; 0.300, 0.500, 0.500 of 4 draws, of the largest F1 on 3 held-out \
                     rows";
        assert_eq!(fitted.describe().as_deref(), Some(words));
        assert_eq!(LabelThresholds::default().describe(), None);
    }
}
