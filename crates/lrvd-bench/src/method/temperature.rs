//! Temperature scaling on top of any method: a stage after training.
//!
//! `p = softmax(z / T)` with `T > 0` fitted to the negative log-likelihood of examples that were kept out of training, the
//! cross-entropy against the shares of soft labels; one number for every number of draws. With draws, `T` divides the logarithm
//! of the averaged probabilities. A prior holds `T` the nearer to 1 the fewer examples there are; fewer than
//! [`FEWEST_ROWS`](lrvd_core::baselines::temperature::FEWEST_ROWS) give none ([`shrunk_temperature`]). A score has no temperature.
//! Several labels share one temperature, to which every label of every row is a case of two classes, present and absent.
//!
//! Source: Guo et al. 2017, arXiv:1706.04599.

use std::collections::BTreeMap;

use burn::module::Module;
use lrvd_burn::parameters::values;
use lrvd_burn::train::{CrossFitted, Fitting, Prediction, Targets};
use lrvd_core::baselines::shrunk_temperature;
use lrvd_core::baselines::temperature::FEWEST_ROWS;
use lrvd_core::metrics::{log_softmax, mean_probability};
use lrvd_models::AutoModel;
use serde::{Deserialize, Serialize};

use super::DynMethod;
use crate::error::Burn;

/// Temperatures of a model; empty before the fit, and for scores.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Temperatures {
    /// Rows that they are fitted to; 0 of a method that fits none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub rows: usize,
    /// Fits that answered these rows, each without its part of them; 0 of rows that were held out of training.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub folds: usize,
    /// Temperature by number of draws; none of too few rows.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub by_draws: BTreeMap<usize, f64>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(rows: &usize) -> bool {
    *rows == 0
}

impl Temperatures {
    /// Fits temperatures to the answers of `method` at the mean and at each number of `draws`.
    pub fn fit(
        method: &DynMethod,
        model: &AutoModel,
        data: &Fitting<'_, lrvd_models::TokenBatch>,
        draws: &[usize],
    ) -> Burn<Self> {
        if data.is_regression()? {
            return Ok(Self::default());
        }
        let targets = data.holdout.all_targets()?;
        let (rows, shares) = match &targets {
            Targets::Classes(shares) => (targets.rows(), values(shares.clone())),
            Targets::Labels(present) => {
                let present = values(present.clone());
                (targets.rows(), present.iter().flat_map(|&y| [y, 1.0 - y]).collect())
            }
            Targets::Scores(_) | Targets::Tokens { .. } => return Ok(Self::default()),
        };
        let mut by_draws = BTreeMap::new();
        if rows < FEWEST_ROWS {
            return Ok(Self { rows, by_draws, ..Self::default() });
        }
        let model = model.clone().valid();
        let inputs = data.inputs(data.holdout);
        for draws in std::iter::once(0).chain(draws.iter().copied()) {
            let logits = method.predict(&model, &inputs.drawn(draws))?;
            let logits = match targets {
                Targets::Labels(_) => logits.per_label(),
                _ => logits,
            };
            let found = fitted(logits, &shares)?;
            by_draws.extend(found.map(|temperature| (draws, temperature)));
        }
        Ok(Self { rows, by_draws, ..Self::default() })
    }

    /// Description of the temperatures; `None` for a method that fits none.
    pub fn describe(&self) -> Option<String> {
        if self.is_empty() {
            return None;
        }
        let each = |(draws, t): (&usize, &f64)| match draws {
            0 => format!("{t:.3}"),
            1 => format!("{t:.3} of 1 draw"),
            draws => format!("{t:.3} of {draws} draws"),
        };
        let all: Vec<String> = self.by_draws.iter().map(each).collect();
        let rows = if self.rows == 1 { "row" } else { "rows" };
        let rows = match self.folds {
            0 => format!("{} held-out {rows}", self.rows),
            folds => format!(
                "{} {rows} that a fit without their fold answered ({folds} folds)",
                self.rows
            ),
        };
        Some(if all.is_empty() {
            format!("not calibrated: {rows}, and a temperature needs {FEWEST_ROWS}")
        } else {
            format!("temperature {}, fitted to {rows}", all.join(", "))
        })
    }

    /// `logits` of so many draws under their temperature; as they are without one.
    pub fn soften(&self, logits: Prediction, draws: usize) -> Burn<Prediction> {
        let rows = logits.rows;
        softened(logits, &vec![self.by_draws.get(&draws).copied(); rows])
    }

    pub fn is_empty(&self) -> bool {
        self.rows == 0 && self.by_draws.is_empty()
    }

    pub fn fitted(&self) -> impl Iterator<Item = (String, f64)> {
        let rows = (self.rows > 0).then(|| ("temperature-rows".to_owned(), self.rows as f64));
        let each = self.by_draws.iter().map(|(draws, &t)| (format!("temperature-k{draws}"), t));
        rows.into_iter().chain(each)
    }
}

impl From<CrossFitted> for Temperatures {
    fn from(CrossFitted { temperature, rows, folds }: CrossFitted) -> Self {
        Self { rows, folds, by_draws: temperature.map(|own| (0, own)).into_iter().collect() }
    }
}

/// The temperature of the averaged probabilities of `logits` against the `shares` of the classes, `[rows, width]`.
fn fitted(logits: Prediction, shares: &[f64]) -> Burn<Option<f64>> {
    let logs = averaged(logits)?;
    Ok(shrunk_temperature(&logs.values, logs.width, shares)?)
}

/// `logits` under a temperature for each row, 1 of a row without one; as they are where no row has one.
pub(crate) fn softened(logits: Prediction, temperatures: &[Option<f64>]) -> Burn<Prediction> {
    if temperatures.iter().all(Option::is_none) {
        return Ok(logits);
    }
    let mut logs = averaged(logits)?;
    for (row, temperature) in logs.values.chunks_mut(logs.width).zip(temperatures) {
        let temperature = temperature.unwrap_or(1.0);
        for value in row {
            *value /= temperature;
        }
    }
    Ok(logs)
}

/// Logarithms of the averaged probabilities of `logits`, of one member.
pub(crate) fn averaged(logits: Prediction) -> Burn<Prediction> {
    let logs = log_softmax(&logits.values, logits.width)?;
    let mean = mean_probability(&logs, logits.members().max(1), logits.width)?;
    let size = mean.len();
    // A probability that underflowed has the logarithm of its largest term, which is off by that of their number at most.
    // A floor instead would give an answer that is barred a probability again, once a temperature divides it.
    let largest = |i: usize| logs.iter().skip(i).step_by(size).copied().fold(f64::MIN, f64::max);
    let log = |(i, p): (usize, f64)| if p < f64::MIN_POSITIVE { largest(i) } else { p.ln() };
    let values = mean.into_iter().enumerate().map(log).collect();
    Ok(Prediction { values, ..logits })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_temperature_is_fitted_to_the_votes_on_a_row_as_to_a_row_for_each() {
        let logits = |rows: usize| Prediction::new([4.0, 0.0, -1.0].repeat(rows), rows, 3);
        let one_hot = [1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 1.0, 0.0, 0.0];
        // 28 rows of each, so that the prior has the same weight.
        let hard = fitted(logits(28), &one_hot.repeat(7)).unwrap().unwrap();
        let soft = fitted(logits(28), &[0.75, 0.25, 0.0].repeat(28)).unwrap().unwrap();
        assert!((soft / hard - 1.0).abs() < 1e-9 && hard > 1.0, "{soft} {hard}");
    }

    #[test]
    fn too_few_rows_are_named_with_their_number() {
        let few = Temperatures { rows: 10, ..Temperatures::default() };
        let words = "not calibrated: 10 held-out rows, and a temperature needs 20";
        assert_eq!(few.describe().as_deref(), Some(words));
        let by_draws = [(0, 1.25), (10, 1.0625)].into();
        let fitted = Temperatures { rows: 62, by_draws, ..Temperatures::default() };
        let words = "temperature 1.250, 1.062 of 10 draws, fitted to 62 held-out rows";
        assert_eq!(fitted.describe().as_deref(), Some(words));
        let own = CrossFitted { temperature: Some(1.02), rows: 90, folds: 5 };
        let words =
            "temperature 1.020, fitted to 90 rows that a fit without their fold answered (5 folds)";
        assert_eq!(Temperatures::from(own).describe().as_deref(), Some(words));
        assert_eq!(Temperatures::default().describe(), None);
        let text = serde_json::to_string(&few).unwrap();
        assert_eq!(text, r#"{"rows":10}"#);
        assert_eq!(serde_json::from_str::<Temperatures>(&text).unwrap(), few);
    }

    #[test]
    fn what_has_no_probability_gets_none_from_the_highest_temperature() {
        // Two members, of which each bars the third answer.
        let values = vec![1.0, 0.5, -1e6, 0.0, 2.0, -1e6];
        let logits = Prediction::new(values, 1, 3);
        let hot =
            Temperatures { rows: 50, by_draws: [(0, 100.0)].into(), ..Temperatures::default() };
        let soft = hot.soften(logits, 0).unwrap().classes().unwrap().remove(0).probabilities;
        assert!(soft[2] == 0.0 && soft[0] > 0.49 && soft[1] > 0.49, "{soft:?}");
    }
}
