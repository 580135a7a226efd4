//! The server's description for programs.

use schemars::generate::{SchemaGenerator, SchemaSettings};
use schemars::{JsonSchema, Schema};
use serde_json::{Value, json};

use super::answer::{ClassifierAnswers, LanguageAnswers};
use super::model::{Card, ClassifierCard, LanguageCard};
use super::problem::Body;
use super::request::{ClassifyRequest, GenerateRequest};

/// The `OpenAPI` 3.1 document of a server of the model of `card`; its schemas are those of the types that are read and written.
pub(super) fn document(card: &Card) -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
    });
    let generator = &mut settings.into_generator();
    let (description, summary, [request, answers, model]) = match card {
        Card::Classifier(_) => (
            "A classifier that says how sure it is.",
            "Classify texts, with uncertainty.",
            [
                of::<ClassifyRequest>(generator),
                of::<ClassifierAnswers>(generator),
                of::<ClassifierCard>(generator),
            ],
        ),
        Card::Language(_) => (
            "A language model that says how sure it is of every token.",
            "Continue a text or a conversation, with uncertainty.",
            [
                of::<GenerateRequest>(generator),
                of::<LanguageAnswers>(generator),
                of::<LanguageCard>(generator),
            ],
        ),
    };
    let error = of::<Body>(generator);
    let body = |schema: &Schema| json!({ "application/json": { "schema": schema } });
    let plain = json!({ "text/plain": { "schema": { "type": "string" } } });
    let rejected =
        |description: &str| json!({ "description": description, "content": body(&error) });
    let no_key = rejected("The server needs a key, and the request has no such one.");
    let misdirected = rejected("`Host` is not a name of this server.");
    let retry = json!({
        "description": "The queue is full, or the server is being stopped.",
        "headers": { "Retry-After": {
            "description": "Seconds after which to try again.",
            "schema": { "type": "integer" },
        } },
        "content": body(&error),
    });
    let got = |summary: &str, content: Value| {
        json!({ "get": {
        "summary": summary,
        "responses": {
            "200": { "description": "As asked.", "content": content },
            "401": no_key.clone(),
            "421": misdirected.clone(),
        },
    } })
    };
    let ready = json!({ "get": {
        "summary": "Whether requests are taken.",
        "responses": {
            "200": { "description": "They are.", "content": plain.clone() },
            "503": retry.clone(),
        },
    } });
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "lrvd serve",
            "version": env!("CARGO_PKG_VERSION"),
            "description": description,
        },
        "paths": {
            (card.path()): { "post": {
                "summary": summary,
                "requestBody": { "required": true, "content": body(&request) },
                "responses": {
                    "200": { "description": "Answers in the order of the texts.", "content": body(&answers) },
                    "400": rejected("A field is wrong; `field` names it."),
                    "401": no_key.clone(),
                    "413": rejected("The body is too long."),
                    "415": rejected("The body is not said to be JSON."),
                    "421": misdirected.clone(),
                    "422": rejected("A text cannot be read by the model."),
                    "500": rejected("The model failed."),
                    "503": retry,
                    "504": rejected("No answer in time."),
                },
            } },
            "/v1/model": got("The model, and what can be asked of it.", body(&model)),
            "/healthz": { "get": {
                "summary": "Whether the process lives.",
                "responses": {
                    "200": { "description": "It does.", "content": plain.clone() },
                    "421": misdirected,
                },
            } },
            "/readyz": ready,
            "/metrics": got("Counts for Prometheus.", plain),
        },
        "components": { "schemas": generator.take_definitions(true) },
    })
}

fn of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}
