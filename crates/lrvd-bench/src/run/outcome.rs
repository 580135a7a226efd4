//! A finished run as a record: both checkpoints evaluated, predictions written.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use burn::module::Module as _;
use lrvd_burn::model::trainable_counts;
use lrvd_burn::train;
use lrvd_core::prune::RankSummary;
use lrvd_models::AutoModel;

use super::answers::{ByDraws, answers};
use crate::error::Result;
use crate::eval::{RunContext, Scored, energy_records, selective_records, statistic_record};
use crate::method::{DynMethod, MethodName, Temperatures};
use crate::record::{
    CheckpointRecord, Checkpoints, EvalPoint, ParameterCounts, RankBudget, RunRecord, RunStatus,
};
use crate::settings::Config;
use crate::task::Goal;

/// Answers of the last model and of the best one to the validation rows.
pub(crate) const LAST_PREDICTIONS: &str = "predictions-last.jsonl";
const BEST_PREDICTIONS: &str = "predictions-best.jsonl";

pub(crate) struct RunLabel<'a> {
    pub task: &'a str,
    pub method: MethodName,
    pub seed: u64,
    pub initial_rank: usize,
    pub requested: Option<usize>,
    pub note: &'a str,
}

pub(crate) struct Finished {
    pub record: RunRecord,
    /// Answers of the last checkpoint to the validation split, by number of draws.
    pub answers: ByDraws<Scored>,
    pub temperatures: Temperatures,
}

struct Candidate<'a> {
    model: &'a AutoModel,
    step: usize,
    ranks: BTreeMap<String, usize>,
    removed: &'a BTreeMap<String, Vec<f64>>,
}

/// Cuts the last model to its ranks in use, evaluates it and the best one, and writes their
/// predictions into `folder`. The journal of `run` moves into the record.
pub(super) fn record(
    context: &RunContext<'_>,
    run: &mut train::Run<AutoModel, DynMethod>,
    label: &RunLabel<'_>,
    folder: &Path,
) -> Result<Finished> {
    let begun = Instant::now();
    let train::Run { state, method, .. } = run;
    let ranks = method.ranks(&state.model);
    method.compact(&mut state.model);
    let temperatures = context.fitted(|data| {
        method.finish(&mut state.model, data)?;
        if !label.method.is_tempered() {
            return Ok(Temperatures::default());
        }
        Temperatures::fit(&**method, &state.model, data, &label.method.draws(context.config))
    })?;
    let answering = (&**method, &temperatures);
    let (path, removed) = (folder.join(LAST_PREDICTIONS), &state.journal.removed);
    let last = Candidate { model: &state.model, step: state.done, ranks, removed };
    let (last_record, answers) = checkpoint(context, answering, label.method, &last, &path)?;
    let path = folder.join(BEST_PREDICTIONS);
    let best_record = match state.best.as_ref().filter(|_| !label.method.can().post_hoc) {
        // The best model is the last one: its answers are known.
        Some(best) if best.info.step == state.done => {
            context.task.write_predictions(&answers, &path)?;
            Some(last_record.clone())
        }
        Some(best) => {
            let (model, info) = (&best.model, &best.info);
            let (step, ranks, removed) = (info.step, info.ranks.clone(), &info.removed);
            let best = Candidate { model, step, ranks, removed };
            Some(checkpoint(context, answering, label.method, &best, &path)?.0)
        }
        None => None,
    };
    let counts = trainable_counts(&state.model);
    let journal = std::mem::take(&mut state.journal);
    // Also of scores, which have no temperature.
    let kept = if label.method.is_tempered() { temperatures.0.len().max(1) } else { 0 };
    let record = RunRecord {
        task: label.task.to_owned(),
        method: label.method.name(),
        seed: label.seed,
        status: RunStatus::Finished,
        rank_budget: RankBudget {
            initial_rank: label.initial_rank as u32,
            requested: label.requested.map(|rank| rank as f64),
            n_modules: last_record.ranks.len() as u32,
            note: label.note.to_owned(),
        },
        steps: state.done as u64,
        checkpoints: Checkpoints { last: Some(last_record), best: best_record },
        train_seconds: journal.train_seconds,
        evaluate_seconds: journal.evaluate_seconds + begun.elapsed().as_secs_f64(),
        peak_memory_bytes: context.memory.bytes(),
        trainable_parameters: ParameterCounts {
            adapter: counts.adapter as u64,
            posterior: counts.posterior as u64,
            head: counts.head as u64,
            stored: (method.stored_parameters() + kept) as u64,
        },
        fitted: method.fitted().into_iter().chain(temperatures.fitted()).collect(),
        history: history(context.config, label.method, journal.history),
        rank_events: journal.rank_events,
        choice: journal.choice,
        ood: BTreeMap::new(),
    };
    Ok(Finished { record, answers, temperatures })
}

/// One line of results for the terminal: the metric of `goal` at the mean, and the rank.
pub(crate) fn summary(record: &RunRecord, goal: &Goal) -> String {
    let last = record.checkpoints.last.as_ref();
    let mean = last.and_then(|last| last.metrics.get(&0));
    let (sign, unit) = if goal.is_texts() { (-1.0, " a token") } else { (1.0, "") };
    format!(
        "{} {}{unit}, rank {:.2}",
        goal.selection.name(),
        mean.map_or_else(|| "-".to_owned(), |metrics| format!("{:.4}", sign * goal.score(metrics))),
        last.map_or(0.0, |last| last.average_rank),
    )
}

/// The evaluations as a record has them; only a posterior's KL is included.
fn history(config: &Config, method: MethodName, points: Vec<train::EvalPoint>) -> Vec<EvalPoint> {
    let point = |point: train::EvalPoint| {
        let metric = |name: &str| point.evaluation.metrics.get(name).copied();
        let posterior = point.parts.filter(|_| method.can().posterior);
        EvalPoint {
            step: point.step as u64,
            loss: point.parts.map(|p| p.loss),
            nll: point.parts.map(|p| p.nll),
            kl: posterior.map(|p| p.kl),
            kl_weight: posterior.map(|p| p.kl_weight / p.divisor),
            learning_rate: config.learning_rate * point.rate_factor,
            accuracy: metric("accuracy"),
            standard: metric("standard"),
            nll_val: metric("nll"),
            total_rank: point.total_rank as u64,
        }
    };
    points.into_iter().map(point).collect()
}

/// What `candidate` answers, and the record of it.
fn checkpoint(
    context: &RunContext<'_>,
    (method, temperatures): (&DynMethod, &Temperatures),
    name: MethodName,
    candidate: &Candidate<'_>,
    path: &Path,
) -> Result<(CheckpointRecord, ByDraws<Scored>)> {
    let model = candidate.model.clone().valid();
    let draws = name.draws(context.config);
    let (answers, predict_seconds) = answers(context, &model, method, temperatures, &draws)?;
    context.task.write_predictions(&answers, path)?;
    let reliability = answers.iter().filter_map(|(&k, s)| Some((k, s.reliability.clone()?)));
    let ranks: Vec<usize> = candidate.ranks.values().copied().collect();
    let summary = RankSummary::new(&ranks, context.config.initial_rank);
    // Noise that is fitted around trained means, as TFB's is, says nothing of what a direction is worth.
    let (statistics, energy) = if name.can().post_hoc {
        (None, BTreeMap::new())
    } else {
        (
            statistic_record(candidate.model, context.config, candidate.removed)?,
            energy_records(candidate.model, context.config)?,
        )
    };
    let record = CheckpointRecord {
        step: candidate.step as u64,
        ranks: candidate.ranks.iter().map(|(p, &r)| (p.clone(), r as u32)).collect(),
        total_rank: summary.total as u64,
        average_rank: summary.average,
        percent_rank: summary.percent,
        metrics: answers.iter().map(|(&k, s)| (k, s.metrics.clone())).collect(),
        reliability: reliability.collect(),
        selective: selective_records(&answers, context.task)?,
        predict_seconds,
        statistics,
        energy,
    };
    Ok((record, answers))
}
