//! The table of the APIs by which models are asked, and the `OpenAPI` document of the server.

use schemars::generate::{SchemaGenerator, SchemaSettings};
use serde_json::{Map, Value, json};

use super::adapters::{AdapterRequest, Adapters};
use super::app::Asked;
use super::card::Card;
use super::completion::{ChatChoice, Completion, TextChoice};
use super::decisions::{self, DecisionsAnswers, DecisionsRequest};
use super::models::{ModelList, Models};
use super::native::{
    self, ClassifierAnswers, ClassifyRequest, GenerateRequest, LanguageAnswers, Summary,
};
use super::openai::{self, CompletionRequest};
use super::problem::{Body, OpenaiError, Problem, Shape, SystemoneError};
use super::systemone::{self, SystemoneAnswers};
use super::{CHAT_COMPLETIONS, CLASSIFY, COMPLETIONS, DECISIONS, GENERATE, MODELS, SYSTEMONE};

/// A way of asking models. Another one is another row of [`APIS`].
pub(super) struct Api {
    pub(super) path: &'static str,
    /// The form of its errors.
    shape: Shape,
    /// Reads a body. Ignores nothing but what other servers of the same API ignore.
    pub(super) read: fn(&[u8], &Models) -> Result<Asked, Problem>,
    about: About,
    /// Adds the schemas of what is read and written.
    schemas: fn(&mut SchemaGenerator),
}

/// Words in the description of a path, and names of schemas.
struct About {
    summary: &'static str,
    answered: &'static str,
    request: &'static str,
    answers: &'static str,
    error: &'static str,
    /// Statuses of requests that are themselves wrong.
    wrong: &'static [(&'static str, &'static str)],
    /// What is sent instead of `answers` if the request has `stream`.
    events: Option<&'static str>,
}

const TEXTS: About = About {
    summary: "Classify texts, with uncertainty.",
    answered: "Answers in the order of the texts.",
    request: "ClassifyRequest",
    answers: "ClassifierAnswers",
    error: "Error",
    wrong: &[
        ("400", "A field is wrong; `field` names it."),
        ("422", "A text cannot be read by the model."),
    ],
    events: None,
};

const QUESTIONS: About = About {
    summary: "Answer typed questions about a state.",
    answered: "Answers to the questions.",
    request: "SystemoneRequest",
    answers: "SystemoneAnswers",
    error: "SystemoneError",
    wrong: &[("422", "The body is wrong; `loc` names the value.")],
    events: None,
};

const COMPLETE: About = About {
    summary: "Continue texts, in the form of OpenAI.",
    answered: "The texts, in the order of the prompts.",
    request: "CompletionRequest",
    answers: "CompletionWithTextChoice",
    error: "OpenaiError",
    wrong: &[("400", "The body is wrong; `param` names the value.")],
    events: Some(
        "With `stream`: events without a name, each of the same form; then, with `stream_options`, one with the usage; \
         then `[DONE]`. In place of the end there may be an `OpenaiError`.",
    ),
};

pub(super) static APIS: [Api; 6] = [
    Api {
        path: CLASSIFY,
        shape: Shape::Own,
        read: native::classify,
        about: TEXTS,
        schemas: |all| {
            all.subschema_for::<ClassifyRequest>();
            all.subschema_for::<ClassifierAnswers>();
        },
    },
    Api {
        path: GENERATE,
        shape: Shape::Own,
        read: native::generate,
        about: About {
            summary: "Continue a text or a conversation, with uncertainty.",
            request: "GenerateRequest",
            answers: "LanguageAnswers",
            events: Some(
                "With `stream`: events `token`, each a `Token`; then one `answer`, a `Summary`, or `error`, an `Error`.",
            ),
            ..TEXTS
        },
        schemas: |all| {
            all.subschema_for::<GenerateRequest>();
            all.subschema_for::<LanguageAnswers>();
            all.subschema_for::<Summary>();
        },
    },
    Api {
        path: COMPLETIONS,
        shape: Shape::Openai,
        read: openai::complete,
        about: COMPLETE,
        schemas: |all| {
            all.subschema_for::<OpenaiError>();
            all.subschema_for::<CompletionRequest>();
            all.subschema_for::<Completion<TextChoice>>();
        },
    },
    Api {
        path: CHAT_COMPLETIONS,
        shape: Shape::Openai,
        read: openai::chat,
        about: About {
            summary: "Continue a conversation, in the form of OpenAI.",
            answered: "The answer of the assistant.",
            answers: "CompletionWithChatChoice",
            ..COMPLETE
        },
        schemas: |all| {
            all.subschema_for::<OpenaiError>();
            all.subschema_for::<CompletionRequest>();
            all.subschema_for::<Completion<ChatChoice>>();
        },
    },
    Api {
        path: SYSTEMONE,
        shape: Shape::Systemone,
        read: systemone::read,
        about: QUESTIONS,
        schemas: |all| {
            all.subschema_for::<SystemoneAnswers>();
            // Requests are read as JSON values: no type of ours has their fields. A test parses all of them.
            let written: Map<_, _> = serde_json::from_str(SYSTEMONE_REQUEST).unwrap_or_default();
            all.definitions_mut().extend(written);
        },
    },
    Api {
        path: DECISIONS,
        shape: Shape::Openai,
        read: decisions::read,
        about: About {
            summary: "Answer typed questions about an input, in the form of OpenAI.",
            request: "DecisionsRequest",
            answers: "DecisionsAnswers",
            error: "OpenaiError",
            wrong: &[("400", "The body is wrong; `param` names the value.")],
            ..QUESTIONS
        },
        schemas: |all| {
            all.subschema_for::<OpenaiError>();
            all.subschema_for::<DecisionsRequest>();
            all.subschema_for::<DecisionsAnswers>();
        },
    },
];

/// The one at `path`.
pub(super) fn api(path: &str) -> Option<&'static Api> {
    APIS.iter().find(|api| api.path == path)
}

/// The form of the errors at `path`.
pub(super) fn shape(path: &str) -> Shape {
    match api(path) {
        Some(api) => api.shape,
        None if path == MODELS => Shape::Systemone,
        None => Shape::Own,
    }
}

/// Paths and responses that every server has; the schemas are those of the types that are read and written.
const DOCUMENT: &str = include_str!("openapi.json");
const SYSTEMONE_REQUEST: &str = include_str!("openapi-systemone.json");
/// A path where models are asked; `{summary}` and the like are replaced.
const ASKED: &str = include_str!("openapi-asked.json");

/// The `OpenAPI` 3.1 document of a server with `models`.
pub(super) fn document(models: &Models) -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
    });
    let mut schemas = settings.into_generator();
    schemas.subschema_for::<Body>();
    schemas.subschema_for::<SystemoneError>();
    schemas.subschema_for::<Card>();
    schemas.subschema_for::<ModelList>();
    schemas.subschema_for::<AdapterRequest>();
    schemas.subschema_for::<Adapters>();
    // A test parses all of them.
    let text = DOCUMENT.replace("{version}", env!("CARGO_PKG_VERSION"));
    let mut document: Value = serde_json::from_str(&text).unwrap_or_default();
    let paths = models.paths();
    for Api { path, about, schemas: add, .. } in APIS.iter().filter(|api| paths.contains(api.path))
    {
        add(&mut schemas);
        document["paths"][*path] = about.path();
    }
    document["components"]["schemas"] = schemas.take_definitions(true).into();
    document
}

impl About {
    fn path(&self) -> Value {
        let named = [
            ("{summary}", self.summary),
            ("{answered}", self.answered),
            ("{request}", self.request),
            ("{answers}", self.answers),
            ("{error}", self.error),
        ];
        let replaced = |text: String, (name, words): (&str, &str)| text.replace(name, words);
        let text = named.into_iter().fold(ASKED.to_owned(), replaced);
        let mut path: Value = serde_json::from_str(&text).unwrap_or_default();
        let responses = &mut path["post"]["responses"];
        let error = responses["500"]["content"].clone();
        for (status, description) in self.wrong {
            responses[*status] = json!({ "description": description, "content": error });
        }
        if let Some(description) = self.events {
            responses["200"]["content"]["text/event-stream"] =
                json!({ "schema": { "type": "string", "description": description } });
        }
        path
    }
}
