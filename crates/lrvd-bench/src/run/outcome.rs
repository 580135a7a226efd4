//! Answers of a run's model: between steps, to held-out rows, and to the validation rows once it is trained, with the
//! record of the finished run.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use burn::module::Module as _;
use lrvd_burn::model::trainable_counts;
use lrvd_burn::train::{self, Examples as _};
use lrvd_core::prune::RankSummary;
use lrvd_models::AutoModel;

use crate::answers::AnswerSpace;
use crate::data::batch::{LabelUnit, TokenExamples, TokenisedExample};
use crate::error::Result;
use crate::eval::{self, RunContext, Scored, score_draws, score_tokens};
use crate::method::{DynMethod, MethodName, Temperatures};
use crate::record::{
    CheckpointRecord, Checkpoints, EvalPoint, Metrics, ParameterCounts, RankBudget, RunRecord,
    RunStatus,
};
use crate::settings::{CheckpointChoice, Config};
use crate::task::Goal;

/// Answers of the last model and of the best one to the validation rows.
pub(crate) const LAST_PREDICTIONS: &str = "predictions-last.jsonl";
const BEST_PREDICTIONS: &str = "predictions-best.jsonl";
/// Answers of the kept model to rows that were held out from training and from every choice, where the validation rows chose it.
pub(crate) const HELD_OUT_PREDICTIONS: &str = "predictions-held-out.jsonl";

/// Something of every number of draws; 0 is the mean.
pub(crate) type ByDraws<T> = BTreeMap<u32, T>;

pub(crate) struct Finished {
    pub record: RunRecord,
    /// Answers of the last checkpoint to the validation split, by number of draws.
    pub answers: ByDraws<Scored>,
    /// Temperatures of the last checkpoint.
    pub temperatures: Temperatures,
    /// The best checkpoint, where the settings keep it and it is not the last one.
    pub best: Option<Best>,
}

/// Answers of the best checkpoint to the validation split, by number of draws, and its temperatures.
pub(crate) struct Best {
    answers: ByDraws<Scored>,
    temperatures: Temperatures,
}

impl Finished {
    /// Temperatures of the checkpoint that the settings keep.
    pub(crate) fn kept(&self) -> &Temperatures {
        self.best.as_ref().map_or(&self.temperatures, |best| &best.temperatures)
    }

    /// Its answers to the validation split, by number of draws.
    pub(crate) fn kept_answers(&self) -> &ByDraws<Scored> {
        self.best.as_ref().map_or(&self.answers, |best| &best.answers)
    }
}

struct Candidate<'a> {
    model: &'a AutoModel,
    step: usize,
    ranks: BTreeMap<String, usize>,
    removed: &'a BTreeMap<String, Vec<f64>>,
}

/// Cuts the last model to its ranks in use, evaluates it and the best one, each with its temperature, and writes
/// their predictions into `folder`.
pub(super) fn record(
    context: &RunContext<'_>,
    name: MethodName,
    run: &mut train::Run<AutoModel, DynMethod>,
    budget: &RankBudget,
    folder: &Path,
) -> Result<Finished> {
    let begun = Instant::now();
    let train::Run { state, method, .. } = run;
    let unit = context.task.unit;
    unit.convert(LabelUnit::default(), &mut state.model);
    if let Some(best) = &mut state.best {
        unit.convert(LabelUnit::default(), &mut best.model);
    }
    let ranks = state.ranks();
    state.compact();
    let fitted = context.fitted(|data| method.finish(&mut state.model, data))?;
    // What a method without steps does here is its training.
    let frozen_seconds = if name.can().steps { 0.0 } else { begun.elapsed().as_secs_f64() };
    state.journal.train_seconds += frozen_seconds;
    let draws = name.draws(context.config);
    let tempered = |model: &AutoModel| {
        if !name.is_tempered() {
            return Ok(Temperatures::default());
        }
        context.fitted(|data| Temperatures::fit(&**method, model, data, &draws))
    };
    let temperatures = match fitted.temperature {
        Some(own) => own.into(),
        None => tempered(&state.model)?,
    };
    let mut kept = None;
    let answering = (&**method, &temperatures);
    let path = folder.join(LAST_PREDICTIONS);
    let removed = &state.journal.removed;
    let last = Candidate { model: &state.model, step: state.done, ranks, removed };
    let (last_record, answers) = checkpoint(context, answering, name, &last, &path)?;
    let path = folder.join(BEST_PREDICTIONS);
    let keeps_best = context.config.checkpoint == CheckpointChoice::Best;
    // What is fitted around the last weights belongs to them; a temperature is fitted to either model.
    let has_best = !name.can().post_hoc || (name.can().saved && keeps_best);
    let best_record = match state.best.as_ref().filter(|_| has_best) {
        // The best model is the last one: its answers are known.
        Some(best) if best.info.step == state.done => {
            context.task.write_predictions(&answers, &path)?;
            Some(last_record.clone())
        }
        Some(best) => {
            let own = tempered(&best.model)?;
            let candidate = Candidate {
                model: &best.model,
                step: best.info.step,
                ranks: best.info.ranks.clone(),
                removed: &best.info.removed,
            };
            let answering = (&**method, &own);
            let (record, answers) = checkpoint(context, answering, name, &candidate, &path)?;
            kept = keeps_best.then_some(Best { answers, temperatures: own });
            Some(record)
        }
        None => None,
    };
    let counts = trainable_counts(&state.model);
    let journal = std::mem::take(&mut state.journal);
    // Also of scores, which have no temperature.
    let has_temperature = name.is_tempered() || fitted.temperature.is_some();
    let stored = if has_temperature { temperatures.by_draws.len().max(1) } else { 0 };
    let record = RunRecord {
        task: context.task.goal.name.clone(),
        method: name.name(),
        seed: context.seed,
        status: RunStatus::Finished,
        rank_budget: RankBudget { n_modules: last_record.ranks.len() as u32, ..budget.clone() },
        steps: state.done as u64,
        train_rows: context.task.train.len() as u64,
        held_out_rows: context.task.holdout.len() as u64,
        checkpoints: Checkpoints {
            last: Some(last_record),
            best: best_record,
            candidates: journal.candidates as u64,
        },
        train_seconds: journal.train_seconds,
        evaluate_seconds: journal.evaluate_seconds + begun.elapsed().as_secs_f64() - frozen_seconds,
        peak_memory_bytes: context.memory.bytes(),
        start_memory_bytes: context.memory.start,
        trainable_parameters: ParameterCounts {
            adapter: counts.adapter as u64,
            posterior: counts.posterior as u64,
            head: counts.head as u64,
            stored: (fitted.stored + stored) as u64,
        },
        fitted: fitted
            .values
            .into_iter()
            .chain(kept.as_ref().map_or(&temperatures, |best| &best.temperatures).fitted())
            .collect(),
        history: history(context.config, name, journal.history),
        rank_events: journal.rank_events,
        choice: journal.choice,
        classes: None,
        baseline: None,
        ood: BTreeMap::new(),
    };
    Ok(Finished { record, answers, temperatures, best: kept })
}

/// One line of results for the terminal: the metric of `goal` at the mean, and the rank.
pub(crate) fn summary(record: &RunRecord, goal: &Goal) -> String {
    let last = record.checkpoints.last.as_ref();
    let mean = last.and_then(|last| last.metrics.get(&0));
    let (sign, unit) =
        if goal.answers == AnswerSpace::Tokens { (-1.0, " a token") } else { (1.0, "") };
    let score = |metrics: &Metrics| match goal.score(metrics) {
        score if score.is_finite() => format!("{:.4}", sign * score),
        _ => match metrics.standard.get("mse").copied().flatten() {
            Some(mse) => format!("undefined, mse {mse:.4}"),
            None => "undefined".to_owned(),
        },
    };
    format!(
        "{} {}{unit}, rank {:.2}",
        goal.selection.name(),
        mean.map_or_else(|| "-".to_owned(), score),
        last.map_or(0.0, |last| last.average_rank),
    )
}

/// The evaluations as a record has them; only a posterior's KL is included, where it is part of the objective.
fn history(config: &Config, method: MethodName, points: Vec<train::EvalPoint>) -> Vec<EvalPoint> {
    let point = |point: train::EvalPoint| {
        let metric = |name: &str| point.evaluation.metrics.get(name).copied();
        let posterior = point.parts.filter(|_| method.can().posterior);
        EvalPoint {
            step: point.step as u64,
            loss: point.parts.map(|p| p.loss),
            nll: point.parts.map(|p| p.nll),
            kl: posterior.and_then(|p| p.weighted_kl()),
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
    (method, temperatures): (&DynMethod, &Temperatures),
    name: MethodName,
    candidate: &Candidate<'_>,
    path: &Path,
) -> Result<(CheckpointRecord, ByDraws<Scored>)> {
    let model = candidate.model.clone().valid();
    let draws = name.draws(context.config);
    let (answers, predict_seconds) = answers(context, &model, method, temperatures, &draws)?;
    context.task.write_predictions(&answers, path)?;
    let (metrics, reliability) = eval::measures(&answers);
    let ranks: Vec<usize> = candidate.ranks.values().copied().collect();
    let summary = RankSummary::new(&ranks, context.config.initial_rank);
    // Noise that is fitted around trained means, as TFB's is, says nothing of what a direction is worth.
    let (statistics, energy) = if name.can().post_hoc {
        (None, BTreeMap::new())
    } else {
        (
            eval::statistic_record(
                candidate.model,
                context.config,
                name.threshold(context.config),
                candidate.removed,
            )?,
            eval::energy_records(candidate.model, context.config)?,
        )
    };
    let record = CheckpointRecord {
        step: candidate.step as u64,
        ranks: candidate.ranks.iter().map(|(p, &r)| (p.clone(), r as u32)).collect(),
        total_rank: summary.total as u64,
        average_rank: summary.average,
        percent_rank: summary.percent,
        metrics,
        reliability,
        selective: eval::selective_records(&answers, context.task)?,
        predict_seconds,
        statistics,
        energy,
    };
    Ok((record, answers))
}

pub(super) fn evaluate(
    context: &RunContext<'_>,
    model: &AutoModel,
    method: &DynMethod,
) -> Result<train::Evaluation> {
    let task = context.task;
    let metrics = if task.goal.answers == AnswerSpace::Tokens {
        let tokens = tokens(context, model, &task.validation, 0)?;
        let accuracy = Some(tokens.accuracy()?);
        let nll = tokens.nll()?;
        let standard = BTreeMap::from([("perplexity".to_owned(), Some(nll.exp()))]);
        Metrics { accuracy, standard, nll: Some(nll), ..Metrics::default() }
    } else {
        let examples = context.examples(&task.validation);
        let mut model = model.clone();
        task.unit.convert(LabelUnit::default(), &mut model);
        let logits = method.predict(&model, &context.inputs(&examples))?;
        score_draws(&task.goal.answers.class_logits(logits), task)?.metrics
    };
    let standard = metrics.standard.values().next().copied().flatten();
    let found = [("accuracy", metrics.accuracy), ("standard", standard), ("nll", metrics.nll)];
    let finite = found.into_iter().filter_map(|(name, value)| {
        Some((name.to_owned(), value.filter(|value| value.is_finite())?))
    });
    Ok(train::Evaluation {
        metric: task.goal.selection.name().to_owned(),
        score: Some(task.goal.score(&metrics)).filter(|score| score.is_finite()),
        metrics: finite.collect(),
    })
}

pub(super) fn held_out(
    context: &RunContext<'_>,
    model: &AutoModel,
    method: &DynMethod,
) -> Result<train::HeldOutLosses> {
    let rows = &context.task.holdout;
    if context.task.goal.answers == AnswerSpace::Tokens {
        let rows = tokens(context, model, rows, 0)?.row_losses();
        return Ok(train::HeldOutLosses { rows, measure: train::LossMeasure::Tokens });
    }
    let examples = TokenExamples { unit: context.task.unit, ..context.examples(rows) };
    let logits = method.predict(model, &context.inputs(&examples))?;
    Ok(train::calibrated_losses(&logits, &examples.all_targets()?)?)
}

/// Answers to the validation rows at the mean and at every number of `draws`, and the seconds of each pass: a number of draws
/// whose answer is a part of that to more draws has no time.
fn answers(
    context: &RunContext<'_>,
    model: &AutoModel,
    method: &DynMethod,
    temperatures: &Temperatures,
    draws: &[usize],
) -> Result<(ByDraws<Scored>, ByDraws<f64>)> {
    let task = context.task;
    let examples = context.examples(&task.validation);
    let inputs = context.inputs(&examples);
    let mut scored = BTreeMap::new();
    let mut seconds = BTreeMap::new();
    // The answer to `asked` draws serves all numbers in `kept`.
    let mut answer = |asked: usize, kept: &[usize]| -> Result<()> {
        let begun = Instant::now();
        if task.goal.answers == AnswerSpace::Tokens {
            let tokens = tokens(context, model, &task.validation, asked)?;
            seconds.insert(asked as u32, begun.elapsed().as_secs_f64());
            scored.insert(asked as u32, score_tokens(tokens, asked)?);
            return Ok(());
        }
        let logits = method.predict(model, &inputs.drawn(asked))?;
        let logits = task.goal.answers.class_logits(logits);
        let logits = temperatures.soften(logits, asked)?;
        let took = begun.elapsed().as_secs_f64();
        for &draws in kept {
            let first = (draws != asked).then(|| logits.first(draws));
            let logits = first.as_ref().unwrap_or(&logits);
            scored.insert(draws as u32, score_draws(logits, task)?);
        }
        seconds.insert(asked as u32, took);
        Ok(())
    };
    answer(0, &[0])?;
    // Each number of draws has a separate temperature, if there is one.
    let nest = task.goal.answers != AnswerSpace::Tokens && temperatures.by_draws.is_empty();
    match draws.iter().max().filter(|_| nest) {
        Some(&most) => answer(most, draws)?,
        None => draws.iter().try_for_each(|&draws| answer(draws, &[draws]))?,
    }
    Ok((scored, seconds))
}

fn tokens(
    context: &RunContext<'_>,
    model: &AutoModel,
    texts: &[TokenisedExample],
    draws: usize,
) -> Result<train::TokenAnswers> {
    Ok(train::token_answers(model, &context.inputs(&context.examples(texts)).drawn(draws))?)
}
