//! Everything that changes while a run trains.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::choice::Choice;
use super::order::OrderState;
use crate::model::{NamedModule, ranks};
use crate::objective::ObjectiveParts;
use crate::optimizer::AdamW;
use crate::prune::{self, PruneEvent};

/// Masks of the directions in use, by module path; of a module that is not listed all are.
pub(crate) type RankMasks = BTreeMap<String, Vec<bool>>;

/// Model, optimizer and position of one run.
#[derive(Debug)]
pub struct TrainState<M> {
    /// The model.
    pub model: M,
    /// The optimizer.
    pub optimizer: AdamW,
    /// Completed steps.
    pub done: usize,
    /// Position in the data; `None` before the first step.
    pub position: Option<OrderState>,
    /// The next update has rate 0: the optimizer was rebuilt.
    pub skip_next_update: bool,
    /// Best model so far.
    pub best: Option<BestModel<M>>,
    /// Directions in use, of a method that masks the others.
    pub in_use: RankMasks,
    /// The model after a [search](super::RankSearch) cut its ranks, until its refinement is judged.
    pub(crate) cut: Option<CutModel<M>>,
    /// Weight of the divergence in a refinement, in place of the method's.
    pub kl_weight: Option<f64>,
    /// Record of the run so far.
    pub journal: Journal,
}

impl<M> TrainState<M> {
    /// Before the first step.
    pub fn new(model: M, optimizer: AdamW) -> Self {
        Self {
            model,
            optimizer,
            done: 0,
            position: None,
            skip_next_update: false,
            best: None,
            in_use: RankMasks::new(),
            cut: None,
            kl_weight: None,
            journal: Journal::default(),
        }
    }
}

impl<M: NamedModule + Clone> TrainState<M> {
    /// Ranks in use, by module path.
    pub fn ranks(&self) -> BTreeMap<String, usize> {
        ranks_in_use(&self.model, &self.in_use)
    }

    /// Sum of [`ranks`](Self::ranks).
    pub fn total_rank(&self) -> usize {
        self.ranks().values().sum()
    }

    /// A copy of the model without what takes no part in an answer: directions that are not in use.
    #[must_use]
    pub fn compacted(&self) -> M {
        let mut event = PruneEvent::default();
        for (path, mask) in self.in_use.iter().filter(|(_, mask)| mask.contains(&false)) {
            let kept = (0..mask.len()).filter(|&i| mask[i]).collect();
            event.kept.insert(path.clone(), kept);
            event.changed.insert(path.clone());
        }
        let mut model = self.model.clone();
        prune::apply(&mut model, &event, None, None);
        model
    }

    /// Replaces the model by [`compacted`](Self::compacted).
    pub fn compact(&mut self) {
        self.model = self.compacted();
        self.in_use.clear();
    }
}

/// Ranks of `model`, those of masked modules by their mask.
pub(crate) fn ranks_in_use(
    model: &impl NamedModule,
    in_use: &RankMasks,
) -> BTreeMap<String, usize> {
    let mut found: BTreeMap<String, usize> = ranks(model).into_iter().collect();
    for (path, mask) in in_use {
        found.insert(path.clone(), mask.iter().filter(|&&is_used| is_used).count());
    }
    found
}

/// The model at its best validation score so far.
#[derive(Clone, Debug)]
pub struct BestModel<M> {
    /// A copy of the model, compact.
    pub model: M,
    /// Facts about it.
    pub info: BestInfo,
}

/// A model with its ranks cut, before its refinement.
#[derive(Clone, Debug)]
pub(crate) struct CutModel<M> {
    /// A copy of the model.
    pub model: M,
    /// The loss of the whole model on every held-out row.
    pub whole: Vec<f64>,
}

/// Facts about the best model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BestInfo {
    /// Completed steps.
    pub step: usize,
    /// Validation score; in a run with patience the negative log-likelihood with its sign turned.
    pub score: f64,
    /// Ranks by module path.
    pub ranks: BTreeMap<String, usize>,
    /// Statistics of the directions pruned before it, by module path.
    pub removed: BTreeMap<String, Vec<f64>>,
}

/// Record of a run so far, as plain numbers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Journal {
    /// Evaluations.
    pub history: Vec<EvalPoint>,
    /// The ranks whenever they changed, the first entry at the start of training.
    pub rank_events: Vec<RankEvent>,
    /// Seconds in training steps.
    pub train_seconds: f64,
    /// Seconds in evaluations.
    pub evaluate_seconds: f64,
    /// Statistics of pruned directions when they were pruned, by module path.
    pub removed: BTreeMap<String, Vec<f64>>,
    /// Mean over the steps since the last evaluation.
    pub(crate) recent: Option<MeanParts>,
    /// Evaluations with a score that the best model was chosen among: of a search those after its cut.
    pub candidates: usize,
    /// The number of directions that was kept, of a method that searches it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub choice: Option<Choice>,
}

/// Mean of the objective over some steps.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MeanParts {
    /// Number of steps.
    pub steps: usize,
    /// Mean of loss, likelihood and penalty; the KL, its weight and divisor are those of the last step.
    pub parts: ObjectiveParts,
    /// Factor of every learning rate in the last step.
    pub rate_factor: f64,
}

impl MeanParts {
    /// The mean of `earlier` steps and one more, of a learning rate with `rate_factor`.
    pub(crate) fn and(earlier: Option<Self>, last: ObjectiveParts, rate_factor: f64) -> Self {
        let Some(Self { steps, parts, .. }) = earlier else {
            return Self { steps: 1, parts: last, rate_factor };
        };
        let steps = steps + 1;
        let mean = |mean: f64, value: f64| mean + (value - mean) / steps as f64;
        let parts = ObjectiveParts {
            loss: mean(parts.loss, last.loss),
            nll: mean(parts.nll, last.nll),
            penalty: mean(parts.penalty, last.penalty),
            ..last
        };
        Self { steps, parts, rate_factor }
    }
}

/// One evaluation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EvalPoint {
    /// Completed steps.
    pub step: usize,
    /// Mean of the objective over the steps since the last evaluation; `None` without such a step.
    pub parts: Option<ObjectiveParts>,
    /// Factor of every learning rate at that step.
    pub rate_factor: f64,
    /// Sum of ranks over all adapters.
    pub total_rank: usize,
    /// Result of the measurement.
    pub evaluation: Evaluation,
}

/// Result of an evaluation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Evaluation {
    /// Name of the metric that the score is.
    pub metric: String,
    /// The value that the best model has the largest of; `None` if it has none.
    pub score: Option<f64>,
    /// Finite numbers by name.
    pub metrics: BTreeMap<String, f64>,
}

/// Ranks after a change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RankEvent {
    /// Optimizer steps taken.
    pub step: u64,
    /// Cause of this entry.
    pub cause: RankCause,
    /// Rank by module path; modules of rank 0 are listed.
    pub ranks: BTreeMap<String, u32>,
    /// Their sum.
    pub total_rank: u64,
}

/// Cause of a rank entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RankCause {
    /// The start of training.
    Start,
    /// A prune removed components.
    Prune,
    /// A budget schedule changed the mask.
    Budget,
    /// An evaluation looked.
    Evaluation,
    /// Held-out rows showed that fewer directions are enough.
    Choice,
}
