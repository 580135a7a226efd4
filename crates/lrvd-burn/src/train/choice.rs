//! Choice of a number of directions by the losses of held-out rows.

use std::fmt;

use lrvd_core::baselines::temperature_scaling;
use lrvd_core::metrics::log_softmax;
use lrvd_core::non_inferiority::PairedDifference;
use serde::{Deserialize, Serialize};

use super::data::Targets;
use super::predict::Prediction;
use crate::error::Error;
use crate::parameters::values;

/// Fewest held-out rows that are enough for a decision on ranks.
pub const MIN_HELD_OUT: usize = 100;

/// `losses` of a model of `total_rank` directions against those of the whole model; both 0 without rows.
pub(super) fn point(
    total_rank: usize,
    losses: &[f64],
    whole: &[f64],
) -> Result<ChoicePoint, Error> {
    if losses.is_empty() {
        return Ok(ChoicePoint { total_rank, ..ChoicePoint::default() });
    }
    let apart = PairedDifference::new(losses, whole)?;
    let loss = losses.iter().sum::<f64>() / losses.len() as f64;
    Ok(ChoicePoint { total_rank, loss, difference: apart.mean, upper: apart.upper })
}

/// A bound is printed where it fails: that of a size that was chosen by its bound is no interval.
pub(super) fn compared(point: &ChoicePoint, measure: LossMeasure, margin: f64) -> String {
    let ChoicePoint { loss, difference, upper, .. } = point;
    let whole = loss - difference;
    let failed = if *upper <= margin {
        String::new()
    } else {
        format!(", less than the bound {upper:.4} of the difference")
    };
    format!("{measure} {loss:.4} against {whole:.4} with all ranks, margin {margin}{failed}")
}

/// Losses of a model on the held-out rows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HeldOutLosses {
    /// Loss of each row.
    pub rows: Vec<f64>,
    /// Their measure, which is the same for all models.
    pub measure: LossMeasure,
}

/// Measure of a loss on held-out rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LossMeasure {
    /// Negative log-likelihood at the temperature that is best for the mean of these rows, nats.
    #[default]
    BestTemperature,
    /// Mean negative log-likelihood of the tokens of a row, nats.
    Tokens,
    /// Squared error as a share of the variance of the labels of these rows, the same in every unit of the labels.
    SquaredError,
    /// Squared error where all labels of these rows are equal, and there is no variance to compare it with.
    ConstantLabels,
}

impl LossMeasure {
    /// `true` if such `losses` can show that a smaller model is enough.
    pub(super) fn shows(self, losses: &[f64]) -> bool {
        losses.len() >= MIN_HELD_OUT && self != Self::ConstantLabels
    }
}

impl fmt::Display for LossMeasure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BestTemperature => "loss at its best temperature",
            Self::Tokens => "loss a token",
            Self::SquaredError => "squared error over the labels' variance",
            Self::ConstantLabels => "squared error",
        })
    }
}

/// The number of directions that held-out rows showed to be enough.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Choice {
    /// Completed steps of the whole model.
    pub step: usize,
    /// Held-out rows.
    pub rows: usize,
    /// Measure of the losses.
    pub measure: LossMeasure,
    /// The most that the mean loss may rise over that of the whole model.
    pub margin: f64,
    /// The sizes that were tried, from the whole model down to the first that failed the test, or to the smallest.
    pub points: Vec<ChoicePoint>,
    /// Place of the size that was kept, the last that passed.
    pub chosen: usize,
    /// The kept size after its refinement, whose means stay if its bound is within the margin; `None` before, or without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refined: Option<ChoicePoint>,
}

/// A size beside the whole model, on the held-out rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChoicePoint {
    /// Sum of ranks over all adapters.
    pub total_rank: usize,
    /// Mean loss.
    pub loss: f64,
    /// Mean difference of the losses to those of the whole model, row by row.
    pub difference: f64,
    /// [Bound](PairedDifference::upper) of the test at 5 %. It is no confidence interval: sizes are chosen by it.
    pub upper: f64,
}

impl Choice {
    /// The ranks that were kept.
    pub fn total_rank(&self) -> usize {
        self.points[self.chosen].total_rank
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let &Self { rows, measure, margin, ref points, chosen, .. } = self;
        let kept = &points[chosen];
        let tried = points.len() - 1;
        let all = points[0].total_rank;
        match points.get(1) {
            _ if chosen > 0 => {
                let (rank, loss) = (kept.total_rank, compared(kept, measure, margin));
                let sizes = match tried {
                    1 => "the one size tried, which".to_owned(),
                    _ => format!("the smallest of {tried} sizes tried that"),
                };
                write!(
                    f,
                    "held-out rows choose {rank} of {all} ranks, {sizes} passes the test at 5 %: {loss}"
                )
            }
            _ if measure == LossMeasure::ConstantLabels => write!(
                f,
                "all {all} ranks stay: the labels of the {rows} held-out rows are all equal and do not show that fewer are enough"
            ),
            _ if rows < MIN_HELD_OUT => write!(
                f,
                "all {all} ranks stay: {rows} held-out rows are too few to show that fewer are enough ({MIN_HELD_OUT} are needed)"
            ),
            Some(next) => {
                let (rank, loss) = (next.total_rank, compared(next, measure, margin));
                write!(
                    f,
                    "held-out rows choose all {all} ranks: {rank} fail the test at 5 %: {loss}"
                )
            }
            None => write!(f, "all {all} ranks stay: no size below is tried"),
        }
    }
}

/// Cross-entropy of every row of `logits` against its `shares` at the temperature that minimises its mean, nats.
fn nll_at_best_temperature(mut logits: Prediction, shares: &[f64]) -> Result<Vec<f64>, Error> {
    let fit = temperature_scaling(&logits.values, logits.width, shares);
    let temperature = fit.map_err(Error::other)?.temperature;
    logits.values.iter_mut().for_each(|logit| *logit /= temperature);
    let logs = log_softmax(&logits.values, logits.width)?;
    let row = |(logs, expected): (&[f64], &[f64])| {
        let weighted = logs.iter().zip(expected).filter(|(_, w)| **w != 0.0);
        -weighted.map(|(log, w)| log * w).sum::<f64>()
    };
    Ok(logs.chunks(logits.width).zip(shares.chunks(logits.width)).map(row).collect())
}

/// The loss of every row at the first member: of scores the squared error over the variance of the labels of all rows, else the
/// negative log-likelihood (of soft labels the cross-entropy against their shares, of several labels its sum over them) in nats at the temperature that minimises its
/// mean, from 0.01 to 100.
///
/// The confidence of a model is one number, which can be fitted afterwards: models are compared by what is left. Where
/// the loss has no minimum, because every answer is right or the logits contradict the labels, the temperature is the bound
/// that the search runs into.
pub fn calibrated_losses(logits: &Prediction, targets: &Targets) -> Result<HeldOutLosses, Error> {
    let first = logits.first(1);
    match targets {
        Targets::Classes(shares) => {
            let rows = nll_at_best_temperature(first, &values(shares.clone()))?;
            Ok(HeldOutLosses { rows, measure: LossMeasure::BestTemperature })
        }
        Targets::Labels(present) => {
            let present = values(present.clone());
            let shares: Vec<f64> = present.iter().flat_map(|&y| [y, 1.0 - y]).collect();
            let by_label = nll_at_best_temperature(first.per_label(), &shares)?;
            let rows = by_label.chunks(first.width).map(|labels| labels.iter().sum()).collect();
            Ok(HeldOutLosses { rows, measure: LossMeasure::BestTemperature })
        }
        Targets::Scores(scores) => {
            let (measure, unit) = match targets.variance() {
                Some(variance) => (LossMeasure::SquaredError, variance),
                None => (LossMeasure::ConstantLabels, 1.0),
            };
            let pairs = first.values.iter().zip(values(scores.clone()));
            let rows = pairs.map(|(found, label)| (found - label).powi(2) / unit).collect();
            Ok(HeldOutLosses { rows, measure })
        }
        Targets::Tokens { .. } => Err(Error::token_logits()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use burn::tensor::{Device, Tensor};

    use super::*;

    #[test]
    fn a_choice_says_what_was_decided_and_why() {
        let point = |total_rank, difference, upper| ChoicePoint {
            total_rank,
            loss: 0.289 + difference,
            difference,
            upper,
        };
        let points = [point(576, 0.0, 0.0), point(460, 0.002, 0.006), point(368, 0.004, 0.0123)];
        let text = |rows, measure, chosen, points: &[ChoicePoint]| {
            let (step, margin, points) = (100, 0.01, points.to_vec());
            Choice { step, rows, measure, margin, points, chosen, refined: None }.to_string()
        };
        let classes = LossMeasure::BestTemperature;
        let passes = "passes the test at 5 %: loss at its best temperature 0.2910 against 0.2890 with all ranks, margin 0.01";
        let fails = "fail the test at 5 %: loss at its best temperature 0.2930 against 0.2890 with all ranks, margin 0.01, less \
                     than the bound 0.0123 of the difference";
        let kept = "held-out rows choose 460 of 576 ranks";
        let expected = format!("{kept}, the smallest of 2 sizes tried that {passes}");
        assert_eq!(text(1000, classes, 1, &points), expected);
        let expected = format!("{kept}, the one size tried, which {passes}");
        assert_eq!(text(1000, classes, 1, &points[..2]), expected);
        let expected = format!("held-out rows choose all 576 ranks: 368 {fails}");
        assert_eq!(text(1000, classes, 0, &[points[0], points[2]]), expected);
        for (rows, measure, why) in [
            (1000, classes, "no size below is tried"),
            (
                40,
                classes,
                "40 held-out rows are too few to show that fewer are enough (100 are needed)",
            ),
            (
                1000,
                LossMeasure::ConstantLabels,
                "the labels of the 1000 held-out rows are all equal and do not show that fewer are enough",
            ),
        ] {
            let expected = format!("all 576 ranks stay: {why}");
            assert_eq!(text(rows, measure, 0, &points[..1]), expected);
        }
    }

    #[test]
    fn losses_are_those_at_the_best_temperature() {
        let one_hot = |classes: [usize; 4]| {
            let rows = classes.map(|class| [f32::from(class == 0), f32::from(class == 1)]);
            Targets::Classes(Tensor::<2>::from_floats(rows, &Device::default()))
        };
        // Three of four right, whatever the logits are multiplied by: the best answer is 3/4 for each. All right: 0.
        for scale in [0.1, 4.0, 40.0] {
            let logits = Prediction::new([scale, 0.0].repeat(4), 4, 2);
            let (most, all) = ([0.75_f64, 0.75, 0.75, 0.25], [1.0; 4]);
            for (classes, expected) in [([0, 0, 0, 1], most), ([0; 4], all)] {
                let losses = calibrated_losses(&logits, &one_hot(classes)).unwrap().rows;
                for (loss, expected) in losses.iter().zip(expected) {
                    assert!((loss + expected.ln()).abs() < 1e-4, "{loss} {expected}");
                }
            }
        }
        // The votes on one row are as good as a row for each of them.
        let votes = Targets::Classes(Tensor::from_floats([[0.75, 0.25]], &Device::default()));
        let losses =
            calibrated_losses(&Prediction::new(vec![4.0, 0.0], 1, 2), &votes).unwrap().rows;
        let entropy = -(0.75_f64 * 0.75_f64.ln() + 0.25 * 0.25_f64.ln());
        assert!((losses[0] - entropy).abs() < 1e-9, "{losses:?}");
    }

    #[test]
    fn losses_of_scores_are_the_same_in_every_unit() {
        let fitted = |unit: f32, labels: [f32; 2]| {
            let labels = labels.map(|label| [unit * label]);
            let targets = Targets::Scores(Tensor::<2>::from_floats(labels, &Device::default()));
            let unit = f64::from(unit);
            calibrated_losses(&Prediction::new(vec![2.0 * unit, 5.0 * unit], 2, 1), &targets)
                .unwrap()
        };
        // Squared errors 1 and 4, the variance of 1 and 3 is 1.
        for unit in [0.1, 1.0, 10.0] {
            let HeldOutLosses { rows, measure } = fitted(unit, [1.0, 3.0]);
            assert_eq!(measure, LossMeasure::SquaredError);
            assert!((rows[0] - 1.0).abs() < 1e-6 && (rows[1] - 4.0).abs() < 1e-6, "{rows:?}");
        }
        let HeldOutLosses { rows, measure } = fitted(1.0, [3.0, 3.0]);
        assert_eq!((rows, measure), (vec![1.0, 4.0], LossMeasure::ConstantLabels));
    }
}
