//! Runs in turn, and what is made of their times.

use anyhow::Result;
use serde_json::Value;

use super::{Axis, Group, Side};

/// What one call of a program says.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Run {
    /// Seconds of each timed step.
    pub(crate) seconds: Vec<f64>,
    /// Everything else that it printed.
    pub(crate) facts: Value,
}

/// All runs of one side.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Sample {
    /// Seconds of each step by round.
    pub(crate) rounds: Vec<Vec<f64>>,
    /// What the last run printed.
    pub(crate) facts: Value,
}

impl Sample {
    /// Median over all steps.
    pub(crate) fn median(&self) -> f64 {
        median(&self.rounds.concat())
    }

    /// The fastest of several steps.
    pub(crate) fn fastest(&self) -> Option<f64> {
        let all = self.rounds.concat();
        all.iter().copied().reduce(f64::min).filter(|_| all.len() > 1)
    }
}

/// Runs the sides in turn, A B A B, so that a drift of the machine's speed meets all of them.
pub(crate) fn interleave(
    group: &Group,
    once: &mut dyn FnMut(&Side, usize) -> Result<Run>,
) -> Result<Vec<Sample>> {
    let mut samples = vec![Sample::default(); group.sides.len()];
    for _ in 0..group.rounds {
        for (side, sample) in group.sides.iter().zip(&mut samples) {
            let run = once(side, group.steps)?;
            sample.rounds.push(run.seconds);
            sample.facts = run.facts;
        }
    }
    Ok(samples)
}

/// The middle value; of an even number the mean of the two in the middle.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let half = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[half],
        _ => f64::midpoint(sorted[half - 1], sorted[half]),
    }
}

/// How a time grows along an axis, by least squares.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Fit {
    /// `p` in `seconds ∝ x^p`.
    pub(crate) exponent: f64,
    /// `b` in `seconds = a + b·x`.
    pub(crate) per_unit: f64,
}

/// The fit of `seconds` over `axis`.
pub(crate) fn fit(axis: &Axis, seconds: &[f64]) -> Fit {
    let logs = |values: &[f64]| values.iter().map(|value| value.ln()).collect::<Vec<_>>();
    let exponent = slope(&logs(&axis.at), &logs(seconds));
    Fit { exponent, per_unit: slope(&axis.at, seconds) }
}

fn slope(x: &[f64], y: &[f64]) -> f64 {
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let (at, of) = (mean(x), mean(y));
    let products = x.iter().zip(y).map(|(x, y)| (x - at) * (y - of));
    products.sum::<f64>() / x.iter().map(|x| (x - at).powi(2)).sum::<f64>()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::table::groups;
    use super::*;

    #[test]
    fn sides_are_run_in_turn() {
        let mut group = groups(false).remove(0);
        group.sides.truncate(2);
        group.rounds = 2;
        let mut order = Vec::new();
        let samples = interleave(&group, &mut |side, steps| {
            order.push(side.label.clone());
            let seconds = vec![order.len() as f64; steps];
            Ok(Run { seconds, facts: Value::Null })
        });
        assert_eq!(order, ["PyTorch + PEFT, LoRA", "LoRA", "PyTorch + PEFT, LoRA", "LoRA"]);
        let samples = samples.unwrap();
        assert_eq!(samples[1].rounds, [vec![2.0; 15], vec![4.0; 15]]);
        assert_eq!((samples[1].median(), samples[1].fastest()), (3.0, Some(2.0)));
        assert!(interleave(&group, &mut |_, _| anyhow::bail!("no")).is_err());
    }

    #[test]
    fn medians_and_fits() {
        assert_eq!(median(&[5.0, 1.0, 3.0]), 3.0);
        assert_eq!(median(&[5.0, 1.0, 3.0, 4.0]), 3.5);
        assert!(median(&[]).is_nan());
        let axis = Axis { unit: "tokens", at: vec![1.0, 2.0, 4.0] };
        let quadratic = fit(&axis, &[3.0, 12.0, 48.0]);
        assert!((quadratic.exponent - 2.0).abs() < 1e-12, "{quadratic:?}");
        let linear = fit(&axis, &[10.0, 15.0, 25.0]);
        assert!((linear.per_unit - 5.0).abs() < 1e-12, "{linear:?}");
    }
}
