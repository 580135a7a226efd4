//! Bodies of responses, and the form that each has.

use axum::body::Bytes;
use axum::http::StatusCode;
use axum::response::Response;
use lrvd_bench::adapter::{Continuation, ContinuedToken};
use schemars::JsonSchema;
use serde::Serialize;

use super::answer::ModelAnswer;
use super::completion::CompletionPlan;
use super::decisions::{self, DecisionsAnswers};
use super::model::{AnswerOptions, Card, SCHEMA_VERSION};
use super::problem::{Problem, json};
use super::systemone::{self, SystemoneAnswers};
use super::typed::Answered;

/// Form of a response, with the parts of the request that are written into it.
#[derive(Debug)]
pub(super) enum Form {
    Classes,
    Texts {
        /// Temperature and `top_p`.
        sampling: Option<(f64, f64)>,
    },
    Systemone(systemone::Plan),
    Decisions(decisions::Plan),
    Openai(CompletionPlan),
}

/// The response to one request, whose texts the model of `card` answered with one set of options.
pub(super) fn respond(
    card: &Card,
    form: Form,
    answers: Vec<ModelAnswer>,
    AnswerOptions { draws, seed }: AnswerOptions,
) -> Result<Response, Problem> {
    let schema_version = SCHEMA_VERSION;
    let write = match (form, card) {
        (Form::Classes, _) => {
            json(StatusCode::OK, &ClassifierAnswers { schema_version, seed, answers })
        }
        (Form::Texts { sampling }, _) => {
            let (temperature, top_p) = sampling.unzip();
            let texts = answers;
            let body = LanguageAnswers { schema_version, draws, seed, temperature, top_p, texts };
            json(StatusCode::OK, &body)
        }
        (Form::Systemone(plan), Card::Classifier(card)) => {
            json(StatusCode::OK, &SystemoneAnswers::new(plan, decided(answers), card)?)
        }
        (Form::Decisions(plan), Card::Classifier(card)) => {
            json(StatusCode::OK, &DecisionsAnswers::new(plan, decided(answers), card)?)
        }
        (Form::Openai(plan), _) => plan.respond(texts(answers)),
        // A request is read for a model of its kind.
        (Form::Systemone(_) | Form::Decisions(_), Card::Language(_)) => {
            return Err(Problem::internal());
        }
    };
    Ok(write)
}

/// The answers to the questions of one request.
fn decided(answers: Vec<ModelAnswer>) -> Answered {
    let all = answers.into_iter().filter_map(|answer| match answer {
        ModelAnswer::Decided(all) => Some(all),
        _ => None,
    });
    all.flatten().collect()
}

/// The texts of one request.
pub(super) fn texts(answers: Vec<ModelAnswer>) -> Vec<Continuation> {
    let all = answers.into_iter().filter_map(|answer| match answer {
        ModelAnswer::Text(text) => Some(text),
        _ => None,
    });
    all.collect()
}

impl Form {
    /// Event before the first token of a stream.
    pub(super) fn start_event(&self) -> Option<Bytes> {
        match self {
            Self::Openai(plan) => plan.start_event(),
            _ => None,
        }
    }

    pub(super) fn token_event(&mut self, token: &ContinuedToken) -> Bytes {
        match self {
            Self::Openai(plan) => plan.token_event(token),
            _ => event("token", token),
        }
    }

    /// Events behind the last token.
    pub(super) fn end_event(&self, text: Continuation, options: AnswerOptions) -> Bytes {
        match self {
            Self::Openai(plan) => plan.end_event(text),
            Self::Texts { sampling } => event("answer", &Summary::new(text, options, *sampling)),
            _ => self.error_event(Problem::internal()),
        }
    }

    /// Event in place of the end.
    pub(super) fn error_event(&self, problem: Problem) -> Bytes {
        match self {
            Self::Openai(_) => CompletionPlan::error_event(&problem),
            _ => event("error", &problem.event()),
        }
    }
}

/// One event; the JSON has no line ends.
fn event(name: &str, data: &impl Serialize) -> Bytes {
    let data = serde_json::to_string(data).unwrap_or_default();
    format!("event: {name}\ndata: {data}\n\n").into()
}

/// Answers to the texts of one request, in their order.
#[derive(Serialize, JsonSchema)]
pub(super) struct ClassifierAnswers {
    schema_version: u32,
    /// Seed of the draws.
    seed: u64,
    answers: Vec<ModelAnswer>,
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
    texts: Vec<ModelAnswer>,
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
    fn new(
        found: Continuation,
        AnswerOptions { draws, seed }: AnswerOptions,
        sampling: Option<(f64, f64)>,
    ) -> Self {
        let Continuation {
            text,
            tokens,
            prompt_tokens,
            stopped,
            context_full,
            mean_log_probability,
            ..
        } = found;
        let (temperature, top_p) = sampling.unzip();
        Self {
            schema_version: SCHEMA_VERSION,
            draws,
            seed,
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
