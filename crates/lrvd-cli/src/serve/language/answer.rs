//! The body of an answer, in the words of `lrvd generate --format json`.

use lrvd_bench::adapter::{Continuation, ContinuedToken, Generation};
use schemars::JsonSchema;
use serde::Serialize;

use crate::serve::served::SCHEMA_VERSION;

/// The continuation of the prompt of one request, and the settings that it can be repeated with.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Answers {
    schema_version: u32,
    /// How many draws the probabilities are averaged over; 0 at the mean of the posterior.
    draws: usize,
    /// Seed of the draws and of drawn tokens.
    seed: u64,
    /// Temperature at which tokens were drawn; null where the most likely one was taken.
    temperature: Option<f64>,
    /// Probability that tokens were drawn from; null where the most likely one was taken.
    top_p: Option<f64>,
    /// One.
    texts: Vec<Answer>,
}

/// What comes after a prompt.
#[derive(Serialize, JsonSchema)]
struct Answer {
    text: String,
    tokens: Vec<Token>,
    /// Tokens of the prompt.
    prompt_tokens: usize,
    /// Whether the model ended the text, rather than the limit.
    stopped: bool,
    /// Mean over the tokens, nats; null without a token.
    mean_log_probability: Option<f64>,
}

/// One token of it.
#[derive(Serialize, JsonSchema)]
struct Token {
    /// What it adds to the text; the vocabulary's spelling where that is a part of a character.
    text: String,
    id: u32,
    /// Averaged over the draws, before temperature and truncation.
    probability: f64,
    /// Of the next token, nats.
    entropy: f64,
    /// Between the next token and the weights, nats; null without several draws.
    mutual_information: Option<f64>,
}

impl Answers {
    /// What was found with `key`.
    pub(super) fn new(found: Vec<Continuation>, key: Generation) -> Self {
        let Generation { draws, seed, sampling, .. } = key;
        Self {
            schema_version: SCHEMA_VERSION,
            draws,
            seed,
            temperature: sampling.map(|(temperature, _)| temperature),
            top_p: sampling.map(|(_, top_p)| top_p),
            texts: found.into_iter().map(Answer::from).collect(),
        }
    }
}

impl From<Continuation> for Answer {
    fn from(found: Continuation) -> Self {
        let mean_log_probability = found.mean_log_probability();
        let Continuation { text, tokens, prompt_tokens, stopped } = found;
        let token = |token: ContinuedToken| {
            let ContinuedToken { text, id, probability, entropy, mutual_information } = token;
            Token { text, id, probability, entropy, mutual_information }
        };
        let tokens = tokens.into_iter().map(token).collect();
        Self { text, tokens, prompt_tokens, stopped, mean_log_probability }
    }
}
