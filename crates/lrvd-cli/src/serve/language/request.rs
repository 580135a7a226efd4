//! The body of a request to a language model.

use lrvd_bench::adapter::Generation;
use lrvd_bench::data::Content;
use lrvd_bench::language::{Message, Role};
use schemars::JsonSchema;

use super::card::LanguageCard;
use crate::serve::problem::Problem;
use crate::serve::served::{Asked, Object, clash, filled, seed};

/// What to continue: `prompt`, or `messages` by the model's template for conversations.
#[derive(serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Request {
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
}

/// A message.
#[derive(serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Said {
    #[schemars(with = "String", extend("enum" = ["system", "user", "assistant"]))]
    role: Role,
    content: String,
}

impl Request {
    /// What is asked of the model of `card`.
    pub(super) fn check(self, card: &LanguageCard) -> Result<Asked<LanguageCard>, Problem> {
        let Self { prompt, messages, max_tokens, draws, seed: asked, temperature, top_p } = self;
        let (field, content) = match (prompt, messages) {
            (Some(_), Some(_)) => return Err(clash("messages", "prompt")),
            (Some(prompt), None) => {
                filled(&prompt, || "prompt".to_owned())?;
                ("prompt", Content::Text { prompt, completion: None })
            }
            (None, Some(said)) if !said.is_empty() => {
                let message = |(index, Object(Said { role, content })): (usize, _)| {
                    filled(&content, || format!("messages[{index}].content"))?;
                    Ok(Message { role, content })
                };
                let messages = said.into_iter().enumerate().map(message);
                ("messages", Content::Chat(messages.collect::<Result<_, Problem>>()?))
            }
            (None, messages) => {
                let field = if messages.is_some() { "messages" } else { "prompt" };
                let expected = "`prompt`, or `messages` with at least one message";
                return Err(Problem::NoText { field, expected });
            }
        };
        let max_tokens = max_tokens.unwrap_or(card.tokens);
        if !(1..=card.max_tokens).contains(&max_tokens) {
            return Err(Problem::Tokens { found: max_tokens, most: card.max_tokens });
        }
        let draws = draws.unwrap_or(card.draws);
        if draws > card.max_draws {
            let expected = if card.max_draws == 0 {
                "0: the model has no posterior, or the server allows no draws".to_owned()
            } else {
                format!("0 to {}", card.max_draws)
            };
            return Err(Problem::Draws { found: draws, expected });
        }
        let sampling = Generation::sampling(temperature, top_p);
        let key = Generation { max_tokens, draws, seed: seed(asked, card.seed)?, sampling };
        key.check().map_err(|error| {
            let field = match &error {
                lrvd_burn::core::Error::OutOfRange { name, .. } => *name,
                _ => "body",
            };
            Problem::Field { field: field.to_owned(), message: error.to_string() }
        })?;
        Ok(Asked { inputs: vec![content], fields: vec![field.to_owned()], key })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::serve::served::read;
    use crate::serve::testing::language_card;

    #[test]
    fn prompts_and_conversations_are_read_with_their_settings() {
        let read = |body: &str| read(body.as_bytes(), &language_card()).unwrap();
        let plain = read(r#"{"prompt": " Once "}"#);
        let content = Content::Text { prompt: " Once ".to_owned(), completion: None };
        assert_eq!((plain.inputs, plain.fields), (vec![content], vec!["prompt".to_owned()]));
        let own = Generation { max_tokens: 9, draws: 2, seed: 7, sampling: None };
        assert_eq!(plain.key, own);
        let all = read(
            r#"{"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}],
                "max_tokens": 20, "draws": 0, "seed": 3, "temperature": 0.5, "top_p": 0.9}"#,
        );
        let message = |role, content: &str| Message { role, content: content.to_owned() };
        let said = vec![message(Role::System, "Be brief."), message(Role::User, "Hi")];
        assert_eq!(
            (all.inputs, all.fields),
            (vec![Content::Chat(said)], vec!["messages".to_owned()])
        );
        let sampling = Some((0.5, 0.9));
        assert_eq!(all.key, Generation { max_tokens: 20, draws: 0, seed: 3, sampling });
        let hot = read(r#"{"prompt": "a", "temperature": 2, "draws": null}"#);
        assert_eq!(hot.key, Generation { sampling: Some((2.0, 1.0)), ..own });
    }

    #[test]
    fn what_is_wrong_is_named_by_code_and_field() {
        for (body, code, field) in [
            ("", "malformed_json", None),
            (r#"{"prompt": "a", "temperature": 1e999}"#, "malformed_json", None),
            (r#"["a"]"#, "invalid_field", Some("body")),
            (r#"{"text": "a"}"#, "invalid_field", Some("text")),
            (r#"{"prompt": "a", "stream": true}"#, "invalid_field", Some("stream")),
            (r#"{"prompt": "a", "prompt": "b"}"#, "invalid_field", Some("body")),
            (r#"{"prompt": ["a"]}"#, "invalid_field", Some("prompt")),
            ("{}", "no_text", Some("prompt")),
            (r#"{"messages": []}"#, "no_text", Some("messages")),
            (r#"{"prompt": " \n"}"#, "empty_text", Some("prompt")),
            (r#"{"prompt": "a", "messages": []}"#, "invalid_field", Some("messages")),
            (r#"{"messages": "a"}"#, "invalid_field", Some("messages")),
            (r#"{"messages": [["user", "a"]]}"#, "invalid_field", Some("messages[0]")),
            (r#"{"messages": [{"role": "user"}]}"#, "invalid_field", Some("messages[0]")),
            (
                r#"{"messages": [{"role": "narrator", "content": "a"}]}"#,
                "invalid_field",
                Some("messages[0].role"),
            ),
            (
                r#"{"messages": [{"role": "user", "content": 1}]}"#,
                "invalid_field",
                Some("messages[0].content"),
            ),
            (
                r#"{"messages": [{"role": "user", "content": "a", "name": "b"}]}"#,
                "invalid_field",
                Some("messages[0].name"),
            ),
            (
                r#"{"messages": [{"role": "user", "content": "a"}, {"role": "user", "content": " "}]}"#,
                "empty_text",
                Some("messages[1].content"),
            ),
            (r#"{"prompt": "a", "max_tokens": 21}"#, "max_tokens_out_of_range", Some("max_tokens")),
            (r#"{"prompt": "a", "max_tokens": 0}"#, "max_tokens_out_of_range", Some("max_tokens")),
            (r#"{"prompt": "a", "max_tokens": -1}"#, "invalid_field", Some("max_tokens")),
            (r#"{"prompt": "a", "max_tokens": "9"}"#, "invalid_field", Some("max_tokens")),
            (r#"{"prompt": "a", "draws": 3}"#, "draws_out_of_range", Some("draws")),
            (r#"{"prompt": "a", "draws": -1}"#, "invalid_field", Some("draws")),
            (r#"{"prompt": "a", "draws": 1.5}"#, "invalid_field", Some("draws")),
            (r#"{"prompt": "a", "seed": -1}"#, "invalid_field", Some("seed")),
            (r#"{"prompt": "a", "seed": 1099511627776}"#, "seed_out_of_range", Some("seed")),
            (r#"{"prompt": "a", "temperature": 0}"#, "invalid_field", Some("temperature")),
            (r#"{"prompt": "a", "temperature": "hot"}"#, "invalid_field", Some("temperature")),
            (r#"{"prompt": "a", "temperature": 1001}"#, "invalid_field", Some("temperature")),
            (r#"{"prompt": "a", "top_p": 0}"#, "invalid_field", Some("top_p")),
            (r#"{"prompt": "a", "top_p": -0.5}"#, "invalid_field", Some("top_p")),
            (r#"{"prompt": "a", "top_p": 1.5}"#, "invalid_field", Some("top_p")),
            (r#"{"prompt": "a", "top_p": true}"#, "invalid_field", Some("top_p")),
        ] {
            let problem = read(body.as_bytes(), &language_card()).unwrap_err();
            assert_eq!((problem.code(), problem.field()), (code, field), "{body}: {problem}");
        }
        let bare = LanguageCard { draws: 0, max_draws: 0, ..language_card() };
        let drawn = read(br#"{"prompt": "a", "draws": 1}"#, &bare).unwrap_err();
        assert!(drawn.to_string().starts_with("1 draws, expected 0: the model has no posterior"));
    }
}
