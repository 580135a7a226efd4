//! The adaptive number of samples: how much is spent on a prediction with draws, and when fewer of them are enough.

use std::ops::RangeInclusive;

use lrvd_core::metrics::{mean, sample_sd, softmax};
use serde::{Deserialize, Serialize};

use super::config::range;
use super::predict::Logits;
use crate::error::Error;

/// Fewest draws after which the standard error of their mean is used.
const FEWEST: usize = 4;

/// How much is spent on a prediction with `k` draws. By default every example gets all of them, independent of each other.
///
/// `cascade` and `tolerance` are for classifiers (a score has no margin) and change answers:
///
/// *Cascade.* An example is *decided* where its two largest probabilities at the posterior mean differ by
/// `cascade` or more. Its answer is the one at the mean: it has no mutual information, and its
/// probabilities are more certain than those of the draws by what the posterior would have taken off. The
/// class is another one only where the draws would close a gap of `cascade` or more between two
/// probabilities: never, if they move each of them by less than half of it. At 1 nothing is decided.
///
/// *Tolerance.* After `m` draws, `m` any divisor of `k` from 4 on (and even for antithetic ones), an
/// example is *settled* where the standard error of its leading class's mean probability is `tolerance` or
/// less:
///
/// ```text
/// s² = Σ_j (p_j − mean p)² / (m − 1),     settled if s / sqrt(m) ≤ tolerance
/// ```
///
/// `p_j` are the draws, or the means of antithetic pairs. The probability is thus that of
/// infinitely many draws up to about twice the tolerance; a little more where few draws happened to agree,
/// since the rule stops on just that. A `k` that is prime stops nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct DrawPolicy {
    /// Bounds the memory of a pass that holds several draws: examples of a batch × size of the longest ×
    /// draws; 8192 by default. A larger batch goes through draw by draw. Changes no answer.
    pub tokens_per_pass: usize,
    /// Draws come in pairs of opposite noise, `eps` and `−eps`: each has the distribution of a draw, and what is
    /// linear in the noise cancels. With an odd number the last draw has no partner.
    pub antithetic: bool,
    /// Margin from which an example is answered at the mean, 0 to 1.
    pub cascade: Option<f64>,
    /// Standard error from which no further draws are made, 1e-6 to 0.5.
    pub tolerance: Option<f64>,
}

impl Default for DrawPolicy {
    fn default() -> Self {
        // About 0.3 GB of activations for a base model and 0.1 GB for the shipped one.
        Self { tokens_per_pass: 8192, antithetic: false, cascade: None, tolerance: None }
    }
}

impl DrawPolicy {
    /// Margins of a cascade.
    pub const CASCADE: RangeInclusive<f64> = 0.0..=1.0;
    /// Standard errors that settle an example.
    pub const TOLERANCE: RangeInclusive<f64> = 1e-6..=0.5;

    /// Checks every range.
    pub fn check(&self) -> Result<(), lrvd_core::Error> {
        let within = |name, value: Option<f64>, allowed: RangeInclusive<f64>| {
            value.map_or(Ok(()), |value| range(name, value, *allowed.start(), *allowed.end()))
        };
        within("cascade", self.cascade, Self::CASCADE)?;
        within("tolerance", self.tolerance, Self::TOLERANCE)
    }

    /// The first setting that has no meaning without draws, if one is set.
    pub fn needs_draws(&self) -> Option<&'static str> {
        let all = [
            (self.antithetic, "antithetic"),
            (self.cascade.is_some(), "cascade"),
            (self.tolerance.is_some(), "tolerance"),
        ];
        all.into_iter().find_map(|(is_set, name)| is_set.then_some(name))
    }

    /// Numbers of draws after which examples may be settled, then `draws` itself.
    pub(super) fn stages(&self, draws: usize) -> Vec<usize> {
        let may_stop = |m: &usize| {
            self.tolerance.is_some()
                && draws.is_multiple_of(*m)
                && (!self.antithetic || m.is_multiple_of(2))
        };
        (FEWEST..draws).filter(may_stop).chain([draws]).collect()
    }

    /// Whether the draws of an example, `[draws, width]`, leave its leading class uncertain.
    pub(super) fn unsettled(&self, draws: &[f64], width: usize) -> Result<bool, Error> {
        let Some(tolerance) = self.tolerance else { return Ok(true) };
        let probabilities = softmax(draws, width)?;
        let mut leading = (f64::NEG_INFINITY, Vec::new());
        for class in 0..width {
            let values: Vec<f64> =
                probabilities.iter().skip(class).step_by(width).copied().collect();
            let level = mean(&values)?;
            if level > leading.0 {
                leading = (level, values);
            }
        }
        let independent: Vec<f64> = if self.antithetic {
            leading.1.chunks_exact(2).map(|pair| f64::midpoint(pair[0], pair[1])).collect()
        } else {
            leading.1
        };
        Ok(sample_sd(&independent)? / (independent.len() as f64).sqrt() > tolerance)
    }
}

/// Whether the two largest probabilities of each example differ by less than `margin`.
pub(super) fn undecided(logits: &Logits, margin: f64) -> Result<Vec<bool>, Error> {
    let probabilities = softmax(&logits.values, logits.width)?;
    let gap = |row: &[f64]| {
        let mut sorted = row.to_vec();
        sorted.sort_by(|a, b| b.total_cmp(a));
        sorted[0] - sorted[1]
    };
    Ok(probabilities.chunks_exact(logits.width).map(|row| gap(row) < margin).collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn ranges_and_stages() {
        let policy = DrawPolicy { cascade: Some(0.0), tolerance: Some(0.5), ..Default::default() };
        policy.check().unwrap();
        for (wrong, name) in [
            (DrawPolicy { cascade: Some(f64::NAN), ..policy }, "cascade"),
            (DrawPolicy { tolerance: Some(0.0), ..policy }, "tolerance"),
        ] {
            assert!(wrong.check().unwrap_err().to_string().contains(name));
        }
        assert_eq!(policy.stages(16), [4, 8, 16]);
        assert_eq!((policy.stages(10), policy.stages(7)), (vec![5, 10], vec![7]));
        assert_eq!(DrawPolicy { antithetic: true, ..policy }.stages(30), [6, 10, 30]);
        assert_eq!(DrawPolicy { tolerance: None, ..policy }.stages(16), [16]);
    }

    #[test]
    fn a_margin_decides_and_a_spread_settles() {
        let policy = DrawPolicy { tolerance: Some(0.05), ..Default::default() };
        // Probabilities 0.9, 0.1 and 0.7, 0.3: margins 0.8 and 0.4.
        let logits = |p: f64| [(p / (1.0 - p)).ln(), 0.0];
        let at_mean = Logits::new([logits(0.9), logits(0.7)].concat(), 2, 2);
        assert_eq!(undecided(&at_mean, 0.5).unwrap(), [false, true]);
        // Four draws of 0.6 ± d have a standard deviation of d·sqrt(4/3), half of which is the error.
        for (d, unsettled) in [(0.08, false), (0.09, true)] {
            let draws: Vec<f64> = [d, -d, d, -d].iter().flat_map(|d| logits(0.6 + d)).collect();
            assert_eq!(policy.unsettled(&draws, 2).unwrap(), unsettled, "{d}");
            // In pairs they cancel.
            let paired = DrawPolicy { antithetic: true, ..policy };
            assert!(!paired.unsettled(&draws, 2).unwrap());
        }
    }
}
