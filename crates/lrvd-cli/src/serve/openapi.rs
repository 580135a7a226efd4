//! The server's description for programs.

use schemars::generate::SchemaSettings;
use serde_json::Value;

use super::answer::{ClassifierAnswers, LanguageAnswers};
use super::model::{Card, ClassifierCard, LanguageCard};
use super::problem::Body;
use super::request::{ClassifyRequest, GenerateRequest};

/// Paths and responses; `{path}` and the like are replaced, and the schemas are those of the types that are read and written.
const DOCUMENT: &str = include_str!("openapi.json");

/// The `OpenAPI` 3.1 document of a server of the model of `card`.
pub(super) fn document(card: &Card) -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
    });
    let mut schemas = settings.into_generator();
    schemas.subschema_for::<Body>();
    let (description, summary) = match card {
        Card::Classifier(_) => {
            schemas.subschema_for::<ClassifyRequest>();
            schemas.subschema_for::<ClassifierAnswers>();
            schemas.subschema_for::<ClassifierCard>();
            ("A classifier that says how sure it is.", "Classify texts, with uncertainty.")
        }
        Card::Language(_) => {
            schemas.subschema_for::<GenerateRequest>();
            schemas.subschema_for::<LanguageAnswers>();
            schemas.subschema_for::<LanguageCard>();
            (
                "A language model that says how sure it is of every token.",
                "Continue a text or a conversation, with uncertainty.",
            )
        }
    };
    let text = DOCUMENT
        .replace("{path}", card.path())
        .replace("{version}", env!("CARGO_PKG_VERSION"))
        .replace("{description}", description)
        .replace("{summary}", summary);
    // A test parses it.
    let mut document: Value = serde_json::from_str(&text).unwrap_or_default();
    document["components"]["schemas"] = schemas.take_definitions(true).into();
    document
}
