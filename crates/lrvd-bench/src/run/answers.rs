//! What the model of a run answers: between steps, to held-out rows, and to the validation rows once it is trained.

use std::collections::BTreeMap;
use std::time::Instant;

use lrvd_burn::train::{
    Evaluation, LabelledExamples as _, TokenAnswers, calibrated_losses, token_answers,
};
use lrvd_models::AutoModel;

use crate::data::batch::TokenisedExample;
use crate::error::Result;
use crate::eval::{RunContext, Scored, score_draws, score_tokens};
use crate::method::{DynMethod, Temperatures};
use crate::record::Metrics;

/// Something of every number of draws; 0 is the mean.
pub(crate) type ByDraws<T> = BTreeMap<u32, T>;

/// Measures the validation rows at the mean.
pub(super) fn evaluate(
    context: &RunContext<'_>,
    model: &AutoModel,
    method: &DynMethod,
) -> Result<Evaluation> {
    let task = context.task;
    let metrics = if task.goal.is_texts() {
        let tokens = tokens(context, model, &task.validation, 0)?;
        let (accuracy, nll) = (Some(tokens.accuracy()?), tokens.nll()?);
        let standard = BTreeMap::from([("perplexity".to_owned(), nll.exp())]);
        Metrics { accuracy, standard, nll: Some(nll), ..Metrics::default() }
    } else {
        let examples = context.examples(&task.validation);
        score_draws(&method.predict(model, &context.inputs(&examples), 0)?, task)?.metrics
    };
    let standard = metrics.standard.values().next().copied();
    let found = [("accuracy", metrics.accuracy), ("standard", standard), ("nll", metrics.nll)];
    let finite = found.into_iter().filter_map(|(name, value)| {
        Some((name.to_owned(), value.filter(|value| value.is_finite())?))
    });
    Ok(Evaluation {
        metric: task.goal.selection.name().to_owned(),
        score: Some(task.goal.score(&metrics)).filter(|score| score.is_finite()),
        metrics: finite.collect(),
    })
}

/// The loss of every held-out row at the mean.
pub(super) fn held_out(
    context: &RunContext<'_>,
    model: &AutoModel,
    method: &DynMethod,
) -> Result<Vec<f64>> {
    let rows = &context.task.holdout;
    if context.task.goal.is_texts() {
        return Ok(tokens(context, model, rows, 0)?.row_losses());
    }
    let examples = context.examples(rows);
    let logits = method.predict(model, &context.inputs(&examples), 0)?;
    let all: Vec<usize> = (0..rows.len()).collect();
    Ok(calibrated_losses(&logits, &examples.targets(&all)?)?)
}

/// Answers to the validation rows at the mean and at every number of `draws`, and the seconds that each took.
pub(super) fn answers(
    context: &RunContext<'_>,
    model: &AutoModel,
    method: &DynMethod,
    temperatures: &Temperatures,
    draws: &[usize],
) -> Result<(ByDraws<Scored>, ByDraws<f64>)> {
    let task = context.task;
    let examples = context.examples(&task.validation);
    let inputs = context.inputs(&examples);
    let (mut scored, mut seconds) = (BTreeMap::new(), BTreeMap::new());
    // The answer to `asked` draws serves all numbers in `kept`.
    let mut answer = |asked: usize, kept: &[usize]| -> Result<()> {
        let begun = Instant::now();
        if task.goal.is_texts() {
            let tokens = tokens(context, model, &task.validation, asked)?;
            seconds.insert(asked as u32, begun.elapsed().as_secs_f64());
            scored.insert(asked as u32, score_tokens(tokens, asked)?);
            return Ok(());
        }
        let logits = method.predict(model, &inputs, asked)?;
        let logits = temperatures.soften(logits, asked)?;
        let took = begun.elapsed().as_secs_f64();
        for &draws in kept {
            let all = draws == asked;
            let first = (!all).then(|| logits.first(draws));
            let share = if all { 1.0 } else { draws as f64 / asked as f64 };
            let logits = first.as_ref().unwrap_or(&logits);
            scored.insert(draws as u32, score_draws(logits, task)?);
            seconds.insert(draws as u32, took * share);
        }
        Ok(())
    };
    answer(0, &[0])?;
    // Each number of draws has a separate temperature, if there is one.
    let nest = draws_nest(context, method) && temperatures.0.is_empty();
    match draws.iter().max().filter(|_| nest) {
        Some(&most) => answer(most, draws)?,
        None => draws.iter().try_for_each(|&draws| answer(draws, &[draws]))?,
    }
    Ok((scored, seconds))
}

/// Whether one pass with the most draws answers for all numbers of draws.
pub(super) fn draws_nest(context: &RunContext<'_>, method: &DynMethod) -> bool {
    !context.task.goal.is_texts() && method.draws_nest()
}

fn tokens(
    context: &RunContext<'_>,
    model: &AutoModel,
    texts: &[TokenisedExample],
    draws: usize,
) -> Result<TokenAnswers> {
    let (size, examples) = (context.config.evaluation_batch_size, context.examples(texts));
    Ok(token_answers(model, &examples, size, context.seed, draws, context.watch)?)
}
