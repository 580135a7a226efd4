//! Split conformal intervals of predicted numbers: a stage after training, as a temperature is for classes.
//!
//! `ŷ ± radius`, of which the radius is a rank of the differences from the labels of rows that neither trained nor chose the model
//! ([`conformal_radius`]): new numbers of the same kind are inside with a probability of at least [`LEVEL`](Intervals::LEVEL), on
//! average over the inputs. One radius for every number of draws. It holds the noise of the labels and the error of the model,
//! which the spread of the draws does not.

use std::collections::BTreeMap;

use lrvd_core::metrics::conformal_radius;
use serde::{Deserialize, Serialize};

use crate::error::Result;

/// Intervals of a model that predicts numbers; empty of another, and where no rows are left for them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Intervals {
    /// Rows that give the half-widths.
    pub rows: usize,
    /// Half-width by number of draws, in the unit of the labels; none of too few rows.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub by_draws: BTreeMap<usize, f64>,
}

impl Intervals {
    /// Probability that an interval holds the number.
    pub const LEVEL: f64 = 0.95;
    /// Fewest rows of that level.
    const FEWEST: usize = 19;

    /// Intervals from differences between the numbers of so many rows and their labels, by number of draws.
    pub(crate) fn of(
        rows: usize,
        residuals: impl IntoIterator<Item = (usize, Vec<f64>)>,
    ) -> Result<Self> {
        let mut by_draws = BTreeMap::new();
        for (draws, residuals) in residuals {
            let radius = conformal_radius(&residuals, Self::LEVEL)?;
            by_draws.extend(radius.map(|radius| (draws, radius)));
        }
        Ok(Self { rows, by_draws })
    }

    /// The interval around a number that so many draws predict.
    pub fn around(&self, score: f64, draws: usize) -> Option<[f64; 2]> {
        let radius = self.by_draws.get(&draws)?;
        Some([score - radius, score + radius])
    }

    /// Description of the intervals; `None` if none were fitted.
    pub fn describe(&self) -> Option<String> {
        if self.is_empty() {
            return None;
        }
        let level = 100.0 * Self::LEVEL;
        let rows = self.rows;
        let each = |(draws, radius): (&usize, &f64)| match draws {
            0 => format!("±{radius:.4}"),
            1 => format!("±{radius:.4} of 1 draw"),
            draws => format!("±{radius:.4} of {draws} draws"),
        };
        let all: Vec<String> = self.by_draws.iter().map(each).collect();
        let rows = format!("{rows} held-out row{}", if rows == 1 { "" } else { "s" });
        Some(if all.is_empty() {
            format!("not calibrated: {rows}, and a {level} % interval needs {}", Self::FEWEST)
        } else {
            format!("{level} % interval {}, from {rows}", all.join(", "))
        })
    }

    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    pub(crate) fn fitted(&self) -> impl Iterator<Item = (String, f64)> {
        self.by_draws.iter().map(|(draws, &radius)| (format!("interval-k{draws}"), radius))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_described_and_too_few_rows_are_named() {
        let fitted = Intervals { rows: 40, by_draws: [(0, 1.5), (10, 1.25)].into() };
        let words = "95 % interval ±1.5000, ±1.2500 of 10 draws, from 40 held-out rows";
        assert_eq!(fitted.describe().as_deref(), Some(words));
        assert_eq!(fitted.around(3.0, 10), Some([1.75, 4.25]));
        assert_eq!(fitted.around(3.0, 4), None, "a number of draws without a radius");
        let few = Intervals { rows: 18, ..Intervals::default() };
        let words = "not calibrated: 18 held-out rows, and a 95 % interval needs 19";
        assert_eq!(few.describe().as_deref(), Some(words));
        assert_eq!(Intervals::default().describe(), None);
        let radius = |n: usize| conformal_radius(&vec![1.0; n], Intervals::LEVEL).unwrap();
        assert_eq!([radius(Intervals::FEWEST - 1), radius(Intervals::FEWEST)], [None, Some(1.0)]);
    }
}
