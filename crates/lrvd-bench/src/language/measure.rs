//! How well the next token is predicted.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use lrvd_burn::train::{PassWatch, TokenAnswers, token_answers};
use lrvd_core::metrics::mean;
use lrvd_models::llama::LlamaForCausalLm;
use serde::Serialize;

use super::examples::LanguageExamples;
use crate::error::Result;
use crate::io::create_dir;
use crate::record::{JsonLines, Metrics, Reliability};

#[derive(Clone, Debug)]
pub struct LanguageEvaluation {
    /// By number of draws; 0 is the posterior mean.
    pub scored: BTreeMap<u32, TokenAnswers>,
    pub seconds: BTreeMap<u32, f64>,
    ids: Vec<String>,
}

#[derive(Serialize)]
struct Line<'a> {
    id: &'a str,
    tokens: usize,
    nll: BTreeMap<u32, f64>,
    entropy: BTreeMap<u32, f64>,
    mutual_information: BTreeMap<u32, f64>,
}

impl LanguageEvaluation {
    /// The answers of `model` at its mean and at each number of `draws`; `watch` follows the passes.
    pub(super) fn new(
        model: &LlamaForCausalLm,
        examples: &LanguageExamples<'_>,
        ids: Vec<String>,
        batch_size: usize,
        seed: u64,
        draws: &[usize],
        watch: PassWatch<'_>,
    ) -> Result<Self> {
        let (mut scored, mut seconds) = (BTreeMap::new(), BTreeMap::new());
        for draws in std::iter::once(0).chain(draws.iter().copied()) {
            let begun = Instant::now();
            let answers = token_answers(model, examples, batch_size, seed, draws, watch)?;
            seconds.insert(draws as u32, begun.elapsed().as_secs_f64());
            scored.insert(draws as u32, answers);
        }
        Ok(Self { scored, seconds, ids })
    }

    pub fn rows(&self) -> usize {
        self.ids.len()
    }

    /// Metrics by number of draws, per token: `nll` in nats, its exponential as `perplexity`, the calibration of the most
    /// likely token.
    pub fn metrics(&self) -> Result<BTreeMap<u32, Metrics>> {
        self.scored.iter().map(|(&draws, answers)| Ok((draws, metrics(answers, draws)?))).collect()
    }

    /// Reliability of the most likely token by number of draws.
    pub fn reliability(&self) -> Result<BTreeMap<u32, Reliability>> {
        let of = |(&draws, answers): (&u32, &TokenAnswers)| {
            Ok((draws, Reliability::from(&answers.reliability()?)))
        };
        self.scored.iter().map(of).collect()
    }

    /// Writes one line for every text: its tokens and, by number of draws, their mean negative log-likelihood, entropy and
    /// mutual information.
    pub fn write_predictions(&self, path: &Path) -> Result<()> {
        if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            create_dir(parent)?;
        }
        let mut lines = JsonLines::create(path)?;
        let mut start = 0;
        for (row, id) in self.ids.iter().enumerate() {
            let tokens = self.scored.values().next().map_or(0, |answers| answers.per_row[row]);
            let of = |values: &dyn Fn(&TokenAnswers) -> &[f64]| -> BTreeMap<u32, f64> {
                let mean = |answers| mean(&values(answers)[start..start + tokens]).unwrap_or(0.0);
                self.scored.iter().map(|(&draws, answers)| (draws, mean(answers))).collect()
            };
            let nll = of(&|answers| &answers.log_probability);
            let mut mutual_information = of(&|answers| &answers.mutual_information);
            // A single model agrees with itself.
            mutual_information.retain(|&draws, _| draws > 1);
            lines.write(&Line {
                id,
                tokens,
                nll: nll.into_iter().map(|(draws, log)| (draws, -log)).collect(),
                entropy: of(&|answers| &answers.entropy),
                mutual_information,
            })?;
            start += tokens;
        }
        lines.flush()
    }
}

fn metrics(answers: &TokenAnswers, draws: u32) -> Result<Metrics> {
    let nll = answers.nll()?;
    Ok(Metrics {
        n: answers.log_probability.len() as u64,
        accuracy: Some(answers.accuracy()?),
        macro_f1: None,
        standard: BTreeMap::from([("perplexity".to_owned(), nll.exp())]),
        nll: Some(nll),
        ece: Some(answers.reliability()?.ece()),
        brier: None,
        entropy: Some(mean(&answers.entropy)?),
        mutual_information: if draws > 1 { Some(mean(&answers.mutual_information)?) } else { None },
    })
}
