//! Rank search: the smallest rank that is non-inferior on held-out rows.
//!
//! After any training run:
//!
//! ```text
//! rotate_to_singular_basis(&mut model)    each rank a singular direction of its module's update
//! order = directions(&model)              of all modules together, the most important first
//! keep(&mut model, &order, n, ...)        the first n; the others are cut out of the tensors
//! ```
//!
//! A [`RankSearch`] does that within a run, in place of the method's schedule of the divergence and of its changes of ranks:
//!
//! ```text
//! train    the whole model at its mean, as LoRA, for all steps of the settings
//! rotate   every update to its singular directions; the update stays
//! cut      the fewest directions that are non-inferior to the whole model, over all modules in one order
//! refine   further steps with the posterior; the means stay if they are non-inferior to the whole model
//! ```
//!
//! A model is non-inferior if the [bound](lrvd_core::non_inferiority::PairedDifference::upper) of its mean loss less that of the whole model, row by row, is at
//! most the margin: a test at 5 %. The cut tests ever smaller sizes, in a sequence that is fixed beforehand, and ends with the first
//! that fails, so that a cut beyond the margin is kept with a probability of at most 5 %. No step is trained on the held-out rows.

use std::collections::BTreeMap;

use lrvd_core::error::check_range;
use lrvd_core::non_inferiority::passed_in_sequence;
use lrvd_core::prune::StatisticOptions;
use lrvd_core::schedule::LrSchedule;
use serde::{Deserialize, Serialize};
use tracing::debug;

use super::choice::{Choice, HeldOutLosses, compared, point};
use super::method::Setup;
use super::rotation::rotate_to_singular_basis;
use crate::error::Error;
use crate::model::NamedModule;
use crate::optimizer::AdamW;
use crate::parameters::{ParameterValue as _, values};
use crate::prune::{PruneEvent, apply};

/// Factor from one size to the next smaller one.
const SHRINK: f64 = 0.8;

/// A search for ranks: how much may be lost, and what follows the cut.
///
/// # Examples
///
/// ```
/// use lrvd_burn::train::RankSearch;
///
/// let search: RankSearch = serde_json::from_str(r#"{"margin": 0.02, "refine_steps": 100}"#)?;
/// assert_eq!(search, RankSearch { margin: 0.02, refine_steps: 100, ..RankSearch::default() });
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RankSearch {
    /// The most that the mean held-out loss may rise over that of the whole model, in the unit of its [`LossMeasure`](super::LossMeasure).
    pub margin: f64,
    /// The fewest ranks that a module keeps.
    pub min_rank: usize,
    /// Steps after the cut.
    pub refine_steps: usize,
    /// Their peak learning rate as a share of that of the whole model; it rises and falls as the run's does.
    pub refine_rate: f64,
    /// The statistic of every rank at the start of the refinement: noise over mean, in logarithms.
    pub log_alpha: f64,
    /// Options of the statistic.
    pub statistic: StatisticOptions,
    /// Cost of the noise of a draw in the refinement, nats per answer (of scores a share of their variance, which multiplies the
    /// weight). It gives the weight of the divergence,
    ///
    /// ```text
    /// kl_weight = 2·noise·n_train / entries
    /// ```
    ///
    /// for small variances: the loss rises by `½·h·σ²` with the variance of a rank of `n` entries, the divergence falls by
    /// `½·n·ln σ²`, and where `nll + kl_weight·KL/n_train` is smallest all ranks together cost `½·kl_weight·entries/n_train`.
    pub noise: f64,
}

impl Default for RankSearch {
    fn default() -> Self {
        Self {
            margin: 0.01,
            min_rank: 0,
            refine_steps: 0,
            refine_rate: 0.1,
            log_alpha: -4.0,
            statistic: StatisticOptions::default(),
            noise: 0.01,
        }
    }
}

impl RankSearch {
    /// Checks the ranges, and that adapters of `setup` can be searched, and takes their updates off `model`: it is trained as LoRA
    /// first.
    pub(super) fn prepare(&self, setup: &Setup, model: &mut impl NamedModule) -> Result<(), Error> {
        check_range("search.margin", self.margin, 0.0..=1e3)?;
        check_range("search.refine_steps", self.refine_steps, 0..=1_000_000_000)?;
        check_range("search.refine_rate", self.refine_rate, 0.0..=1e3)?;
        check_range("log_alpha", self.log_alpha, -20.0..=20.0)?;
        check_range("noise", self.noise, 0.0..=1e6)?;
        check_range("search.min_rank", self.min_rank, 0..=setup.adapter.rank)?;
        if setup.posterior.is_none() {
            return Err(Error::NoPosterior);
        }
        model.visit_layers_mut(&mut |_, layer| {
            layer.edit(|adapter| adapter.b.set_flat(adapter.b.flat().zeros_like()));
        });
        Ok(())
    }

    /// Factors of the learning rates by step after the cut, before `refine_rate`; `warmup_ratio` is the share with a rising rate.
    pub fn schedule(&self, warmup_ratio: f64) -> Result<LrSchedule, lrvd_core::Error> {
        let steps = self.refine_steps.max(1);
        LrSchedule::linear((warmup_ratio * steps as f64).floor() as u32, steps as u32)
    }
}

/// Rotates `model` to its singular directions and cuts it to the fewest that are non-inferior to all of them, which the losses of
/// `held_out` decide; returns the choice and the losses of the whole model.
///
/// `rule` gives the margin and the fewest ranks of a module. `held_out` is called with a model, its number of directions and that of
/// the whole model, which comes first; `step` is that of the choice. Without enough rows all directions stay.
///
/// # Errors
///
/// Those of `held_out`; an adapter that [cannot be rotated](rotate_to_singular_basis).
pub fn choose_ranks<M: NamedModule + Clone, E: From<Error>>(
    model: &mut M,
    rule: &RankSearch,
    step: usize,
    mut held_out: impl FnMut(&M, usize, usize) -> Result<HeldOutLosses, E>,
) -> Result<(Choice, Vec<f64>), E> {
    let margin = rule.margin;
    rotate_to_singular_basis(model)?;
    let (order, least) = order(model, rule.min_rank);
    let all = order.len();
    let HeldOutLosses { rows: losses, measure } = held_out(model, all, all)?;
    let mut points = vec![point(all, &losses, &losses)?];
    let sizes = sizes(all, least);
    let tested = if measure.shows(&losses) { &sizes[1..] } else { &[] };
    let bounds = tested.iter().map(|&total_rank| {
        let mut part = model.clone();
        keep(&mut part, &order, total_rank, None);
        let found = held_out(&part, total_rank, all)?;
        let found = point(total_rank, &found.rows, &losses)?;
        points.push(found);
        debug!(total_rank, of = all, found = compared(&found, measure, margin), "tried");
        Ok::<_, E>(found.upper)
    });
    let chosen = passed_in_sequence(margin, bounds)?;
    keep(model, &order, sizes[chosen], None);
    let rows = losses.len();
    Ok((Choice { step, rows, measure, margin, points, chosen, refined: None }, losses))
}

/// Every direction, the largest `c·‖a‖·‖b‖` first, those that their modules must keep before all others; and how many these are.
fn order(model: &impl NamedModule, min_rank: usize) -> (Vec<Direction>, usize) {
    let mut seen = BTreeMap::<String, usize>::new();
    let (mut order, others): (Vec<_>, Vec<_>) =
        directions(model).into_iter().partition(|direction| {
            let place = seen.entry(direction.path.clone()).or_default();
            *place += 1;
            *place <= min_rank
        });
    let least = order.len();
    order.extend(others);
    (order, least)
}

/// The sizes of the sequence: `all`, and ever smaller ones down to `least`, or to 1.
fn sizes(all: usize, least: usize) -> Vec<usize> {
    let least = least.max(1);
    std::iter::successors(Some(all), |&n| {
        (n > least).then(|| ((SHRINK * n as f64) as usize).max(least))
    })
    .collect()
}

/// One rank of one module.
#[derive(Clone, Debug, PartialEq)]
pub struct Direction {
    /// Module path.
    pub path: String,
    /// Its number in the module.
    pub index: usize,
    /// Key of the order.
    pub importance: f64,
}

/// Every direction of every pair of factors, the largest `c·‖a_i‖·‖b_i‖` first.
///
/// Of a model that was [rotated](super::rotate_to_singular_basis) these are the singular values of the updates. For
/// another order, sort by another importance.
pub fn directions(model: &impl NamedModule) -> Vec<Direction> {
    let mut found = Vec::new();
    model.visit_layers(&mut |path, layer| {
        let Some(adapter) = layer.low_rank() else { return };
        let factors = adapter.host_factors();
        let b = factors.b_by_rank();
        let e = adapter.singular_values().map(|e| values(e.val()));
        let norm = |factor: &[f64], width: usize, k: usize| {
            lrvd_core::linalg::norm(&factor[k * width..(k + 1) * width])
        };
        found.extend((0..factors.rank).map(|index| {
            let length =
                norm(&factors.a, factors.d_input, index) * norm(&b, factors.d_output, index);
            let scale = e.as_ref().map_or(1.0, |e| e[index].abs());
            let importance = adapter.scaling.abs() * scale * length;
            Direction { path: path.to_owned(), index, importance }
        }));
    });
    found.sort_by(|x, y| y.importance.total_cmp(&x.importance));
    found
}

/// Keeps the first `n` directions of `order` and cuts all others out of the tensors of `model` and the
/// moments of `optimizer`. Modules without a direction in `order` stay as they are.
pub fn keep(
    model: &mut impl NamedModule,
    order: &[Direction],
    n: usize,
    optimizer: Option<&mut AdamW>,
) {
    let mut event = PruneEvent::default();
    for (place, direction) in order.iter().enumerate() {
        let kept = event.kept.entry(direction.path.clone()).or_default();
        if place < n {
            kept.push(direction.index);
        } else {
            event.changed.insert(direction.path.clone());
        }
    }
    event.kept.values_mut().for_each(|kept| kept.sort_unstable());
    apply(model, &event, optimizer, None);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn sizes_fall_to_the_least() {
        assert_eq!(sizes(10, 0), [10, 8, 6, 4, 3, 2, 1]);
        assert_eq!(sizes(10, 5), [10, 8, 6, 5]);
        assert_eq!((sizes(4, 4), sizes(0, 0)), (vec![4], vec![0]));
    }
}
