//! The body of a request to a classifier.

use lrvd_bench::data::Input;
use schemars::JsonSchema;

use super::card::ClassifierCard;
use crate::serve::problem::Problem;
use crate::serve::served::{Asked, Kind, Object, clash, filled};

/// What to classify: `text`, with `pair` where the model was trained on pairs and `choices` where it answers questions, or
/// several of these in `inputs`.
#[derive(serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Request {
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

impl From<Item> for Input {
    fn from(Item { text, pair, choices }: Item) -> Self {
        // As the choices of a table.
        let trimmed = |choice: String| choice.trim().to_owned();
        let choices = choices.unwrap_or_default().into_iter().map(trimmed).collect();
        Self { pair, choices, ..Self::text(text) }
    }
}

impl Request {
    /// What is asked of the model of `card`.
    pub(super) fn check(self, card: &ClassifierCard) -> Result<Asked<ClassifierCard>, Problem> {
        let Self { text, pair, choices, inputs, draws, seed } = self;
        let listed = inputs.is_some();
        let inputs: Vec<Input> = match (text, inputs) {
            (Some(text), None) => vec![Item { text, pair, choices }.into()],
            (None, Some(_)) if pair.is_some() => return Err(clash("pair", "inputs")),
            (None, Some(_)) if choices.is_some() => return Err(clash("choices", "inputs")),
            (None, Some(items)) => items.into_iter().map(|Object(item)| item.into()).collect(),
            (Some(_), Some(_)) => return Err(clash("text", "inputs")),
            (None, None) => Vec::new(),
        };
        if inputs.is_empty() {
            let expected = "`text`, or `inputs` with at least one text";
            return Err(Problem::NoText { field: "text", expected });
        }
        if inputs.len() > card.max_texts {
            return Err(Problem::TooManyTexts { found: inputs.len(), most: card.max_texts });
        }
        let key = card.drawn(draws, seed)?;
        // As the client wrote it.
        let field = |index: usize, name: &str| {
            if listed { format!("inputs[{index}].{name}") } else { name.to_owned() }
        };
        for (index, input) in inputs.iter().enumerate() {
            filled(&input.text, || field(index, "text"))?;
            if let Some(pair) = &input.pair {
                filled(pair, || field(index, "pair"))?;
            }
            let named = || field(index, "pair");
            match (card.pairs, &input.pair) {
                (Some(true), None) => return Err(Problem::PairMissing { field: named() }),
                (Some(false), Some(_)) => return Err(Problem::PairUnwanted { field: named() }),
                _ => {}
            }
            let (named, found) = (|| field(index, "choices"), input.choices.len());
            match card.kind {
                Kind::Choices if !(2..=card.labels.len()).contains(&found) => {
                    let most = card.labels.len();
                    return Err(Problem::Choices { field: named(), found, most });
                }
                Kind::Choices => {}
                _ if found > 0 => return Err(Problem::ChoicesUnwanted { field: named() }),
                _ => {}
            }
            for (place, choice) in input.choices.iter().enumerate() {
                filled(choice, || format!("{}[{place}]", named()))?;
            }
        }
        let fields = (0..inputs.len()).map(|index| field(index, "text")).collect();
        Ok(Asked { inputs, fields, key })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::Drawn;
    use super::*;
    use crate::serve::served::read;
    use crate::serve::testing::card;

    fn questions() -> ClassifierCard {
        ClassifierCard { kind: Kind::Choices, ..card() }
    }

    #[test]
    fn texts_pairs_questions_and_lists_are_read() {
        let read_one = |body: &str| read(body.as_bytes(), &card()).unwrap();
        let input = |text: &str| Input::text(text);
        let one = read_one(r#"{"text": "a", "draws": 0, "seed": 3}"#);
        assert_eq!((one.inputs, one.key), (vec![input("a")], Drawn { draws: 0, seed: 3 }));
        let two = read_one(r#" {"inputs": [{"text": "a"}, {"text": "b", "pair": null}]} "#);
        assert_eq!(
            (two.inputs, two.key),
            (vec![input("a"), input("b")], Drawn { draws: 2, seed: 7 })
        );
        let pairs = ClassifierCard { pairs: Some(true), ..card() };
        let pair = read(br#"{"text": "a", "pair": "b"}"#, &pairs).unwrap();
        assert_eq!(pair.inputs[0].pair.as_deref(), Some("b"));
        let asked = read(br#"{"text": "a", "choices": [" b ", "c"]}"#, &questions()).unwrap();
        assert_eq!(asked.inputs[0].choices, ["b", "c"]);
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
            (r#"{"choices": [], "inputs": []}"#, "invalid_field", Some("choices")),
            (r#"{"text": "a", "choices": ["b", "c"]}"#, "choices_unwanted", Some("choices")),
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
            let problem = read(body.as_bytes(), &card()).unwrap_err();
            assert_eq!((problem.code(), problem.field()), (code, field), "{body}: {problem}");
        }
        let pairs = ClassifierCard { pairs: Some(true), ..card() };
        let missing = read(br#"{"inputs": [{"text": "a"}]}"#, &pairs).unwrap_err();
        assert_eq!((missing.code(), missing.field()), ("pair_missing", Some("inputs[0].pair")));
        for (body, code, field) in [
            (r#"{"text": "a"}"#, "choices_out_of_range", "choices"),
            (
                r#"{"inputs": [{"text": "a", "choices": ["b"]}]}"#,
                "choices_out_of_range",
                "inputs[0].choices",
            ),
            (r#"{"text": "a", "choices": ["b", "c", "d"]}"#, "choices_out_of_range", "choices"),
            (r#"{"text": "a", "choices": ["b", " "]}"#, "empty_text", "choices[1]"),
            (r#"{"text": "a", "choices": ["b", 1]}"#, "invalid_field", "choices[1]"),
            (r#"{"text": "a", "choices": "b"}"#, "invalid_field", "choices"),
        ] {
            let problem = read(body.as_bytes(), &questions()).unwrap_err();
            assert_eq!((problem.code(), problem.field()), (code, Some(field)), "{body}: {problem}");
        }
        let draws = read(br#"{"text": "a", "draws": 3}"#, &card()).unwrap_err();
        assert_eq!(draws.to_string(), "3 draws, expected one of 0, 2");
    }
}
