//! A finished run as a record: both checkpoints evaluated, predictions written.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use burn::module::Module;
use lrvd_burn::parameters::trainable_counts;
use lrvd_core::prune::RankSummary;
use lrvd_models::deberta::DebertaClassifier;

use super::run::RunState;
use crate::error::BenchError;
use crate::eval::{
    PreparedTask, Scored, energy_records, label_number, peak_memory, predict_draws, predict_mean,
    score_draws, statistic_record,
};
use crate::method::MethodName;
use crate::report::{
    CheckpointRecord, Checkpoints, JsonLines, ParameterCounts, PredictionLine, RankBudget,
    RunRecord, RunStatus,
};
use crate::train::FitContext;

/// What a record says of its run beyond what was measured.
pub(crate) struct RunLabel<'a> {
    /// Name of the task.
    pub task: &'a str,
    /// Method.
    pub method: MethodName,
    /// Seed.
    pub seed: u64,
    /// Rank of every module at the start.
    pub initial_rank: usize,
    /// Average rank asked for.
    pub requested: Option<usize>,
    /// How it was asked for.
    pub note: &'a str,
}

/// A record, and one line for the terminal.
pub(crate) struct Finished {
    pub record: RunRecord,
    pub summary: String,
}

/// One checkpoint to be evaluated.
struct Candidate<'a> {
    model: &'a DebertaClassifier,
    step: usize,
    ranks: BTreeMap<String, usize>,
    removed: &'a BTreeMap<String, Vec<f64>>,
}

/// Cuts the last model to its ranks in use, evaluates it and the best one, and writes their
/// predictions into `folder`. The journal of `run` moves into the record.
pub(crate) fn record(
    context: &FitContext<'_>,
    run: &mut RunState,
    label: &RunLabel<'_>,
    folder: &Path,
) -> Result<Finished, BenchError> {
    let begun = Instant::now();
    let RunState { state, method } = run;
    let ranks = method.ranks(&state.model);
    method.compact(&mut state.model);
    let last = Candidate {
        model: &state.model,
        step: state.done,
        ranks: ranks.clone(),
        removed: &state.journal.removed,
    };
    let draws = method.is_variational();
    let last_record = checkpoint(context, &last, draws, &folder.join("predictions-last.jsonl"))?;
    let best_record = match &state.best {
        Some(best) => {
            let candidate = Candidate {
                model: &best.model,
                step: best.info.step,
                ranks: best.info.ranks.clone(),
                removed: &best.info.removed,
            };
            let path = folder.join("predictions-best.jsonl");
            Some(checkpoint(context, &candidate, draws, &path)?)
        }
        None => None,
    };
    let counts = trainable_counts(&mut state.model);
    let mean = last_record.metrics.get(&0);
    let summary = format!(
        "{} {}, rank {:.2}",
        context.task.selection_metric(),
        mean.map_or_else(|| "-".to_owned(), |m| format!("{:.4}", context.task.score(m))),
        last_record.average_rank,
    );
    let journal = std::mem::take(&mut state.journal);
    let record = RunRecord {
        task: label.task.to_owned(),
        method: label.method.name().to_owned(),
        seed: label.seed,
        status: RunStatus::Finished,
        rank_budget: RankBudget {
            initial_rank: label.initial_rank as u32,
            requested: label.requested.map(|rank| rank as f64),
            n_modules: ranks.len() as u32,
            note: label.note.to_owned(),
        },
        steps: state.done as u64,
        checkpoints: Checkpoints { last: Some(last_record), best: best_record },
        train_seconds: journal.train_seconds,
        evaluate_seconds: journal.evaluate_seconds + begun.elapsed().as_secs_f64(),
        peak_memory_bytes: journal.peak_memory_bytes.max(peak_memory()),
        trainable_parameters: ParameterCounts {
            adapter: counts.adapter as u64,
            posterior: counts.posterior as u64,
            head: counts.head as u64,
        },
        history: journal.history,
        rank_events: journal.rank_events,
    };
    Ok(Finished { record, summary })
}

fn checkpoint(
    context: &FitContext<'_>,
    candidate: &Candidate<'_>,
    draws: bool,
    path: &Path,
) -> Result<CheckpointRecord, BenchError> {
    let config = context.config;
    let model = candidate.model.clone().valid();
    let mut scored: BTreeMap<u32, Scored> = BTreeMap::new();
    scored.insert(0, score_draws(&predict_mean(&model, context)?, 1, context.task)?);
    if draws {
        // The draws of a smaller count are the first ones of a larger.
        let most = config.draws.iter().copied().max().unwrap_or(0);
        let logits = predict_draws(&model, context, most)?;
        for &k in &config.draws {
            let part = &logits[..logits.len() / most * k];
            scored.insert(k as u32, score_draws(part, k, context.task)?);
        }
    }
    write_predictions(context.task, &scored, path)?;
    let ranks: Vec<usize> = candidate.ranks.values().copied().collect();
    let summary = RankSummary::new(&ranks, config.initial_rank);
    Ok(CheckpointRecord {
        step: candidate.step as u64,
        ranks: candidate.ranks.iter().map(|(p, &r)| (p.clone(), r as u32)).collect(),
        total_rank: summary.total as u64,
        average_rank: summary.average,
        percent_rank: summary.percent,
        reliability: scored
            .iter()
            .filter_map(|(&k, s)| s.reliability.clone().map(|r| (k, r)))
            .collect(),
        metrics: scored.into_iter().map(|(k, s)| (k, s.metrics)).collect(),
        statistics: statistic_record(candidate.model, config, candidate.removed)?,
        energy: energy_records(candidate.model, config)?,
    })
}

/// One line for every validation example of `task`.
pub(crate) fn write_predictions(
    task: &PreparedTask,
    scored: &BTreeMap<u32, Scored>,
    path: &Path,
) -> Result<(), BenchError> {
    if let Some(parent) = path.parent().filter(|p| !p.as_os_str().is_empty()) {
        std::fs::create_dir_all(parent).map_err(|source| BenchError::Io {
            action: "create",
            path: parent.into(),
            source,
        })?;
    }
    let mut lines = JsonLines::create(path)?;
    let width = task.labels;
    let most = scored.iter().next_back();
    let drawn = most.filter(|(k, _)| **k > 0).and_then(|(_, s)| s.uncertainty.as_ref());
    let any = scored.values().next().and_then(|s| s.uncertainty.as_ref());
    for (i, (id, example)) in task.validation_ids.iter().zip(&task.validation).enumerate() {
        lines.write(&PredictionLine {
            id: id.clone(),
            label: label_number(example.label),
            probs: scored
                .iter()
                .map(|(&k, s)| (k, s.outputs[i * width..(i + 1) * width].to_vec()))
                .collect(),
            entropy: drawn.or(any).map(|u| u.predictive_entropy[i]),
            mutual_information: drawn.map(|u| u.mutual_information[i]),
        })?;
    }
    Ok(lines.flush()?)
}
