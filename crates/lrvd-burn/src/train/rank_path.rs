//! Losses of a model with fewer and fewer of its directions, and the fewest that are enough.
//!
//! After any training run:
//!
//! ```text
//! turn(&mut model)                               each rank a singular direction of its module's update
//! order = directions(&model)                     of all modules together, the most important first
//! path  = rank_path(&model, &order, ...)         held-out loss with the first 0, 1, 2, ... of them
//! keep(&mut model, &order, path.rank(), ...)     the others are cut out of the tensors
//! ```

use std::collections::BTreeMap;

use lrvd_core::baselines::temperature_scaling;
use lrvd_core::metrics::log_softmax;
use lrvd_core::prune::{PathTolerance, RankPath};

use super::data::{LabelledExamples, Model, Targets};
use super::inputs::{Inputs, PassWatch};
use super::predict::Logits;
use super::tokens::token_answers;
use crate::error::Error;
use crate::host::{HostAdapter, values};
use crate::model::NamedModule;
use crate::optimizer::AdamW;
use crate::prune::{PruneEvent, apply};

/// One rank of one module.
#[derive(Clone, Debug, PartialEq)]
pub struct Direction {
    /// Module path.
    pub path: String,
    /// Its number in the module.
    pub index: usize,
    /// What the order goes by.
    pub importance: f64,
}

/// Every direction of every pair of factors, the largest `c·‖a_i‖·‖b_i‖` first.
///
/// Of a model that was [turned](crate::gauge::turn) these are the singular values of the updates. For
/// another order, sort by another importance.
pub fn directions(model: &impl NamedModule) -> Vec<Direction> {
    let mut found = Vec::new();
    model.visit_layers(&mut |path, layer| {
        let Some(adapter) = layer.low_rank() else { return };
        let host = HostAdapter::read(adapter);
        let norm = |factor: &[f64], width: usize, k: usize| {
            lrvd_core::linalg::norm(&factor[k * width..(k + 1) * width])
        };
        found.extend((0..host.rank).map(|index| {
            let length = norm(&host.a, host.d_input, index) * norm(&host.b, host.d_output, index);
            let scale = host.e.as_ref().map_or(1.0, |e| e[index].abs());
            Direction {
                path: path.to_owned(),
                index,
                importance: host.scaling.abs() * scale * length,
            }
        }));
    });
    found.sort_by(|x, y| y.importance.total_cmp(&x.importance));
    found
}

/// The loss of `model` at its mean, row by row, with the first `n` directions of `order` for every `n`
/// of `ranks`, and the fewest within `tolerance` of the best.
///
/// The loss is the negative log-likelihood in nats (per token, where tokens are expected), or the squared error of scores,
/// without a temperature; a [search](super::RankSearch) compares [`calibrated_losses`]. The model is not changed.
/// `held_out` should be rows that training has not seen.
pub fn rank_path<M: Model>(
    model: &M,
    order: &[Direction],
    ranks: &[usize],
    held_out: &dyn LabelledExamples<Input = M::Input>,
    batch_size: usize,
    tolerance: PathTolerance,
) -> Result<RankPath, Error> {
    let targets = held_out.all_targets()?;
    let asks_tokens = matches!(targets, Targets::Tokens(_));
    let inputs = Inputs { batch_size, ..Inputs::new(&held_out) };
    let whole = model.clone().valid();
    let mut found = Vec::new();
    for &n in ranks {
        let mut part = whole.clone();
        keep(&mut part, order, n, None);
        found.extend(if asks_tokens {
            token_answers(&part, held_out, batch_size, 0, 0, PassWatch::default())?.row_losses()
        } else {
            row_losses(&inputs.predict(&part, 0)?, &targets)?
        });
    }
    Ok(RankPath::new(ranks, &found, tolerance)?)
}

/// Keeps the first `n` directions of `order` and cuts all others out of the tensors of `model` and the
/// moments of `optimizer`. Modules without a direction in `order` stay as they are.
pub fn keep(
    model: &mut impl NamedModule,
    order: &[Direction],
    n: usize,
    optimizer: Option<&mut AdamW>,
) -> PruneEvent {
    let mut event = PruneEvent::default();
    let mut ranks: BTreeMap<&str, usize> = BTreeMap::new();
    for (place, direction) in order.iter().enumerate() {
        let kept = event.kept.entry(direction.path.clone()).or_default();
        if place < n {
            kept.push(direction.index);
        }
        *ranks.entry(&direction.path).or_default() += 1;
        let statistics = event.statistics.entry(direction.path.clone()).or_default();
        statistics.push(direction.importance);
    }
    for (path, kept) in &mut event.kept {
        kept.sort_unstable();
        if kept.len() < ranks[path.as_str()] {
            event.changed.insert(path.clone());
        }
    }
    apply(model, &event, optimizer, None);
    event
}

/// The loss of every row at the first member: the negative log-likelihood in nats, or the squared error of
/// scores.
///
/// Tokens are an error: [`TokenAnswers`](super::TokenAnswers) has their losses.
pub fn row_losses(logits: &Logits, targets: &Targets) -> Result<Vec<f64>, Error> {
    let first = logits.first(1);
    let width = first.width.max(1);
    match targets {
        Targets::Classes(one_hot) => {
            let logs = log_softmax(&first.values, width)?;
            let expected = values(one_hot.clone());
            let row = |(logs, expected): (&[f64], &[f64])| {
                let weighted = logs.iter().zip(expected).filter(|(_, w)| **w != 0.0);
                -weighted.map(|(log, w)| log * w).sum::<f64>()
            };
            Ok(logs.chunks(width).zip(expected.chunks(width)).map(row).collect())
        }
        Targets::Scores(scores) => {
            let pairs = first.values.iter().zip(values(scores.clone()));
            Ok(pairs.map(|(found, expected)| (found - expected).powi(2)).collect())
        }
        Targets::Tokens(_) => Err(Error::token_logits()),
    }
}

/// [`row_losses`] of classes at the temperature that minimises their mean, from 0.01 to 100. Scores have none.
///
/// How confident a model is, is one number, which can be fitted afterwards: models are compared by what is left. Where
/// the loss has no minimum, because every answer is right or the logits contradict the labels, the temperature is the bound
/// that the search runs into.
pub fn calibrated_losses(logits: &Logits, targets: &Targets) -> Result<Vec<f64>, Error> {
    let mut first = logits.first(1);
    if let Some(classes) = targets.classes() {
        let fit = temperature_scaling(&first.values, first.width, &classes);
        let temperature = fit.map_err(Error::other)?.temperature;
        first.values.iter_mut().for_each(|logit| *logit /= temperature);
    }
    row_losses(&first, targets)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use burn::tensor::{Device, Tensor};

    use super::*;

    fn targets(classes: &[usize]) -> Targets {
        let one_hot = classes.iter().flat_map(|&class| [class == 0, class == 1].map(f32::from));
        let one_hot: Vec<f32> = one_hot.collect();
        let tensor = Tensor::<1>::from_floats(one_hot.as_slice(), &Device::default());
        Targets::Classes(tensor.reshape([classes.len(), 2]))
    }

    #[test]
    fn answers_are_worth_what_they_are_once_as_sure_as_right() {
        // Three of four right, whatever the logits are multiplied by: the best answer is 3/4 for each.
        for scale in [0.1, 4.0, 40.0] {
            let logits = Logits::new([scale, 0.0].repeat(4), 4, 2);
            let losses = calibrated_losses(&logits, &targets(&[0, 0, 0, 1])).unwrap();
            for (loss, expected) in losses.iter().zip([0.75_f64, 0.75, 0.75, 0.25]) {
                assert!((loss + expected.ln()).abs() < 1e-9, "{loss} {expected}");
            }
        }
    }

    #[test]
    fn rows_without_a_best_temperature_have_the_loss_at_the_bound() {
        let logits = Logits::new(vec![2.0, 0.0, 0.0, 1.0], 2, 2);
        let wrong = |gap: f64| gap.exp().ln_1p();
        for (classes, expected) in [([0, 1], [0.0, 0.0]), ([1, 0], [wrong(0.02), wrong(0.01)])] {
            let losses = calibrated_losses(&logits, &targets(&classes)).unwrap();
            for (loss, expected) in losses.iter().zip(expected) {
                assert!((loss - expected).abs() < 1e-9, "{losses:?}");
            }
        }
        // One right answer more or less changes little, as the temperature does not jump.
        let many = Logits::new([3.0, 0.0].repeat(1000), 1000, 2);
        let mean = |wrong: usize| {
            let classes: Vec<usize> = (0..1000).map(|row| usize::from(row < wrong)).collect();
            let losses = calibrated_losses(&many, &targets(&classes)).unwrap();
            losses.iter().sum::<f64>() / 1000.0
        };
        assert!((0.0..0.01).contains(&(mean(1) - mean(0))), "{} {}", mean(1), mean(0));
        let scores = Targets::Scores(Tensor::<2>::from_floats([[1.0], [3.0]], &Device::default()));
        let logits = Logits::new(vec![2.0, 5.0], 2, 1);
        assert_eq!(calibrated_losses(&logits, &scores).unwrap(), [1.0, 4.0]);
    }
}
