//! A finished run as a record: both checkpoints evaluated, predictions written.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use burn::module::Module;
use lrvd_burn::model::{AdaptedModel, trainable_counts};
use lrvd_burn::train::{self, TrainState};
use lrvd_core::prune::RankSummary;
use lrvd_models::AutoClassifier;

use super::start::RunState;
use crate::data::PreparedTask;
use crate::error::Result;
use crate::eval::{
    RunContext, Scored, energy_records, label_number, score_draws, selective_records,
    statistic_record,
};
use crate::io::{create_dir, write_json_lines};
use crate::method::Tuning;
use crate::record::{
    CheckpointRecord, Checkpoints, EvalPoint, ParameterCounts, PredictionLine, RankBudget,
    RunRecord, RunStatus,
};
use crate::settings::{CheckpointChoice, ExperimentConfig, MethodName, RankRequest};
use crate::task::Goal;

pub(crate) struct RunLabel<'a> {
    pub task: &'a str,
    pub method: MethodName,
    pub seed: u64,
    pub initial_rank: usize,
    pub requested: Option<usize>,
    pub note: &'a str,
}

impl<'a> RunLabel<'a> {
    pub(crate) fn own(
        task: &'a str,
        (method, request): (MethodName, RankRequest),
        seed: u64,
        config: &ExperimentConfig,
    ) -> Self {
        let (requested, note) = match request {
            RankRequest::Average(rank) => (Some(rank), "asked for"),
            RankRequest::Initial if method.can().prunes => (None, "learnt"),
            RankRequest::Initial => (None, "fixed"),
        };
        Self { task, method, seed, initial_rank: config.initial_rank, requested, note }
    }
}

/// The model that the settings report of a finished run, which one it is, and the steps that it has seen.
pub(crate) fn reported<M>(
    state: TrainState<M>,
    choice: CheckpointChoice,
) -> (M, CheckpointChoice, usize) {
    match (choice, state.best) {
        (CheckpointChoice::Best, Some(best)) => (best.model, choice, best.info.step),
        _ => (state.model, CheckpointChoice::Last, state.done),
    }
}

pub(crate) struct Finished {
    pub record: RunRecord,
    /// Answers of the last checkpoint to the validation split, by number of draws.
    pub scored: BTreeMap<u32, Scored>,
}

pub(crate) struct Candidate<'a, M> {
    pub model: &'a M,
    pub step: usize,
    pub ranks: BTreeMap<String, usize>,
    pub removed: &'a BTreeMap<String, Vec<f64>>,
}

/// Cuts the last model to its ranks in use, evaluates it and the best one, and writes their
/// predictions into `folder`. The journal of `run` moves into the record.
pub(super) fn record(
    context: &RunContext<'_>,
    run: &mut RunState,
    label: &RunLabel<'_>,
    folder: &Path,
) -> Result<Finished> {
    let begun = Instant::now();
    let RunState { state, method, .. } = run;
    let ranks = method.ranks(&state.model);
    method.compact(&mut state.model);
    method.finish(&mut state.model, context)?;
    let last =
        Candidate { model: &state.model, step: state.done, ranks, removed: &state.journal.removed };
    let (last_record, scored) = checkpoint(
        context,
        &**method,
        label.method,
        &last,
        &folder.join("predictions-last.jsonl"),
    )?;
    let best_record = match state.best.as_ref().filter(|_| !label.method.can().post_hoc) {
        // The best model is the last one: its answers are known.
        Some(best) if best.info.step == state.done => {
            write_predictions(context.task, &scored, &folder.join("predictions-best.jsonl"))?;
            Some(last_record.clone())
        }
        Some(best) => {
            let candidate = Candidate {
                model: &best.model,
                step: best.info.step,
                ranks: best.info.ranks.clone(),
                removed: &best.info.removed,
            };
            let path = folder.join("predictions-best.jsonl");
            Some(checkpoint(context, &**method, label.method, &candidate, &path)?.0)
        }
        None => None,
    };
    let checkpoints = Checkpoints { last: Some(last_record), best: best_record };
    let mut record = run_record(context.config, state, label, checkpoints);
    record.evaluate_seconds += begun.elapsed().as_secs_f64();
    record.peak_memory_bytes = context.memory.bytes();
    record.trainable_parameters.stored = method.stored_parameters() as u64;
    record.fitted = method.fitted();
    Ok(Finished { record, scored })
}

/// One line of results for the terminal: the metric of `goal` at the mean, and the rank.
pub(crate) fn summary(record: &RunRecord, goal: &Goal) -> String {
    let last = record.checkpoints.last.as_ref();
    let mean = last.and_then(|last| last.metrics.get(&0));
    format!(
        "{} {}, rank {:.2}",
        goal.selection.name(),
        mean.map_or_else(|| "-".to_owned(), |metrics| format!("{:.4}", goal.score(metrics))),
        last.map_or(0.0, |last| last.average_rank),
    )
}

pub(crate) fn run_record<M: AdaptedModel>(
    config: &ExperimentConfig,
    state: &mut TrainState<M>,
    label: &RunLabel<'_>,
    checkpoints: Checkpoints,
) -> RunRecord {
    let counts = trainable_counts(&state.model);
    let modules = checkpoints.last.as_ref().map_or(0, |last| last.ranks.len());
    let journal = std::mem::take(&mut state.journal);
    RunRecord {
        task: label.task.to_owned(),
        method: label.method.name(),
        seed: label.seed,
        status: RunStatus::Finished,
        rank_budget: RankBudget {
            initial_rank: label.initial_rank as u32,
            requested: label.requested.map(|rank| rank as f64),
            n_modules: modules as u32,
            note: label.note.to_owned(),
        },
        steps: state.done as u64,
        checkpoints,
        train_seconds: journal.train_seconds,
        evaluate_seconds: journal.evaluate_seconds,
        peak_memory_bytes: None,
        trainable_parameters: ParameterCounts {
            adapter: counts.adapter as u64,
            posterior: counts.posterior as u64,
            head: counts.head as u64,
            stored: 0,
        },
        fitted: BTreeMap::new(),
        history: history(config, label.method, journal.history),
        rank_events: journal.rank_events,
        choice: journal.choice,
        ood: BTreeMap::new(),
    }
}

/// The evaluations as a record has them; only a posterior's KL is included.
fn history(
    config: &ExperimentConfig,
    method: MethodName,
    points: Vec<train::EvalPoint>,
) -> Vec<EvalPoint> {
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

fn checkpoint(
    context: &RunContext<'_>,
    method: &(dyn Tuning + 'static),
    name: MethodName,
    candidate: &Candidate<'_, AutoClassifier>,
    path: &Path,
) -> Result<(CheckpointRecord, BTreeMap<u32, Scored>)> {
    let model = candidate.model.clone().valid();
    let (scored, seconds) = answers(context, method, name, &model)?;
    write_predictions(context.task, &scored, path)?;
    let record = CheckpointRecord {
        reliability: scored
            .iter()
            .filter_map(|(&k, s)| s.reliability.clone().map(|r| (k, r)))
            .collect(),
        selective: selective_records(&scored, context.task)?,
        predict_seconds: seconds,
        metrics: scored.iter().map(|(&k, s)| (k, s.metrics.clone())).collect(),
        ..rank_record(context.config, name, candidate)?
    };
    Ok((record, scored))
}

/// What a checkpoint's record says of its ranks; what is measured of its answers is left empty.
pub(crate) fn rank_record<M: AdaptedModel>(
    config: &ExperimentConfig,
    name: MethodName,
    candidate: &Candidate<'_, M>,
) -> Result<CheckpointRecord> {
    let ranks: Vec<usize> = candidate.ranks.values().copied().collect();
    let summary = RankSummary::new(&ranks, config.initial_rank);
    // Noise that is fitted around trained means, as TFB's is, says nothing of what a direction is worth.
    let (statistics, energy) = if name.can().post_hoc {
        (None, BTreeMap::new())
    } else {
        (
            statistic_record(candidate.model, config, candidate.removed)?,
            energy_records(candidate.model, config)?,
        )
    };
    Ok(CheckpointRecord {
        step: candidate.step as u64,
        ranks: candidate.ranks.iter().map(|(p, &r)| (p.clone(), r as u32)).collect(),
        total_rank: summary.total as u64,
        average_rank: summary.average,
        percent_rank: summary.percent,
        metrics: BTreeMap::new(),
        reliability: BTreeMap::new(),
        selective: BTreeMap::new(),
        predict_seconds: BTreeMap::new(),
        statistics,
        energy,
    })
}

type ByDraws<T> = BTreeMap<u32, T>;

/// The method's answers to the validation split, deterministic (0) and at every number of draws, and the
/// seconds that each number took.
fn answers(
    context: &RunContext<'_>,
    method: &(dyn Tuning + 'static),
    name: MethodName,
    model: &AutoClassifier,
) -> Result<(ByDraws<Scored>, ByDraws<f64>)> {
    let examples = context.examples(&context.task.validation);
    let inputs = context.inputs(&examples);
    let (mut scored, mut seconds) = (BTreeMap::new(), BTreeMap::new());
    // The answer to `asked` draws serves all numbers in `kept`.
    let mut answer = |asked: usize, kept: &[usize]| -> Result<()> {
        let begun = Instant::now();
        let logits = method.predict(model, &inputs, asked)?;
        let took = begun.elapsed().as_secs_f64();
        for &draws in kept {
            let all = draws == asked;
            let first = (!all).then(|| logits.first(draws));
            let share = if all { 1.0 } else { draws as f64 / asked as f64 };
            let logits = first.as_ref().unwrap_or(&logits);
            scored.insert(draws as u32, score_draws(logits, context.task)?);
            seconds.insert(draws as u32, took * share);
        }
        Ok(())
    };
    answer(0, &[0])?;
    let numbers = name.draws(context.config);
    match numbers.iter().max().filter(|_| method.draws_nest()) {
        Some(&most) => answer(most, &numbers)?,
        None => numbers.iter().try_for_each(|&draws| answer(draws, &[draws]))?,
    }
    Ok((scored, seconds))
}

pub(crate) fn write_predictions(
    task: &PreparedTask,
    scored: &BTreeMap<u32, Scored>,
    path: &Path,
) -> Result<()> {
    if let Some(parent) = path.parent().filter(|p| !p.as_os_str().is_empty()) {
        create_dir(parent)?;
    }
    let width = task.labels;
    let uncertain = || scored.iter().filter_map(|(&k, s)| Some((k, s, s.uncertainty.as_ref()?)));
    let rows = task.validation_ids.iter().zip(&task.validation).enumerate();
    write_json_lines(
        path,
        rows.map(|(i, (id, example))| PredictionLine {
            id: id.clone(),
            label: label_number(example.label),
            probs: scored
                .iter()
                .map(|(&k, s)| (k, s.outputs[i * width..(i + 1) * width].to_vec()))
                .collect(),
            entropy: uncertain().map(|(k, _, u)| (k, u.predictive_entropy[i])).collect(),
            // A single model agrees with itself: its mean is absent, and so are its values.
            mutual_information: uncertain()
                .filter(|(_, s, _)| s.metrics.mutual_information.is_some())
                .map(|(k, _, u)| (k, u.mutual_information[i]))
                .collect(),
        }),
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use lrvd_burn::train::Logits;

    use super::*;
    use crate::data::Label;
    use crate::data::batch::TokenisedExample;
    use crate::io::read_lines;

    #[test]
    fn uncertainty_is_written_for_every_number_of_draws() {
        let goal = Goal::classification("tone", ["a", "b", "c"].map(String::from).to_vec());
        let example = TokenisedExample {
            ids: vec![1],
            type_ids: vec![0],
            choices: None,
            label: Label::Class(1),
        };
        let task = PreparedTask {
            validation: vec![example],
            validation_ids: vec!["first".to_owned()],
            ..PreparedTask::without_examples(goal)
        };
        // Without draws two members that contradict each other; one draw; two draws that agree.
        let (b, c) = ([0.0, 9.0, 0.0], [0.0, 0.0, 9.0]);
        let answers = [(0, [b, c].concat()), (1, b.to_vec()), (2, [b, b].concat())];
        let scored =
            answers.map(|(k, logits)| (k, score_draws(&Logits::new(logits, 1, 3), &task).unwrap()));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new").join("predictions.jsonl");
        write_predictions(&task, &BTreeMap::from(scored), &path).unwrap();
        let lines: Vec<PredictionLine> = read_lines(&path).unwrap();
        let [line] = lines.as_slice() else { panic!("one example") };
        assert_eq!((line.id.as_str(), line.label), ("first", 1.0));
        assert_eq!(line.entropy.keys().copied().collect::<Vec<_>>(), [0, 1, 2]);
        assert!(line.entropy[&0] > 0.6 && line.entropy[&1] < 0.1);
        // A single model has no members that could disagree.
        assert_eq!(line.mutual_information.keys().copied().collect::<Vec<_>>(), [0, 2]);
        assert!(line.mutual_information[&0] > 0.6 && line.mutual_information[&2] < 1e-12);

        // Answered at the mean: no mutual information, where a cascade spared the draws.
        let spared = Logits { made: Some(vec![0]), ..Logits::new([b, b].concat(), 1, 3) };
        let scored = score_draws(&spared, &task).unwrap();
        assert_eq!(scored.metrics.mutual_information, None);
        write_predictions(&task, &BTreeMap::from([(2, scored)]), &path).unwrap();
        let lines: Vec<PredictionLine> = read_lines(&path).unwrap();
        assert!(lines[0].mutual_information.is_empty() && lines[0].entropy.len() == 1);
    }
}
