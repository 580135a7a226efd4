//! Bodies of responses, and the description of the server for programs.

use std::collections::BTreeSet;

use axum::http::StatusCode;
use axum::response::Response;
use lrvd_bench::adapter::{Continuation, Decided};
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Serialize;
use serde_json::{Value, json};

use super::adapters::{AdapterRequest, Adapters};
use super::answer::Answer;
use super::decisions::{DecisionsAnswers, DecisionsRequest};
use super::model::{Card, Key, SCHEMA_VERSION};
use super::problem::{Body, json};
use super::request::{ClassifyRequest, Form, GenerateRequest};
use super::systemone::{ModelList, SystemoneAnswers};
use super::{CLASSIFY, GENERATE, SYSTEMONE};

/// The response to one request, whose texts the model of `card` answered with one key.
pub(super) fn respond(card: &Card, form: Form, answers: Vec<Answer>, key: Key) -> Response {
    let (schema_version, Key { draws, seed, sampling, .. }) = (SCHEMA_VERSION, key);
    match (card, form) {
        (Card::Classifier(card), Form::Typed(write)) => write(decided(answers), card),
        (Card::Classifier(_), Form::Own) => {
            json(StatusCode::OK, &ClassifierAnswers { schema_version, seed, answers })
        }
        (Card::Language(_), _) => {
            let (temperature, top_p) = sampling.unzip();
            let texts = answers;
            let body = LanguageAnswers { schema_version, draws, seed, temperature, top_p, texts };
            json(StatusCode::OK, &body)
        }
    }
}

/// The answers to the questions of one request.
fn decided(answers: Vec<Answer>) -> Vec<Decided> {
    let all = answers.into_iter().filter_map(|answer| match answer {
        Answer::Decided(all) => Some(all),
        _ => None,
    });
    all.flatten().collect()
}

/// Answers to the texts of one request, in their order.
#[derive(Serialize, JsonSchema)]
struct ClassifierAnswers {
    schema_version: u32,
    /// Seed of the draws.
    seed: u64,
    answers: Vec<Answer>,
}

/// The continuation of the prompt of one request, and the settings that it can be repeated with.
#[derive(Serialize, JsonSchema)]
struct LanguageAnswers {
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
    /// Mean over the tokens, nats; null without a token.
    mean_log_probability: Option<f64>,
}

impl Summary {
    pub(super) fn new(found: Continuation, key: Key) -> Self {
        let Continuation { text, tokens, prompt_tokens, stopped, mean_log_probability } = found;
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
            mean_log_probability,
        }
    }
}

/// Paths and responses that every server has; the schemas are those of the types that are read and written.
const DOCUMENT: &str = include_str!("openapi.json");
/// The path where classifiers or language models are asked; `{summary}` and the like are replaced.
const ASKED: &str = include_str!("openapi-asked.json");
/// The same of typed questions.
const TYPED: &str = include_str!("openapi-decisions.json");

/// The `OpenAPI` 3.1 document of a server whose models answer at `paths`.
pub(super) fn document(paths: &BTreeSet<&str>) -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
    });
    let mut schemas = settings.into_generator();
    schemas.subschema_for::<Body>();
    schemas.subschema_for::<Card>();
    schemas.subschema_for::<ModelList>();
    schemas.subschema_for::<AdapterRequest>();
    schemas.subschema_for::<Adapters>();
    let text = DOCUMENT.replace("{version}", env!("CARGO_PKG_VERSION"));
    // A test parses all of them.
    let mut document: Value = serde_json::from_str(&text).unwrap_or_default();
    let asked = |summary: &str, request: &str, answers: &str| -> Value {
        let text = ASKED.replace("{summary}", summary);
        let text = text.replace("{request}", request).replace("{answers}", answers);
        serde_json::from_str(&text).unwrap_or_default()
    };
    if paths.contains(CLASSIFY) {
        schemas.subschema_for::<ClassifyRequest>();
        schemas.subschema_for::<ClassifierAnswers>();
        let summary = "Classify texts, with uncertainty.";
        document["paths"][CLASSIFY] = asked(summary, "ClassifyRequest", "ClassifierAnswers");
    }
    if paths.contains(GENERATE) {
        schemas.subschema_for::<GenerateRequest>();
        schemas.subschema_for::<LanguageAnswers>();
        schemas.subschema_for::<Summary>();
        let summary = "Continue a text or a conversation, with uncertainty.";
        let mut path = asked(summary, "GenerateRequest", "LanguageAnswers");
        let description = "With `stream`: events `token`, each a `Token`; then one `answer`, a `Summary`, or `error`, an `Error`.";
        path["post"]["responses"]["200"]["content"]["text/event-stream"] =
            json!({ "schema": { "type": "string", "description": description } });
        document["paths"][GENERATE] = path;
    }
    if paths.contains(SYSTEMONE) {
        schemas.subschema_for::<SystemoneAnswers>();
        schemas.subschema_for::<DecisionsRequest>();
        schemas.subschema_for::<DecisionsAnswers>();
        let mut typed: Value = serde_json::from_str(TYPED).unwrap_or_default();
        add(&mut document["paths"], typed["paths"].take());
        add(&mut document["components"]["schemas"], typed["schemas"].take());
    }
    add(&mut document["components"]["schemas"], schemas.take_definitions(true).into());
    document
}

/// Adds the fields of `more`.
fn add(object: &mut Value, more: Value) {
    if let (Some(fields), Value::Object(more)) = (object.as_object_mut(), more) {
        fields.extend(more);
    }
}
