//! Bodies of responses.

use axum::http::StatusCode;
use axum::response::Response;
use lrvd_bench::adapter::Continuation;
use schemars::JsonSchema;
use serde::Serialize;

use super::answer::Answer;
use super::model::{Card, Key, SCHEMA_VERSION};
use super::problem::{Problem, json};
use super::request::{Answered, Form};

/// The response to one request, whose texts the model of `card` answered with one key.
pub(super) fn respond(
    card: &Card,
    form: Form,
    answers: Vec<Answer>,
    key: Key,
) -> Result<Response, Problem> {
    let (schema_version, Key { draws, seed, sampling, .. }) = (SCHEMA_VERSION, key);
    Ok(match (card, form) {
        (Card::Classifier(card), Form::Typed(write)) => return write(decided(answers), card),
        (Card::Classifier(_), Form::Own) => {
            json(StatusCode::OK, &ClassifierAnswers { schema_version, seed, answers })
        }
        (Card::Language(_), _) => {
            let (temperature, top_p) = sampling.unzip();
            let texts = answers;
            let body = LanguageAnswers { schema_version, draws, seed, temperature, top_p, texts };
            json(StatusCode::OK, &body)
        }
    })
}

/// The answers to the questions of one request.
fn decided(answers: Vec<Answer>) -> Answered {
    let all = answers.into_iter().filter_map(|answer| match answer {
        Answer::Decided(all) => Some(all),
        _ => None,
    });
    all.flatten().collect()
}

/// Answers to the texts of one request, in their order.
#[derive(Serialize, JsonSchema)]
pub(super) struct ClassifierAnswers {
    schema_version: u32,
    /// Seed of the draws.
    seed: u64,
    answers: Vec<Answer>,
}

/// The continuation of the prompt of one request, and the settings that it can be repeated with.
#[derive(Serialize, JsonSchema)]
pub(super) struct LanguageAnswers {
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
    #[schemars(with = "Vec<Continuation>")]
    texts: Vec<Answer>,
}

/// The last event of a text that was sent token by token: what is known of the whole, and the settings that it can be repeated with.
#[derive(Serialize, JsonSchema)]
pub(super) struct Summary {
    schema_version: u32,
    draws: usize,
    seed: u64,
    temperature: Option<f64>,
    top_p: Option<f64>,
    text: String,
    /// How many there were.
    tokens: usize,
    prompt_tokens: usize,
    /// Whether the model ended the text.
    stopped: bool,
    /// Whether the text was cut because prompt and text fill the model's context, before the largest number of tokens.
    context_full: bool,
    /// Mean over the tokens, nats; null without a token.
    mean_log_probability: Option<f64>,
}

impl Summary {
    pub(super) fn new(found: Continuation, key: Key) -> Self {
        let Continuation {
            text,
            tokens,
            prompt_tokens,
            stopped,
            context_full,
            mean_log_probability,
        } = found;
        let (temperature, top_p) = key.sampling.unzip();
        Self {
            schema_version: SCHEMA_VERSION,
            draws: key.draws,
            seed: key.seed,
            temperature,
            top_p,
            text,
            tokens: tokens.len(),
            prompt_tokens,
            stopped,
            context_full,
            mean_log_probability,
        }
    }
}
