//! What the kinds of models differ in; the rest of the server is the same for all.

use std::fmt::{Debug, Formatter, Result as Written};
use std::marker::PhantomData;

use lrvd_bench::run::MAX_SEED;
use lrvd_bench::{Error, Kind as ErrorKind, ModelsError, Result, kind_of};
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, DeserializeOwned, Deserializer, MapAccess, Visitor};

use super::problem::Problem;
use super::routes::Limits;

/// Version of answers and of the model's description.
pub(super) const SCHEMA_VERSION: u32 = 1;

/// What a model answers with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    Classes,
    Choices,
    Scores,
    Texts,
}

/// A model as its clients know it: `/v1/model`, and what can be asked.
pub(crate) trait Card:
    Sized + Debug + Serialize + JsonSchema + Send + Sync + 'static
{
    /// Where it is asked.
    const PATH: &'static str;
    /// What it is.
    const DESCRIPTION: &'static str;
    /// What it does when it is asked.
    const SUMMARY: &'static str;

    /// The body of a request.
    type Request: DeserializeOwned + JsonSchema;
    /// One of the texts in it.
    type Input: Clone + Debug + Send;
    /// How they are answered. Requests with one key can share a pass.
    type Key: Copy + Debug + PartialEq + Send;
    /// The model's answer to one text.
    type Found: Debug + Send;
    /// The body of an answer.
    type Answers: Serialize + JsonSchema;

    /// What a request asks.
    fn check(&self, request: Self::Request) -> Result<Asked<Self>, Problem>;

    /// The body of the answer to texts with one key.
    fn answers(&self, found: Vec<Self::Found>, key: Self::Key) -> Self::Answers;

    /// How many of the answers are withheld.
    fn withheld(answers: &Self::Answers) -> usize;

    /// Draws of a key.
    fn draws(key: Self::Key) -> usize;
}

/// A model on the thread that owns it.
pub(crate) trait Model: Sized {
    type Card: Card;

    /// What clients can know of it under `limits`.
    fn card(&self, limits: &Limits) -> Result<Self::Card>;

    /// A question for the start, with the draws and the seed of requests that name none.
    fn first(&self) -> (Input<Self>, Key<Self>);

    /// Whether the answer to a text does not depend on those beside it.
    fn is_shared(&self, key: Key<Self>) -> bool;

    /// The answers to `inputs`. A model that generates tells `go_on` after every token how many there are more, and ends
    /// with an error if that says no.
    fn answer(
        &self,
        inputs: &[Input<Self>],
        key: Key<Self>,
        go_on: &mut dyn FnMut(usize) -> bool,
    ) -> Result<Vec<Found<Self>>>;
}

pub(crate) type Input<M> = <<M as Model>::Card as Card>::Input;
pub(crate) type Key<M> = <<M as Model>::Card as Card>::Key;
pub(crate) type Found<M> = <<M as Model>::Card as Card>::Found;

/// A request that can be answered.
#[derive(Debug)]
pub(crate) struct Asked<C: Card> {
    /// At least one.
    pub(super) inputs: Vec<C::Input>,
    /// The field of each of them, as the client wrote it.
    pub(super) fields: Vec<String>,
    pub(super) key: C::Key,
}

/// Reads the body of a request to `card`; nothing in it is passed over.
pub(super) fn read<C: Card>(body: &[u8], card: &C) -> Result<Asked<C>, Problem> {
    let mut json = serde_json::Deserializer::from_slice(body);
    let read = serde_path_to_error::deserialize(&mut json);
    let Object(request): Object<C::Request> = read.map_err(|error| {
        let (path, inner) = (error.path().to_string(), error.inner());
        if inner.is_data() {
            let field = if path == "." { "body".to_owned() } else { path };
            Problem::Field { field, message: inner.to_string() }
        } else {
            Problem::Json(inner.to_string())
        }
    })?;
    json.end().map_err(|error| Problem::Json(error.to_string()))?;
    card.check(request)
}

/// A `T` by the names of its fields; serde's own structs are read from lists as well.
pub(crate) struct Object<T>(pub(crate) T);

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

/// The seed of a request, `own` where it names none.
pub(super) fn seed(asked: Option<u64>, own: u64) -> Result<u64, Problem> {
    let found = asked.unwrap_or(own);
    if found > MAX_SEED {
        return Err(Problem::Seed { found, most: MAX_SEED });
    }
    Ok(found)
}

/// Rejects a blank text.
pub(super) fn filled(text: &str, field: impl FnOnce() -> String) -> Result<(), Problem> {
    if text.trim().is_empty() {
        return Err(Problem::EmptyText { field: field() });
    }
    Ok(())
}

/// What is wrong with the text, in words that name no place of this machine; `None` for an error that the text did not
/// cause.
pub(super) fn text_fault(error: &Error) -> Option<String> {
    match error.downcast_ref() {
        Some(ModelsError::Text(text)) => return Some(text.clone()),
        // Not the tokenizer's file.
        Some(ModelsError::Tokenizer { .. } | ModelsError::Argument { .. }) => {
            return Some("the tokenizer cannot encode it".to_owned());
        }
        _ => {}
    }
    match kind_of(error)? {
        ErrorKind::Input => Some(error.to_string()),
        ErrorKind::NoTemplate => {
            Some("the model has no chat template: send `prompt` instead of `messages`".to_owned())
        }
        _ => None,
    }
}

/// Two fields that exclude each other.
pub(super) fn clash(field: &str, other: &str) -> Problem {
    let message = format!("`{field}` beside `{other}`: expected one of them");
    Problem::Field { field: field.to_owned(), message }
}
