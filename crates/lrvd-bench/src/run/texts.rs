//! Runs on texts, of which tokens are learnt.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use lrvd_burn::train::{Evaluation, PassWatch, TokenAnswers, token_answers};
use lrvd_core::metrics::mean;
use lrvd_models::llama::LlamaForCausalLm;
use serde::Serialize;

use super::settings::{TextSettings, TrainSettings};
use super::task::{Answering, ByDraws, Measures, RunStart, Timed, TrainTask};
use crate::backbone::{Backbone, load_language_model};
use crate::data::held_out;
use crate::error::Result;
use crate::eval::RunContext;
use crate::io::{create_parent, write_json_lines};
use crate::language::{LanguageExample, LanguageExamples, LanguageTask};
use crate::method::{LanguageMethod, MethodName, RankRequest, Temperatures};
use crate::record::{Metrics, Reliability};
use crate::settings::Config;

impl TrainTask for LanguageTask {
    type Kind = TextSettings;
    type Model = LlamaForCausalLm;
    type Method = LanguageMethod;
    type Row = LanguageExample;
    type Rows<'a> = LanguageExamples<'a>;
    type Answers = TokenAnswers;

    fn without_rows(_: &TrainSettings<TextSettings>, _: &Backbone) -> Result<Self> {
        Ok(Self::default())
    }

    fn splits(&self) -> [&[LanguageExample]; 3] {
        [&self.train, &self.holdout, &self.validation]
    }

    fn holding_out(&self, share: f64, drawn_by: Option<u64>) -> Self {
        let (train, holdout) = held_out(self.train.clone(), share, drawn_by.unwrap_or(0));
        Self { train, holdout, ..self.clone() }
    }

    fn rows<'a>(
        context: &RunContext<'a, Self>,
        texts: &'a [LanguageExample],
    ) -> LanguageExamples<'a> {
        LanguageExamples { texts, pad_id: context.task.pad_id, device: context.device }
    }

    fn load(start: &RunStart<'_, Self>) -> Result<LlamaForCausalLm> {
        let RunStart { config, backbone, device, .. } = *start;
        let dtype = backbone.stored_as(config.base_precision)?;
        load_language_model(backbone, config.backbone_dropout, device, dtype)
    }

    fn build(
        method: MethodName,
        config: &Config,
        request: RankRequest,
    ) -> Result<Box<LanguageMethod>> {
        method.build_for_language(config, request)
    }

    fn evaluate((context, model, _): Answering<'_, Self>) -> Result<Evaluation> {
        let answers = at_the_mean(context, model, &context.task.validation)?;
        let nll = answers.nll()?;
        let found = [("accuracy", answers.accuracy()?), ("standard", nll.exp()), ("nll", nll)];
        let finite = found.into_iter().filter(|(_, value)| value.is_finite());
        Ok(Evaluation {
            metric: "nll".to_owned(),
            score: Some(-nll).filter(|score| score.is_finite()),
            metrics: finite.map(|(name, value)| (name.to_owned(), value)).collect(),
        })
    }

    fn held_out((context, model, _): Answering<'_, Self>) -> Result<Vec<f64>> {
        Ok(at_the_mean(context, model, &context.task.holdout)?.row_losses())
    }

    fn answers(
        (context, model, _): Answering<'_, Self>,
        _: &Temperatures,
        draws: &[usize],
    ) -> Result<Timed<TokenAnswers>> {
        let examples = Self::rows(context, &context.task.validation);
        let batch_size = context.config.evaluation_batch_size;
        scored(model, &examples, batch_size, context.seed, draws, context.watch)
    }

    fn measures(&self, answers: &ByDraws<TokenAnswers>) -> Result<Measures> {
        measures(answers)
    }

    fn write_predictions(&self, answers: &ByDraws<TokenAnswers>, path: &Path) -> Result<()> {
        write_predictions(&self.validation_ids, answers, path)
    }
}

fn at_the_mean(
    context: &RunContext<'_, LanguageTask>,
    model: &LlamaForCausalLm,
    texts: &[LanguageExample],
) -> Result<TokenAnswers> {
    let examples = LanguageExamples { texts, pad_id: context.task.pad_id, device: context.device };
    let batch_size = context.config.evaluation_batch_size;
    Ok(token_answers(model, &examples, batch_size, 0, 0, PassWatch::default())?)
}

/// The answers of `model` at its mean and at each number of `draws`, with their seconds; `watch` follows the passes.
pub(crate) fn scored(
    model: &LlamaForCausalLm,
    examples: &LanguageExamples<'_>,
    batch_size: usize,
    seed: u64,
    draws: &[usize],
    watch: PassWatch<'_>,
) -> Result<Timed<TokenAnswers>> {
    let (mut scored, mut seconds) = (BTreeMap::new(), BTreeMap::new());
    for draws in std::iter::once(0).chain(draws.iter().copied()) {
        let begun = Instant::now();
        let answers = token_answers(model, examples, batch_size, seed, draws, watch)?;
        seconds.insert(draws as u32, begun.elapsed().as_secs_f64());
        scored.insert(draws as u32, answers);
    }
    Ok((scored, seconds))
}

/// Metrics and reliability per token by number of draws: `nll` in nats, its exponential as `perplexity`, the calibration of
/// the most likely token.
pub(crate) fn measures(scored: &ByDraws<TokenAnswers>) -> Result<Measures> {
    let mut found = Measures::default();
    for (&draws, answers) in scored {
        let (nll, diagram) = (answers.nll()?, answers.reliability()?);
        let metrics = Metrics {
            n: answers.log_probability.len() as u64,
            accuracy: Some(answers.accuracy()?),
            macro_f1: None,
            standard: BTreeMap::from([("perplexity".to_owned(), nll.exp())]),
            nll: Some(nll),
            ece: Some(diagram.ece()),
            brier: None,
            entropy: Some(mean(&answers.entropy)?),
            mutual_information: match draws {
                0 | 1 => None,
                _ => Some(mean(&answers.mutual_information)?),
            },
        };
        found.metrics.insert(draws, metrics);
        found.reliability.insert(draws, Reliability::from(&diagram));
    }
    Ok(found)
}

#[derive(Serialize)]
struct Line<'a> {
    id: &'a str,
    tokens: usize,
    nll: BTreeMap<u32, f64>,
    entropy: BTreeMap<u32, f64>,
    mutual_information: BTreeMap<u32, f64>,
}

/// Writes one line for every text: its tokens and, by number of draws, their mean negative log-likelihood, entropy and
/// mutual information.
pub(crate) fn write_predictions(
    ids: &[String],
    scored: &ByDraws<TokenAnswers>,
    path: &Path,
) -> Result<()> {
    create_parent(path)?;
    let mut start = 0;
    let lines = ids.iter().enumerate().map(|(row, id)| {
        let tokens = scored.values().next().map_or(0, |answers| answers.per_row[row]);
        let of = |values: &dyn Fn(&TokenAnswers) -> &[f64]| -> BTreeMap<u32, f64> {
            let mean = |answers| mean(&values(answers)[start..start + tokens]).unwrap_or(0.0);
            scored.iter().map(|(&draws, answers)| (draws, mean(answers))).collect()
        };
        let nll = of(&|answers| &answers.log_probability);
        let mut mutual_information = of(&|answers| &answers.mutual_information);
        // A single model agrees with itself.
        mutual_information.retain(|&draws, _| draws > 1);
        let line = Line {
            id,
            tokens,
            nll: nll.into_iter().map(|(draws, log)| (draws, -log)).collect(),
            entropy: of(&|answers| &answers.entropy),
            mutual_information,
        };
        start += tokens;
        line
    });
    write_json_lines(path, lines)
}
