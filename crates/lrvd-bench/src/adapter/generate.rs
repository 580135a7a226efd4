//! Continuation of texts, with what the model thinks of every token.

use anyhow::anyhow;
use lrvd_burn::train::DrawSeed;
use lrvd_models::llama::{GenerateOptions, GeneratedText, TokenChoice, TokenSampling};
use serde::Serialize;

use super::language::SavedLanguageModel;
use crate::data::Content;
use crate::error::{Kind, Result};

pub const NEW_TOKENS: usize = 128;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Generation {
    pub max_tokens: usize,
    /// Draws of the weights whose probabilities are averaged; 0 for the mean.
    pub draws: usize,
    /// Addresses the draws, and the tokens where those are drawn.
    pub seed: u64,
    /// Temperature and the share of probability that is kept; `None` takes the most likely token.
    pub sampling: Option<(f64, f64)>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Continuation {
    pub text: String,
    pub tokens: Vec<ContinuedToken>,
    pub prompt_tokens: usize,
    /// Whether the model ended the text, rather than the limit.
    pub stopped: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ContinuedToken {
    /// What it adds to the text; the vocabulary's spelling where that is a part of a character.
    pub text: String,
    pub id: u32,
    /// Its probability, before temperature and truncation.
    pub probability: f64,
    pub entropy: f64,
    /// Mutual information between the next token and the weights, nats; `None` without several draws.
    pub mutual_information: Option<f64>,
}

impl Generation {
    /// The sampling that is meant by a temperature and a share: none without both, else 1 for what is not named.
    pub fn sampling(temperature: Option<f64>, top_p: Option<f64>) -> Option<(f64, f64)> {
        (temperature.is_some() || top_p.is_some())
            .then(|| (temperature.unwrap_or(1.0), top_p.unwrap_or(1.0)))
    }

    pub fn check(&self) -> Result<(), lrvd_core::Error> {
        self.choice(0).check()
    }

    fn choice(&self, first: usize) -> TokenChoice {
        let seed = self.seed;
        self.sampling.map_or(TokenChoice::Greedy, |(temperature, top_p)| {
            TokenChoice::Sampled(TokenSampling { temperature, top_p, seed, first })
        })
    }
}

impl Continuation {
    /// Mean of `ln probability` over the tokens, nats; `None` without a token.
    pub fn mean_log_probability(&self) -> Option<f64> {
        let n = self.tokens.len();
        let sum: f64 = self.tokens.iter().map(|token| token.probability.ln()).sum();
        (n > 0).then(|| sum / n as f64)
    }
}

impl SavedLanguageModel {
    /// Continues `prompts`, of which the first is number `first` among all that are asked: what is drawn for a prompt does
    /// not depend on the others.
    ///
    /// A conversation is continued by the assistant. No text goes beyond the length that the model was made for.
    pub fn generate(
        &self,
        prompts: &[Content],
        first: usize,
        options: &Generation,
    ) -> Result<Vec<Continuation>> {
        self.generate_while(prompts, first, options, &mut |_| true)
    }

    /// [`generate`](Self::generate) until it is stopped: after every token of the texts `go_on` receives how many
    /// there are more, and returns whether to continue.
    pub fn generate_while(
        &self,
        prompts: &[Content],
        first: usize,
        options: &Generation,
        go_on: &mut dyn FnMut(usize) -> bool,
    ) -> Result<Vec<Continuation>> {
        let draws = self.draws(Some(options.draws))?;
        let reader = self.reader()?;
        let ids: Vec<Vec<u32>> =
            prompts.iter().map(|prompt| reader.prompt(prompt)).collect::<Result<_>>()?;
        let most = self.context();
        let longest = ids.iter().map(Vec::len).enumerate().max_by_key(|(_, length)| *length);
        let room = match longest {
            Some((place, found)) if found >= most => {
                let number = first + place + 1;
                return Err(Kind::Input.mark(anyhow!(
                    "prompt {number} has {found} tokens, and the model was trained on texts of up to {most}")));
            }
            longest => most - longest.map_or(0, |(_, length)| length),
        };
        let seed = DrawSeed::new(options.seed)?;
        let generate = GenerateOptions {
            max_new_tokens: options.max_tokens.min(room),
            stop: reader.stops(),
            draws: (0..draws).map(|draw| seed.key(draw)).collect(),
            choice: options.choice(first),
        };
        let texts =
            self.model.generate_while(&ids, &generate, go_on).map_err(|error| match error {
                lrvd_models::Error::Stopped => Kind::Stopped.mark(error),
                error => error.into(),
            })?;
        let continued = ids.iter().zip(texts);
        continued.map(|(prompt, text)| self.continued(prompt, text, draws)).collect()
    }

    fn continued(&self, prompt: &[u32], text: GeneratedText, draws: usize) -> Result<Continuation> {
        let tokenizer = &self.backbone.tokenizer;
        // A decoder may drop the space of a first token, so the prompt's last one goes before it.
        let mut ids: Vec<u32> = prompt.last().copied().into_iter().collect();
        let mut so_far = tokenizer.decode(&ids, true)?;
        let start = so_far.len();
        let token = |token: &lrvd_models::llama::GeneratedToken| {
            ids.push(token.id);
            let longer = tokenizer.decode(&ids, true)?;
            let piece = match longer.strip_prefix(&so_far) {
                Some(piece) if !piece.is_empty() && !piece.contains('\u{fffd}') => piece.to_owned(),
                _ => tokenizer.token(token.id)?,
            };
            so_far = longer;
            Ok(ContinuedToken {
                text: piece,
                id: token.id,
                probability: token.probability,
                entropy: token.entropy,
                mutual_information: (draws > 1).then_some(token.mutual_information),
            })
        };
        let tokens = text.tokens.iter().map(token).collect::<lrvd_models::Result<_>>()?;
        let text_of = so_far.get(start..).unwrap_or(&so_far).to_owned();
        Ok(Continuation {
            text: text_of,
            tokens,
            prompt_tokens: prompt.len(),
            stopped: text.stopped,
        })
    }
}
