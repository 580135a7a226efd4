//! `POST /v1/completions` and `POST /v1/chat/completions`: requests for texts in the form of `OpenAI`.

use std::sync::Arc;

use lrvd_bench::adapter::{Generation, Prompt};
use lrvd_bench::data::Content;
use lrvd_bench::language::{Message, Role};
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::app::{Asked, Form};
use super::body::{Object, Words, clash, filled, object};
use super::completion::CompletionPlan;
use super::model::{Input, ModelAnswer};
use super::models::{Models, Served};
use super::problem::Problem;
use super::{CHAT_COMPLETIONS, COMPLETIONS};

/// New tokens of a completion that names no number, as in the API.
const NEW_TOKENS: usize = 16;
/// Most alternatives of a token.
const MOST_ALTERNATIVES: usize = 20;
/// Most texts that end a text.
const MOST_STOPS: usize = 16;

/// A text or a conversation to continue.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CompletionRequest {
    /// Of `/v1/models`; the first one without it.
    #[serde(default)]
    model: Option<String>,
    /// Of `/v1/completions`: a text, its tokens, or a list of texts or of these.
    #[serde(default)]
    prompt: Option<Prompts>,
    /// Of `/v1/completions`: the prompt is a part of the text, and its tokens of the log-probabilities.
    #[serde(default)]
    echo: Option<bool>,
    /// Of `/v1/completions`: 1.
    #[serde(default)]
    best_of: Option<usize>,
    /// Of `/v1/chat/completions`: a conversation, which the assistant continues.
    #[serde(default)]
    #[schemars(with = "Option<Vec<ChatMessage>>")]
    messages: Option<Vec<Object<ChatMessage>>>,
    /// Of `/v1/chat/completions`: another name of `max_tokens`.
    #[serde(default)]
    max_completion_tokens: Option<usize>,
    /// Of `/v1/chat/completions` with `logprobs`: the number of alternatives of each token, at most 20.
    #[serde(default)]
    top_logprobs: Option<usize>,
    /// Most new tokens. A completion has 16 without it, a conversation as many as a request may ask for.
    #[serde(default)]
    max_tokens: Option<usize>,
    /// Log-probabilities of the tokens: of `/v1/completions` the number of alternatives of each, at most 20, of
    /// `/v1/chat/completions` whether they are returned.
    #[serde(default)]
    logprobs: Option<Logprobs>,
    /// 1 without it; 0 takes the most likely token.
    #[serde(default)]
    temperature: Option<f64>,
    /// Probability of the tokens that are drawn from, above 0 and at most 1.
    #[serde(default)]
    top_p: Option<f64>,
    /// Seed of the draws and of drawn tokens; the server's without it.
    #[serde(default)]
    seed: Option<u64>,
    /// A text, or up to 16, before which a text ends.
    #[serde(default)]
    stop: Option<Stops>,
    /// True if tokens are sent as they come, as server-sent events.
    #[serde(default)]
    stream: Option<bool>,
    /// With `stream`.
    #[serde(default)]
    #[schemars(with = "Option<StreamOptions>")]
    stream_options: Option<Object<StreamOptions>>,
    /// 1.
    #[serde(default)]
    n: Option<usize>,
    /// 0.
    #[serde(default)]
    frequency_penalty: Option<f64>,
    /// 0.
    #[serde(default)]
    presence_penalty: Option<f64>,
    /// Accepted and not used.
    #[serde(default, rename = "user")]
    #[schemars(with = "Option<String>")]
    _user: IgnoredAny,
    /// Draws of the posterior that the probabilities of every token are averaged over; 0 answers at its mean.
    #[serde(default)]
    x_draws: Option<usize>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "expected a text, a list of texts, a list of tokens, or a list of lists of tokens"
)]
enum Prompts {
    Text(String),
    Texts(Vec<String>),
    Tokens(Vec<u32>),
    TokenLists(Vec<Vec<u32>>),
}

#[derive(Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected a text or a list of texts")]
enum Stops {
    One(String),
    Several(Vec<String>),
}

#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected a whole number or a boolean")]
enum Logprobs {
    Flag(bool),
    Alternatives(usize),
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct StreamOptions {
    /// True if a last event has the number of tokens.
    #[serde(default)]
    include_usage: Option<bool>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ChatMessage {
    /// `system`, `developer`, which is read as `system`, `user` or `assistant`.
    role: String,
    content: Words<TextPart>,
}

/// A part of a message.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct TextPart {
    /// `text`
    #[serde(rename = "type")]
    kind: String,
    text: String,
}

/// Reads a request for a completion.
pub(super) fn complete(body: &[u8], models: &Models) -> Result<Asked, Problem> {
    let request: CompletionRequest = object(body)?;
    let model = models.find(request.model.as_deref(), COMPLETIONS)?;
    request.asked(false, model)
}

/// Reads a request for an answer in a conversation.
pub(super) fn chat(body: &[u8], models: &Models) -> Result<Asked, Problem> {
    let request: CompletionRequest = object(body)?;
    let model = models.find(request.model.as_deref(), CHAT_COMPLETIONS)?;
    request.asked(true, model)
}

impl CompletionRequest {
    fn asked(self, is_chat: bool, model: Arc<Served>) -> Result<Asked, Problem> {
        self.check_fields(is_chat)?;
        let card = model.language()?;
        let options = card.options(self.x_draws, self.seed).map_err(|problem| {
            if problem.field.as_deref() == Some("draws") { problem.of_own_field() } else { problem }
        })?;
        let scored = self.alternatives(is_chat)?;
        let is_streamed = self.stream == Some(true);
        if self.stream_options.is_some() && !is_streamed {
            return Err(Problem::invalid("stream_options", "expected only with `stream`"));
        }
        let includes_usage =
            self.stream_options.and_then(|Object(own)| own.include_usage) == Some(true);
        let is_echoed = self.echo == Some(true);
        if is_streamed && is_echoed {
            return Err(clash("echo", "stream"));
        }
        let (length, max_tokens) = match (self.max_tokens, self.max_completion_tokens) {
            (Some(_), Some(_)) => return Err(clash("max_completion_tokens", "max_tokens")),
            (None, Some(most)) => ("max_completion_tokens", most),
            (Some(most), None) => ("max_tokens", most),
            (None, None) if is_chat => ("max_tokens", card.max_tokens),
            (None, None) => ("max_tokens", NEW_TOKENS.min(card.max_tokens)),
        };
        let sampling = match self.temperature.unwrap_or(1.0) {
            0.0 => None,
            temperature => Some((temperature, self.top_p.unwrap_or(1.0))),
        };
        let prompts = match self.messages {
            Some(messages) => vec![("messages".to_owned(), conversation(messages)?)],
            None if is_chat => {
                let expected = "expected `messages` with at least one message";
                return Err(Problem::invalid("messages", expected));
            }
            None => prompts(self.prompt)?,
        };
        if prompts.len() > card.max_texts {
            let message = format!("{} prompts, expected at most {}", prompts.len(), card.max_texts);
            return Err(Problem::invalid("prompt", message));
        }
        if is_streamed && prompts.len() > 1 {
            let message = format!("{} prompts, expected one with `stream`", prompts.len());
            return Err(Problem::invalid("prompt", message));
        }
        let generation = Generation {
            max_tokens,
            sampling,
            stop: stops(self.stop)?,
            scored,
            score_prompt: is_echoed,
        };
        card.check(&generation, usize::from(!is_echoed), length)?;
        let mut plan = CompletionPlan::new(is_chat, card.name.clone());
        plan.echo = prompts.iter().filter(|_| is_echoed).map(|(_, prompt)| given(prompt)).collect();
        plan.has_scores = scored.is_some();
        plan.includes_usage = includes_usage;
        let (fields, prompts): (Vec<_>, Vec<_>) = prompts.into_iter().unzip();
        let input = |prompt| Input::Prompt { prompt, generation: generation.clone() };
        let inputs = prompts.into_iter().map(input).collect();
        let form = if is_streamed {
            Form::Events(Box::new(plan))
        } else {
            Form::whole(move |answers| Ok(plan.respond(ModelAnswer::into_texts(answers))))
        };
        Ok(Asked { model, inputs, fields, options, form })
    }

    /// Rejects fields of the other route, and values that would change a text.
    fn check_fields(&self, is_chat: bool) -> Result<(), Problem> {
        let (foreign, own) = if is_chat {
            let foreign = [
                ("prompt", self.prompt.is_some()),
                ("echo", self.echo.is_some()),
                ("best_of", self.best_of.is_some()),
            ];
            (foreign, CHAT_COMPLETIONS)
        } else {
            let foreign = [
                ("messages", self.messages.is_some()),
                ("max_completion_tokens", self.max_completion_tokens.is_some()),
                ("top_logprobs", self.top_logprobs.is_some()),
            ];
            (foreign, COMPLETIONS)
        };
        if let Some((field, _)) = foreign.into_iter().find(|(_, is_given)| *is_given) {
            return Err(Problem::invalid(field, format!("no field of `{own}`")));
        }
        for (field, count) in [("n", self.n), ("best_of", self.best_of)] {
            if count.is_some_and(|count| count != 1) {
                return Err(Problem::invalid(field, "expected 1: a prompt has one text"));
            }
        }
        let penalties = [
            ("frequency_penalty", self.frequency_penalty),
            ("presence_penalty", self.presence_penalty),
        ];
        for (field, penalty) in penalties {
            if penalty.is_some_and(|penalty| penalty != 0.0) {
                return Err(Problem::invalid(field, "expected 0: tokens are not penalised"));
            }
        }
        Ok(())
    }

    /// The number of alternatives of each token; `None` without log-probabilities.
    fn alternatives(&self, is_chat: bool) -> Result<Option<usize>, Problem> {
        let (field, found) = match (self.logprobs, self.top_logprobs) {
            (Some(Logprobs::Alternatives(_)), _) if is_chat => {
                return Err(Problem::invalid("logprobs", "expected a boolean"));
            }
            (Some(Logprobs::Flag(_)), _) if !is_chat => {
                return Err(Problem::invalid("logprobs", "expected a whole number"));
            }
            (Some(Logprobs::Alternatives(count)), _) => ("logprobs", count),
            (Some(Logprobs::Flag(true)), count) => ("top_logprobs", count.unwrap_or(0)),
            (None | Some(Logprobs::Flag(false)), Some(_)) => {
                return Err(Problem::invalid("top_logprobs", "expected only with `logprobs`"));
            }
            (None | Some(Logprobs::Flag(false)), None) => return Ok(None),
        };
        if found > MOST_ALTERNATIVES {
            return Err(Problem::invalid(
                field,
                format!("{found}, expected 0 to {MOST_ALTERNATIVES}"),
            ));
        }
        Ok(Some(found))
    }
}

/// The prompts, each with its field.
fn prompts(prompts: Option<Prompts>) -> Result<Vec<(String, Prompt)>, Problem> {
    let text = |prompt| Prompt::Content(Content::Text { prompt, completion: None });
    let numbered = |(i, prompt)| (format!("prompt[{i}]"), prompt);
    let all: Vec<_> = match prompts {
        None => Vec::new(),
        Some(Prompts::Text(prompt)) => vec![("prompt".to_owned(), text(prompt))],
        Some(Prompts::Tokens(ids)) => vec![("prompt".to_owned(), Prompt::Tokens(ids))],
        Some(Prompts::Texts(all)) => all.into_iter().map(text).enumerate().map(numbered).collect(),
        Some(Prompts::TokenLists(all)) => {
            all.into_iter().map(Prompt::Tokens).enumerate().map(numbered).collect()
        }
    };
    if all.is_empty() {
        return Err(Problem::invalid("prompt", "expected `prompt` with at least one text"));
    }
    Ok(all)
}

/// The text of a prompt as the client wrote it; `None` of tokens.
fn given(prompt: &Prompt) -> Option<String> {
    match prompt {
        Prompt::Content(Content::Text { prompt, .. }) => Some(prompt.clone()),
        Prompt::Content(Content::Chat(_)) | Prompt::Tokens(_) => None,
    }
}

fn conversation(messages: Vec<Object<ChatMessage>>) -> Result<Prompt, Problem> {
    if messages.is_empty() {
        let expected = "expected `messages` with at least one message";
        return Err(Problem::invalid("messages", expected));
    }
    let mut all = Vec::with_capacity(messages.len());
    for (i, Object(ChatMessage { role, content })) in messages.into_iter().enumerate() {
        let role = match &*role {
            "system" | "developer" => Role::System,
            "user" => Role::User,
            "assistant" => Role::Assistant,
            other => {
                let expected = "`system`, `developer`, `user` or `assistant`";
                let message = format!("`{other}`, expected {expected}");
                return Err(Problem::invalid(format!("messages[{i}].role"), message));
            }
        };
        let field = format!("messages[{i}].content");
        let content = content.each(&field, |TextPart { kind, text }, field| match &**kind {
            "text" => Ok(text.clone()),
            other => Err(Problem::invalid(
                format!("{field}.type"),
                format!("`{other}`, expected `text`"),
            )),
        })?;
        filled(&content, || field)?;
        all.push(Message::new(role, content));
    }
    Ok(Prompt::Content(Content::Chat(all)))
}

fn stops(stop: Option<Stops>) -> Result<Vec<String>, Problem> {
    let all = match stop {
        None => Vec::new(),
        Some(Stops::One(text)) => vec![text],
        Some(Stops::Several(all)) => all,
    };
    if all.len() > MOST_STOPS {
        let message = format!("{} texts, expected at most {MOST_STOPS}", all.len());
        return Err(Problem::invalid("stop", message));
    }
    if all.iter().any(String::is_empty) {
        return Err(Problem::invalid("stop", "expected no empty text"));
    }
    Ok(all)
}
