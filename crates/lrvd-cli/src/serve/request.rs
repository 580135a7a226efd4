//! The body of a request.

use std::fmt::{Formatter, Result as Written};
use std::marker::PhantomData;

use lrvd_bench::classify::Input;
use schemars::JsonSchema;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};

use super::card::ModelCard;
use super::problem::Problem;
use super::queue::Key;

/// What to classify: `text`, with `pair` where the model was trained on pairs, or several of these in `inputs`.
#[derive(serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Request {
    /// The text.
    #[serde(default)]
    text: Option<String>,
    /// The second text of a pair.
    #[serde(default)]
    pair: Option<String>,
    /// Several texts or pairs, instead of `text` and `pair`.
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

/// One text or pair.
#[derive(serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Item {
    text: String,
    #[serde(default)]
    pair: Option<String>,
}

/// A `T` by the names of its fields; serde's own structs are read from lists as well.
struct Object<T>(T);

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

/// A request that can be answered.
#[derive(Debug, PartialEq)]
pub(super) struct Asked {
    pub(super) inputs: Vec<Input>,
    pub(super) key: Key,
    /// Entropy above which answers are withheld.
    pub(super) limit: Option<f64>,
    /// Whether `inputs` were given, for the names of fields.
    listed: bool,
}

impl Asked {
    /// Reads a body; nothing in it is passed over.
    ///
    /// # Errors
    ///
    /// [`Problem`] with the first field that is wrong.
    pub(super) fn read(body: &[u8], card: &ModelCard) -> Result<Self, Problem> {
        let mut json = serde_json::Deserializer::from_slice(body);
        let read = serde_path_to_error::deserialize(&mut json);
        let Object(request): Object<Request> = read.map_err(|error| {
            let (path, inner) = (error.path().to_string(), error.inner());
            if inner.is_data() {
                let field = if path == "." { "body".to_owned() } else { path };
                Problem::Field { field, message: inner.to_string() }
            } else {
                Problem::Json(inner.to_string())
            }
        })?;
        json.end().map_err(|error| Problem::Json(error.to_string()))?;
        Self::check(request, card)
    }

    fn check(request: Request, card: &ModelCard) -> Result<Self, Problem> {
        let Request { text, pair, inputs, draws, seed } = request;
        let listed = inputs.is_some();
        let inputs: Vec<Input> = match (text, inputs) {
            (Some(text), None) => vec![Input { text, pair, choices: Vec::new() }],
            (None, Some(_)) if pair.is_some() => return Err(clash("pair")),
            (None, Some(items)) => items
                .into_iter()
                .map(|Object(Item { text, pair })| Input { text, pair, choices: Vec::new() })
                .collect(),
            (Some(_), Some(_)) => return Err(clash("text")),
            (None, None) => Vec::new(),
        };
        if inputs.is_empty() {
            return Err(Problem::NoText);
        }
        if inputs.len() > card.max_texts {
            return Err(Problem::TooManyTexts { found: inputs.len(), most: card.max_texts });
        }
        let (key, limit) = card.key(draws, seed)?;
        let asked = Self { inputs, key, limit, listed };
        for (index, input) in asked.inputs.iter().enumerate() {
            let named = |name| asked.field(index, name);
            if input.text.trim().is_empty() {
                return Err(Problem::EmptyText { field: named("text") });
            }
            if input.pair.as_ref().is_some_and(|pair| pair.trim().is_empty()) {
                return Err(Problem::EmptyText { field: named("pair") });
            }
            match (card.pairs, &input.pair) {
                (Some(true), None) => return Err(Problem::PairMissing { field: named("pair") }),
                (Some(false), Some(_)) => {
                    return Err(Problem::PairUnwanted { field: named("pair") });
                }
                _ => {}
            }
        }
        Ok(asked)
    }

    /// The name of a field of one input, as the client wrote it.
    pub(super) fn field(&self, index: usize, name: &str) -> String {
        if self.listed { format!("inputs[{index}].{name}") } else { name.to_owned() }
    }
}

fn clash(field: &str) -> Problem {
    let message = format!("`{field}` beside `inputs`: wanted one of them");
    Problem::Field { field: field.to_owned(), message }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::serve::testing::card;

    #[test]
    fn texts_pairs_and_lists_are_read() {
        let read = |body: &str| Asked::read(body.as_bytes(), &card()).unwrap();
        let input = |text: &str| Input { text: text.to_owned(), pair: None, choices: Vec::new() };
        let one = read(r#"{"text": "a", "draws": 0, "seed": 3}"#);
        assert_eq!((one.inputs, one.key), (vec![input("a")], Key { draws: 0, seed: 3 }));
        let two = read(r#" {"inputs": [{"text": "a"}, {"text": "b", "pair": null}]} "#);
        assert_eq!(
            (two.inputs, two.key),
            (vec![input("a"), input("b")], Key { draws: 2, seed: 7 })
        );
        let pairs = ModelCard { pairs: Some(true), ..card() };
        let pair = Asked::read(br#"{"text": "a", "pair": "b"}"#, &pairs).unwrap();
        assert_eq!(pair.inputs[0].pair.as_deref(), Some("b"));
    }

    #[test]
    fn what_is_wrong_is_named_by_code_and_field() {
        for (body, code, field) in [
            ("", "malformed_json", None),
            (r#"{"text": "a""#, "malformed_json", None),
            (r#"{"text": "a"} x"#, "malformed_json", None),
            ("{\"text\": \"\u{7f}\\ud800\"}", "malformed_json", None),
            (r#"["a"]"#, "invalid_field", Some("body")),
            (r#""a""#, "invalid_field", Some("body")),
            (r#"{"inputs": [["a"]]}"#, "invalid_field", Some("inputs[0]")),
            (r#"{"txt": "a"}"#, "invalid_field", Some("txt")),
            (r#"{"text": 3}"#, "invalid_field", Some("text")),
            (r#"{"text": "a", "text": "b"}"#, "invalid_field", Some("body")),
            (r#"{"text": "a", "draws": -1}"#, "invalid_field", Some("draws")),
            (r#"{"text": "a", "draws": 1.5}"#, "invalid_field", Some("draws")),
            (r#"{"text": "a", "draws": 3}"#, "draws_out_of_range", Some("draws")),
            (r#"{"text": "a", "seed": "x"}"#, "invalid_field", Some("seed")),
            (r#"{"text": "a", "seed": 1099511627776}"#, "seed_out_of_range", Some("seed")),
            ("{}", "no_text", Some("text")),
            (r#"{"inputs": []}"#, "no_text", Some("text")),
            (r#"{"text": " "}"#, "empty_text", Some("text")),
            (r#"{"text": "a", "pair": "b"}"#, "pair_unwanted", Some("pair")),
            (r#"{"text": "a", "inputs": []}"#, "invalid_field", Some("text")),
            (r#"{"pair": "a", "inputs": []}"#, "invalid_field", Some("pair")),
            (
                r#"{"inputs": [{"text": "a"}, {"text": 1}]}"#,
                "invalid_field",
                Some("inputs[1].text"),
            ),
            (r#"{"inputs": [{"text": "a", "id": 1}]}"#, "invalid_field", Some("inputs[0].id")),
            (r#"{"inputs": [{"pair": "a"}]}"#, "invalid_field", Some("inputs[0]")),
            (
                r#"{"inputs": [{"text": "a"}, {"text": "\n"}]}"#,
                "empty_text",
                Some("inputs[1].text"),
            ),
            (
                r#"{"inputs": [{"text": "a"}, {"text": "b"}, {"text": "c"}]}"#,
                "too_many_texts",
                Some("inputs"),
            ),
        ] {
            let problem = Asked::read(body.as_bytes(), &card()).unwrap_err();
            assert_eq!((problem.code(), problem.field()), (code, field), "{body}: {problem}");
        }
        let pairs = ModelCard { pairs: Some(true), ..card() };
        let missing = Asked::read(br#"{"inputs": [{"text": "a"}]}"#, &pairs).unwrap_err();
        assert_eq!((missing.code(), missing.field()), ("pair_missing", Some("inputs[0].pair")));
        let draws = Asked::read(br#"{"text": "a", "draws": 3}"#, &card()).unwrap_err();
        assert_eq!(draws.to_string(), "3 draws, wanted one of 0, 2");
    }
}
