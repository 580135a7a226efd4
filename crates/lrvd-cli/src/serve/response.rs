//! Bodies of responses, and the description of the server for programs.

use axum::http::StatusCode;
use axum::response::Response;
use lrvd_bench::adapter::{Continuation, Decided};
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Serialize;
use serde_json::{Value, json};

use super::answer::Answer;
use super::decisions::{DecisionsAnswers, DecisionsRequest};
use super::model::{Card, ClassifierCard, Key, LanguageCard, SCHEMA_VERSION};
use super::problem::{Body, json};
use super::request::{ClassifyRequest, Form, GenerateRequest};
use super::systemone::{Models, SystemoneAnswers};
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
#[schemars(rename = "Answers")]
struct ClassifierAnswers {
    schema_version: u32,
    /// Seed of the draws.
    seed: u64,
    answers: Vec<Answer>,
}

/// The continuation of the prompt of one request, and the settings that it can be repeated with.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Answers")]
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

/// Paths and responses; `{path}` and the like are replaced, and the schemas are those of the types that are read and written.
const DOCUMENT: &str = include_str!("openapi.json");
/// The same of typed questions.
const TYPED: &str = include_str!("openapi-decisions.json");

/// The `OpenAPI` 3.1 document of a server of the model of `card`.
pub(super) fn document(card: &Card) -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
    });
    let mut schemas = settings.into_generator();
    schemas.subschema_for::<Body>();
    schemas.subschema_for::<Models>();
    let (description, summary) = match card {
        Card::Classifier(_) => {
            schemas.subschema_for::<ClassifierCard>();
            ("A classifier that says how sure it is.", "Classify texts, with uncertainty.")
        }
        Card::Language(_) => {
            schemas.subschema_for::<LanguageCard>();
            (
                "A language model that says how sure it is of every token.",
                "Continue a text or a conversation, with uncertainty.",
            )
        }
    };
    let paths = card.paths();
    let own = [CLASSIFY, GENERATE].into_iter().find(|path| paths.contains(path));
    let text = DOCUMENT
        .replace("{path}", own.unwrap_or_default())
        .replace("{version}", env!("CARGO_PKG_VERSION"))
        .replace("{description}", description)
        .replace("{summary}", summary);
    // A test parses both.
    let mut document: Value = serde_json::from_str(&text).unwrap_or_default();
    match own {
        Some(GENERATE) => {
            schemas.subschema_for::<GenerateRequest>();
            schemas.subschema_for::<LanguageAnswers>();
            schemas.subschema_for::<Summary>();
            let description = "With `stream`: events `token`, each a `Token`; then one `answer`, a `Summary`, or `error`, an `Error`.";
            document["paths"][GENERATE]["post"]["responses"]["200"]["content"]["text/event-stream"] =
                json!({ "schema": { "type": "string", "description": description } });
        }
        Some(_) => {
            schemas.subschema_for::<ClassifyRequest>();
            schemas.subschema_for::<ClassifierAnswers>();
        }
        None => drop(document["paths"].as_object_mut().and_then(|paths| paths.remove(""))),
    }
    if paths.contains(&SYSTEMONE) {
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
