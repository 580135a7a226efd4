//! Temperature scaling on top of any method: a stage after training.
//!
//! `p = softmax(z / T)` with `T > 0` fitted to the negative log-likelihood of examples that were kept out of training, the
//! cross-entropy against the shares of soft labels; one number for every number of draws. With draws, `T` divides the logarithm
//! of the averaged probabilities. Where the loss of the held-out examples has no minimum the temperature is a bound of the
//! search, 0.01 or 100. A score has no temperature.
//!
//! Source: Guo et al. 2017, arXiv:1706.04599.

use std::collections::BTreeMap;

use burn::module::Module;
use lrvd_burn::host::values;
use lrvd_burn::train::{Fitting, Logits, Targets};
use lrvd_core::baselines::temperature_scaling;
use lrvd_core::metrics::{log_softmax, mean_probability};
use lrvd_models::AutoModel;
use serde::{Deserialize, Serialize};

use super::DynMethod;
use crate::error::Burn;

/// A temperature for each number of draws; none before the fit, and for scores.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Temperatures(pub BTreeMap<usize, f64>);

impl Temperatures {
    /// Those of the answers of `method` at the mean and at each number of `draws`.
    pub fn fit(
        method: &DynMethod,
        model: &AutoModel,
        data: &Fitting<'_, lrvd_models::TokenBatch>,
        draws: &[usize],
    ) -> Burn<Self> {
        if data.is_regression()? {
            return Ok(Self::default());
        }
        let Targets::Classes(shares) = data.holdout.all_targets()? else {
            return Ok(Self::default());
        };
        let shares = values(shares);
        let (model, inputs) = (model.clone().valid(), data.inputs(data.holdout));
        let mut found = BTreeMap::new();
        for draws in std::iter::once(0).chain(draws.iter().copied()) {
            found.insert(draws, fitted(method.predict(&model, &inputs, draws)?, &shares)?);
        }
        Ok(Self(found))
    }

    /// `logits` of so many draws under their temperature; as they are without one.
    pub fn soften(&self, logits: Logits, draws: usize) -> Burn<Logits> {
        let rows = logits.rows;
        softened(logits, &vec![self.0.get(&draws).copied(); rows])
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn fitted(&self) -> impl Iterator<Item = (String, f64)> {
        self.0.iter().map(|(draws, &t)| (format!("temperature-k{draws}"), t))
    }
}

/// The temperature of the averaged probabilities of `logits` against the `shares` of the classes, `[rows, width]`.
fn fitted(logits: Logits, shares: &[f64]) -> Burn<f64> {
    let logs = averaged(logits)?;
    Ok(temperature_scaling(&logs.values, logs.width, shares)?.temperature)
}

/// `logits` under a temperature for each row, 1 of a row without one; as they are where no row has one.
pub(crate) fn softened(logits: Logits, temperatures: &[Option<f64>]) -> Burn<Logits> {
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
pub(crate) fn averaged(logits: Logits) -> Burn<Logits> {
    let logs = log_softmax(&logits.values, logits.width)?;
    let mean = mean_probability(&logs, logits.members().max(1), logits.width)?;
    let size = mean.len();
    // A probability that underflowed has the logarithm of its largest term, which is off by that of their number at most.
    // A floor instead would give an answer that is barred a probability again, once a temperature divides it.
    let largest = |i: usize| logs.iter().skip(i).step_by(size).copied().fold(f64::MIN, f64::max);
    let log = |(i, p): (usize, f64)| if p < f64::MIN_POSITIVE { largest(i) } else { p.ln() };
    let values = mean.into_iter().enumerate().map(log).collect();
    Ok(Logits { values, ..logits })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_temperature_is_fitted_to_the_votes_on_a_row_as_to_a_row_for_each() {
        let logits = |rows: usize| Logits::new([4.0, 0.0, -1.0].repeat(rows), rows, 3);
        let one_hot = [1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 1.0, 0.0, 0.0];
        let hard = fitted(logits(4), &one_hot).unwrap();
        let soft = fitted(logits(1), &[0.75, 0.25, 0.0]).unwrap();
        assert!((soft / hard - 1.0).abs() < 1e-9 && hard > 1.0, "{soft} {hard}");
    }

    #[test]
    fn what_has_no_probability_gets_none_from_the_highest_temperature() {
        // Two members, of which each bars the third answer.
        let values = vec![1.0, 0.5, -1e6, 0.0, 2.0, -1e6];
        let logits = Logits::new(values, 1, 3);
        let hot = Temperatures([(0, 100.0)].into());
        let soft = hot.soften(logits, 0).unwrap().classes().unwrap().remove(0).probabilities;
        assert!(soft[2] == 0.0 && soft[0] > 0.49 && soft[1] > 0.49, "{soft:?}");
    }
}
