//! The body of a request.

use std::borrow::Cow;
use std::fmt::{Formatter, Result as Written};
use std::marker::PhantomData;

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::http::{HeaderMap, StatusCode, header};
use lrvd_bench::adapter::Generation;
use lrvd_bench::data::{self, Content};
use lrvd_bench::language::{Message, Role};
use lrvd_bench::whole_json;
use schemars::JsonSchema;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, DeserializeOwned, Deserializer, MapAccess, Visitor};

use super::encoding::decoded;
use super::model::{AnswerOptions, ClassifierCard, Input, Kind, LanguageCard};
use super::problem::{Code, Problem};

/// A request that can be answered.
pub(super) struct Asked {
    /// At least one.
    pub(super) inputs: Vec<Input>,
    /// The field of each of them, as the client wrote it.
    pub(super) fields: Vec<String>,
    pub(super) options: AnswerOptions,
    /// Whether tokens are sent as they come.
    pub(super) stream: bool,
}

/// The body of a request, which must be called JSON, without its compression.
pub(super) fn text_of(
    headers: &HeaderMap,
    body: Result<Bytes, BytesRejection>,
    most: usize,
) -> Result<Bytes, Problem> {
    let kind =
        headers.get(header::CONTENT_TYPE).map(|kind| String::from_utf8_lossy(kind.as_bytes()));
    let essence = kind.as_deref().map(|kind| kind.split(';').next().unwrap_or_default().trim());
    if !essence.is_some_and(|kind| kind.eq_ignore_ascii_case("application/json")) {
        let found = kind.map_or_else(|| "not given".to_owned(), |kind| format!("`{kind}`"));
        let message = format!("the content type is {found}, expected `application/json`");
        return Err(Problem::new(Code::UnsupportedMediaType, message));
    }
    let body = body.map_err(|rejection| match rejection.status() {
        StatusCode::PAYLOAD_TOO_LARGE => too_long(most),
        _ => {
            let message = format!("the body could not be read: {}", rejection.body_text());
            Problem::new(Code::UnreadableRequest, message)
        }
    })?;
    let decompressed = match decoded(headers, &body, most)? {
        Cow::Borrowed(_) => None,
        Cow::Owned(found) => Some(found.into()),
    };
    Ok(decompressed.unwrap_or(body))
}

/// Rejects a body that says itself that it is too long or in a transfer coding that is not read, before any of it is read.
pub(super) fn check_head(headers: &HeaderMap, most: usize) -> Result<(), Problem> {
    let length = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok());
    if length.and_then(|length| length.parse::<u64>().ok()).is_some_and(|own| own > most as u64) {
        return Err(too_long(most));
    }
    let mut codings = headers.get_all(header::TRANSFER_ENCODING).iter();
    match (codings.next(), codings.next()) {
        (None, _) => Ok(()),
        (Some(coding), None) if coding.as_bytes().eq_ignore_ascii_case(b"chunked") => Ok(()),
        _ => {
            let message = "the transfer coding is not `chunked` alone";
            Err(Problem::new(Code::UnreadableRequest, message))
        }
    }
}

fn too_long(most: usize) -> Problem {
    Problem::new(Code::BodyTooLarge, format!("the body is longer than {most} bytes"))
}

/// Reads an object.
pub(super) fn object<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    parsed(body).map(|Object(request)| request)
}

/// Reads a body of JSON.
pub(super) fn parsed<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    whole_json(serde_json::Deserializer::from_slice(body)).map_err(|error| {
        let (path, inner) = (error.path(), error.inner());
        if !inner.is_data() {
            return Problem::new(Code::MalformedJson, format!("the body is not JSON: {inner}"));
        }
        let keys: Vec<String> = path.iter().map(ToString::to_string).collect();
        let keys: Vec<&str> = keys.iter().map(|key| key.trim_matches(['[', ']'])).collect();
        let field = if keys.is_empty() { "body".to_owned() } else { path.to_string() };
        Problem { field: Some(field), ..Problem::within(Code::InvalidField, &keys, inner) }
    })
}

/// A `T` by the names of its fields; serde's own structs are read from lists as well.
#[derive(Debug)]
pub(super) struct Object<T>(pub(super) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Fields<T> {
            type Value = Object<T>;

            fn expecting(&self, formatter: &mut Formatter<'_>) -> Written {
                formatter.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Object)
            }
        }

        deserializer.deserialize_map(Fields(PhantomData))
    }
}

pub(super) fn filled(text: &str, field: impl FnOnce() -> String) -> Result<(), Problem> {
    if text.trim().is_empty() {
        return Err(Problem::at(Code::InvalidField, field(), "the text is empty"));
    }
    Ok(())
}

/// Two fields that exclude each other.
pub(super) fn clash(field: &str, other: &str) -> Problem {
    let message = format!("`{field}` beside `{other}`: expected one of them");
    Problem::at(Code::InvalidField, field, message)
}

/// What to classify: `text`, with `pair` where the model was trained on pairs and `choices` where it answers questions, or
/// several of these in `inputs`.
#[derive(serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ClassifyRequest {
    /// Of `/v1/adapters`; the first one without it.
    #[serde(default)]
    pub(super) model: Option<String>,
    /// The text, or the question.
    #[serde(default)]
    text: Option<String>,
    /// The second text of a pair, or the passage that the question is about.
    #[serde(default)]
    pair: Option<String>,
    /// The choices of the question, as many as the model has labels or fewer.
    #[serde(default)]
    choices: Option<Vec<String>>,
    /// Several of these, instead of `text`, `pair` and `choices`.
    #[serde(default)]
    #[schemars(with = "Option<Vec<Item>>")]
    inputs: Option<Vec<Object<Item>>>,
    /// Draws of the posterior that answers are averaged over; 0 answers at its mean. `/v1/model` has the default and
    /// lists those that can be asked for.
    #[serde(default)]
    draws: Option<usize>,
    /// Seed of the draws: the same seed gives the same answer.
    #[serde(default)]
    seed: Option<u64>,
}

/// One text, pair or question.
#[derive(serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Item {
    text: String,
    #[serde(default)]
    pair: Option<String>,
    #[serde(default)]
    choices: Option<Vec<String>>,
}

impl From<Item> for data::Input {
    fn from(Item { text, pair, choices }: Item) -> Self {
        // As the choices of a table.
        let trimmed = |choice: String| choice.trim().to_owned();
        let choices = choices.unwrap_or_default().into_iter().map(trimmed).collect();
        Self { pair, choices, ..Self::text(text) }
    }
}

impl ClassifyRequest {
    /// What is asked of the model of `card`.
    pub(super) fn check(self, card: &ClassifierCard) -> Result<Asked, Problem> {
        let Self { text, pair, choices, inputs, draws, seed, .. } = self;
        let listed = inputs.is_some();
        let inputs: Vec<data::Input> = match (text, inputs) {
            (Some(text), None) => vec![Item { text, pair, choices }.into()],
            (None, Some(_)) if pair.is_some() => return Err(clash("pair", "inputs")),
            (None, Some(_)) if choices.is_some() => return Err(clash("choices", "inputs")),
            (None, Some(items)) => items.into_iter().map(|Object(item)| item.into()).collect(),
            (Some(_), Some(_)) => return Err(clash("text", "inputs")),
            (None, None) => Vec::new(),
        };
        if inputs.is_empty() {
            let expected = "`text`, or `inputs` with at least one text";
            return Err(Problem::at(Code::InvalidField, "text", format!("expected {expected}")));
        }
        if inputs.len() > card.max_texts {
            let message = format!("{} texts, expected at most {}", inputs.len(), card.max_texts);
            return Err(Problem::at(Code::InvalidField, "inputs", message));
        }
        let options = card.options(draws, seed)?;
        // As the client wrote it.
        let field = |index: usize, name: &str| {
            if listed { format!("inputs[{index}].{name}") } else { name.to_owned() }
        };
        for (index, input) in inputs.iter().enumerate() {
            filled(&input.text, || field(index, "text"))?;
            if let Some(pair) = &input.pair {
                filled(pair, || field(index, "pair"))?;
            }
            let wrong =
                |code, name, message: String| Err(Problem::at(code, field(index, name), message));
            let (found, most) = (input.choices.len(), card.labels.len());
            let asks = card.kind == Kind::Choices;
            if card.pairs == Some(true) && input.pair.is_none() {
                let message = "the model was trained on pairs: expected `pair`, the second text";
                return wrong(Code::InvalidField, "pair", message.to_owned());
            }
            if card.pairs == Some(false) && input.pair.is_some() {
                let message = "the model was trained on single texts: expected no `pair`";
                return wrong(Code::InvalidField, "pair", message.to_owned());
            }
            if asks && !(2..=most).contains(&found) {
                let message = format!("{found} choices, expected 2 to {most}");
                return wrong(Code::InvalidField, "choices", message);
            }
            if !asks && found > 0 {
                let message =
                    "the model was trained on texts without choices: expected no `choices`";
                return wrong(Code::InvalidField, "choices", message.to_owned());
            }
            for (place, choice) in input.choices.iter().enumerate() {
                filled(choice, || format!("{}[{place}]", field(index, "choices")))?;
            }
        }
        let fields = (0..inputs.len()).map(|index| field(index, "text")).collect();
        let inputs = inputs.into_iter().map(Input::Text).collect();
        Ok(Asked { inputs, fields, options, stream: false })
    }
}

/// What to continue: `prompt`, or `messages` by the model's template for conversations.
#[derive(serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct GenerateRequest {
    /// Of `/v1/adapters`; the first one without it.
    #[serde(default)]
    pub(super) model: Option<String>,
    /// A text.
    #[serde(default)]
    prompt: Option<String>,
    /// A conversation, instead of `prompt`; the assistant continues it.
    #[serde(default)]
    #[schemars(with = "Option<Vec<Said>>")]
    messages: Option<Vec<Object<Said>>>,
    /// Most new tokens. `/v1/model` has the default and the most that can be asked for.
    #[serde(default)]
    max_tokens: Option<usize>,
    /// Draws of the posterior that the probabilities of every token are averaged over; 0 answers at its mean. `/v1/model`
    /// has the default and the most that can be asked for.
    #[serde(default)]
    draws: Option<usize>,
    /// Seed of the draws and of drawn tokens: the same seed gives the same answer.
    #[serde(default)]
    seed: Option<u64>,
    /// Draw tokens at this temperature, 0.001 to 1000. Without it and `top_p` the most likely token is taken.
    #[serde(default)]
    temperature: Option<f64>,
    /// Draw among the most likely tokens that together have this probability, above 0 and at most 1.
    #[serde(default)]
    top_p: Option<f64>,
    /// Whether tokens are sent as they come, as server-sent events.
    #[serde(default)]
    stream: Option<bool>,
}

/// A message.
#[derive(serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Said {
    #[schemars(with = "String", extend("enum" = ["system", "user", "assistant"]))]
    role: Role,
    content: String,
}

impl GenerateRequest {
    /// What is asked of the model of `card`, and temperature and `top_p`.
    pub(super) fn check(self, card: &LanguageCard) -> Result<(Asked, Option<(f64, f64)>), Problem> {
        let Self { prompt, messages, max_tokens, draws, seed, temperature, top_p, stream, .. } =
            self;
        let (field, content) = match (prompt, messages) {
            (Some(_), Some(_)) => return Err(clash("messages", "prompt")),
            (Some(prompt), None) => {
                filled(&prompt, || "prompt".to_owned())?;
                ("prompt", Content::Text { prompt, completion: None })
            }
            (None, Some(said)) if !said.is_empty() => {
                let message = |(index, Object(Said { role, content })): (usize, _)| {
                    filled(&content, || format!("messages[{index}].content"))?;
                    Ok(Message::new(role, content))
                };
                let messages = said.into_iter().enumerate().map(message);
                ("messages", Content::Chat(messages.collect::<Result<_, Problem>>()?))
            }
            (None, messages) => {
                let field = if messages.is_some() { "messages" } else { "prompt" };
                let expected = "`prompt`, or `messages` with at least one message";
                return Err(Problem::at(Code::InvalidField, field, format!("expected {expected}")));
            }
        };
        let sampling = Generation::sampling(temperature, top_p);
        let max_tokens = max_tokens.unwrap_or(card.tokens);
        let generation = Generation { max_tokens, sampling, ..Generation::default() };
        card.check(&generation, 1, "max_tokens")?;
        let asked = Asked {
            options: card.options(draws, seed)?,
            inputs: vec![Input::Prompt { prompt: content.into(), generation }],
            fields: vec![field.to_owned()],
            stream: stream == Some(true),
        };
        Ok((asked, sampling))
    }
}
