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
    /// Statuses of requests that are themselves wrong.
    wrong: &'static [(&'static str, &'static str)],
    /// Events that are sent instead of `answers` if the request has `stream`.
    events: Option<&'static str>,
}

const TEXTS: About = About {
    summary: "Classify texts, with uncertainty.",
    answered: "Answers in the order of the texts.",
    request: "ClassifyRequest",
    answers: "ClassifierAnswers",
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
    wrong: &[("422", "The body is wrong; `loc` names the value.")],
    events: None,
};

const COMPLETE: About = About {
    summary: "Continue texts, in the form of OpenAI.",
    answered: "The texts, in the order of the prompts.",
    request: "CompletionRequest",
    answers: "CompletionWithTextChoice",
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

/// Paths and responses that every server has, without the bodies of errors; the schemas are those of the types that are read and written.
const DOCUMENT: &str = include_str!("openapi.json");
const SYSTEMONE_REQUEST: &str = include_str!("openapi-systemone.json");

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
    for (path, operations) in document["paths"].as_object_mut().into_iter().flatten() {
        for operation in operations.as_object_mut().into_iter().flat_map(Map::values_mut) {
            fill_errors(shape(path), &mut operation["responses"]);
        }
    }
    document["components"]["schemas"] = schemas.take_definitions(true).into();
    document
}

/// Adds the bodies and headers of errors to `responses` that have descriptions.
fn fill_errors(shape: Shape, responses: &mut Value) {
    let schema = match shape {
        Shape::Own => "Error",
        Shape::Systemone => "SystemoneError",
        Shape::Openai => "OpenaiError",
    };
    let is_error = |status: &str| status.starts_with(['4', '5']);
    let all = responses.as_object_mut().into_iter().flatten();
    for (status, response) in all.filter(|(status, _)| is_error(status)) {
        response["content"] = content(schema);
        if status == "503" {
            let description = "Seconds after which to try again.";
            response["headers"]["Retry-After"] =
                json!({ "description": description, "schema": { "type": "integer" } });
        }
    }
}

fn content(schema: &str) -> Value {
    let place = format!("#/components/schemas/{schema}");
    json!({ "application/json": { "schema": { "$ref": place } } })
}

impl About {
    fn path(&self) -> Value {
        let mut responses = json!({
            "200": { "description": self.answered, "content": content(self.answers) },
            "401": { "description": "The server needs a key, and the request has no such one." },
            "404": { "description": "There is no model of this name, or it is of another kind." },
            "413": { "description": "The body is too long, as bytes or as text." },
            "415": { "description": "The content type is not JSON." },
            "421": { "description": "`Host` is not a name of this server." },
            "500": { "description": "The model failed." },
            "503": { "description": "The queue is full, or the server is being stopped." },
            "504": { "description": "No answer in time." },
        });
        for (status, description) in self.wrong {
            responses[*status] = json!({ "description": description });
        }
        if let Some(description) = self.events {
            responses["200"]["content"]["text/event-stream"] =
                json!({ "schema": { "type": "string", "description": description } });
        }
        let body = json!({ "required": true, "content": content(self.request) });
        json!({
            "post": { "summary": self.summary, "requestBody": body, "responses": responses },
        })
    }
}
