//! Responses of `/v1/completions` and `/v1/chat/completions`, whole or as events.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use axum::body::Bytes;
use axum::http::StatusCode;
use axum::response::Response;
use lrvd_bench::adapter::{Continuation, ContinuedToken, ScoredToken};
use schemars::JsonSchema;
use serde::Serialize;

use super::app::Events;
use super::body::json;
use super::problem::{OpenaiError, Problem};

/// Completions so far: part of their ids.
static COUNT: AtomicU64 = AtomicU64::new(0);

/// The parts of a request that are written into its response.
#[derive(Debug)]
pub(super) struct CompletionPlan {
    is_chat: bool,
    id: String,
    created: u64,
    /// Name of the model.
    model: String,
    /// The prompts that come before the texts, `None` of tokens; empty without `echo`.
    pub(super) echo: Vec<Option<String>>,
    /// True if tokens have log-probabilities.
    pub(super) has_scores: bool,
    /// True if a stream ends with the number of tokens.
    pub(super) includes_usage: bool,
    /// Text of the tokens that were sent.
    sent: String,
}

/// Texts behind prompts, or an answer in a conversation.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "CompletionWith{C}")]
pub(super) struct Completion<C> {
    /// A name of the response.
    id: String,
    /// `text_completion`, `chat.completion` or `chat.completion.chunk`
    object: &'static str,
    /// Seconds since 1970.
    created: u64,
    /// The model's name.
    model: String,
    choices: Vec<C>,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Usage>,
}

#[expect(clippy::struct_field_names, reason = "the names on the wire")]
#[derive(Clone, Copy, Serialize, JsonSchema)]
struct Usage {
    prompt_tokens: usize,
    completion_tokens: usize,
    total_tokens: usize,
}

#[derive(Clone, Copy, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum FinishReason {
    /// The model ended the text, or a text of `stop` did.
    Stop,
    /// The text has the most tokens, or fills the model's context.
    Length,
}

/// The text behind a prompt.
#[derive(Serialize, JsonSchema)]
pub(super) struct TextChoice {
    /// Of the prompt.
    index: usize,
    text: String,
    logprobs: Option<TextLogprobs>,
    finish_reason: Option<FinishReason>,
}

/// Log-probabilities, a value for each token. With the token by which the model ended the text.
#[derive(Default, Serialize, JsonSchema)]
struct TextLogprobs {
    tokens: Vec<String>,
    /// Null of the first token of a prompt.
    token_logprobs: Vec<Option<f64>>,
    /// Of the token and its alternatives, by their names.
    top_logprobs: Vec<Option<BTreeMap<String, f64>>>,
    /// Characters of the text before the token.
    text_offset: Vec<usize>,
}

/// The answer in a conversation.
#[derive(Serialize, JsonSchema)]
pub(super) struct ChatChoice {
    index: usize,
    message: ChatAnswer,
    logprobs: Option<ChatLogprobs>,
    finish_reason: FinishReason,
}

#[derive(Serialize, JsonSchema)]
struct ChatAnswer {
    /// `assistant`
    role: &'static str,
    content: String,
}

/// A part of an answer.
#[derive(Serialize)]
struct ChatDelta {
    index: usize,
    delta: Delta,
    logprobs: Option<ChatLogprobs>,
    finish_reason: Option<FinishReason>,
}

#[derive(Default, Serialize)]
struct Delta {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<String>,
}

#[derive(Serialize, JsonSchema)]
struct ChatLogprobs {
    content: Vec<ChatToken>,
}

#[derive(Serialize, JsonSchema)]
struct ChatToken {
    #[serde(flatten)]
    own: TokenLogprob,
    top_logprobs: Vec<TokenLogprob>,
}

#[derive(Serialize, JsonSchema)]
struct TokenLogprob {
    token: String,
    logprob: f64,
}

/// The logarithm; that of the smallest normal number for 0, whose own is no number of JSON.
fn logarithm(probability: f64) -> f64 {
    probability.max(f64::MIN_POSITIVE).ln()
}

impl TextLogprobs {
    /// Log-probabilities of tokens, of which the first comes `offset` characters behind the start of the text.
    fn new<'a>(tokens: impl IntoIterator<Item = &'a ScoredToken>, mut offset: usize) -> Self {
        let mut all = Self::default();
        for ScoredToken { text, name, probability, top } in tokens {
            let own = probability.map(logarithm);
            all.top_logprobs.push(own.map(|own| {
                let mut named = BTreeMap::new();
                let alternatives = top.iter().map(|(name, p)| (name, logarithm(*p)));
                for (name, value) in alternatives.chain([(name, own)]) {
                    // Of two tokens with one name the more probable one.
                    named.entry(name.clone()).or_insert(value);
                }
                named
            }));
            all.token_logprobs.push(own);
            all.tokens.push(name.clone());
            all.text_offset.push(offset);
            offset += text.chars().count();
        }
        all
    }
}

impl ChatLogprobs {
    fn new<'a>(tokens: impl IntoIterator<Item = &'a ScoredToken>) -> Self {
        let named =
            |name: &String, p: f64| TokenLogprob { token: name.clone(), logprob: logarithm(p) };
        let token = |ScoredToken { name, probability, top, .. }: &ScoredToken| {
            let own = named(name, (*probability)?);
            let top_logprobs = top.iter().map(|(name, p)| named(name, *p)).collect();
            Some(ChatToken { own, top_logprobs })
        };
        Self { content: tokens.into_iter().filter_map(token).collect() }
    }
}

impl Usage {
    fn new(texts: &[Continuation]) -> Self {
        let prompt_tokens = texts.iter().map(|text| text.prompt_tokens).sum();
        let completion_tokens = texts.iter().map(|text| text.tokens.len()).sum();
        let total_tokens = prompt_tokens + completion_tokens;
        Self { prompt_tokens, completion_tokens, total_tokens }
    }
}

impl FinishReason {
    fn new(text: &Continuation) -> Self {
        if text.stopped { Self::Stop } else { Self::Length }
    }
}

fn scored(text: &Continuation) -> impl Iterator<Item = &ScoredToken> {
    text.tokens.iter().filter_map(|token| token.scored.as_ref())
}

impl CompletionPlan {
    /// The plan of a response of the model `model` without prompts, log-probabilities and usage in a stream.
    pub(super) fn new(is_chat: bool, model: String) -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let prefix = if is_chat { "chatcmpl" } else { "cmpl" };
        Self {
            is_chat,
            id: format!("{prefix}-{:x}-{number:x}", since.as_nanos()),
            created: since.as_secs(),
            model,
            echo: Vec::new(),
            has_scores: false,
            includes_usage: false,
            sent: String::new(),
        }
    }

    fn completion<C>(
        &self,
        object: &'static str,
        choices: Vec<C>,
        usage: Option<Usage>,
    ) -> Completion<C> {
        Completion {
            id: self.id.clone(),
            object,
            created: self.created,
            model: self.model.clone(),
            choices,
            usage,
        }
    }

    /// The response with whole texts, one for each prompt.
    pub(super) fn respond(&self, texts: Vec<Continuation>) -> Response {
        let usage = Some(Usage::new(&texts));
        let texts = texts.into_iter().enumerate();
        if self.is_chat {
            let choices = texts.map(|(index, text)| ChatChoice {
                index,
                logprobs: self.has_scores.then(|| ChatLogprobs::new(scored(&text))),
                finish_reason: FinishReason::new(&text),
                message: ChatAnswer { role: "assistant", content: text.text },
            });
            let choices = choices.collect();
            return json(StatusCode::OK, &self.completion("chat.completion", choices, usage));
        }
        let choices = texts.map(|(index, text)| {
            let tokens = text.prompt.iter().chain(scored(&text)).chain(&text.end);
            let echoed = match self.echo.get(index) {
                Some(Some(prompt)) => prompt.clone(),
                Some(None) => text.prompt.iter().map(|token| &*token.text).collect(),
                None => String::new(),
            };
            TextChoice {
                index,
                logprobs: self.has_scores.then(|| TextLogprobs::new(tokens, 0)),
                finish_reason: Some(FinishReason::new(&text)),
                text: echoed + &text.text,
            }
        });
        let choices = choices.collect();
        json(StatusCode::OK, &self.completion("text_completion", choices, usage))
    }

    /// Event with a part of the text, whose `tokens` come `sent` characters behind its start.
    fn event(
        &self,
        text: String,
        tokens: &[ScoredToken],
        sent: usize,
        finish_reason: Option<FinishReason>,
    ) -> Bytes {
        if self.is_chat {
            let delta = Delta { role: None, content: (!text.is_empty()).then_some(text) };
            let logprobs =
                (self.has_scores && !tokens.is_empty()).then(|| ChatLogprobs::new(tokens));
            return self.chat_event(delta, logprobs, finish_reason);
        }
        let logprobs =
            (self.has_scores && !tokens.is_empty()).then(|| TextLogprobs::new(tokens, sent));
        let choice = TextChoice { index: 0, text, logprobs, finish_reason };
        data(&self.completion("text_completion", vec![choice], None))
    }

    fn chat_event(
        &self,
        delta: Delta,
        logprobs: Option<ChatLogprobs>,
        finish_reason: Option<FinishReason>,
    ) -> Bytes {
        let choice = ChatDelta { index: 0, delta, logprobs, finish_reason };
        data(&self.completion("chat.completion.chunk", vec![choice], None))
    }
}

impl Events for CompletionPlan {
    fn start(&self) -> Option<Bytes> {
        let delta = Delta { role: Some("assistant"), content: Some(String::new()) };
        self.is_chat.then(|| self.chat_event(delta, None, None))
    }

    fn token(&mut self, token: &ContinuedToken) -> Bytes {
        let sent = self.sent.chars().count();
        self.sent.push_str(&token.text);
        self.event(token.text.clone(), token.scored.as_slice(), sent, None)
    }

    fn end(&self, text: Continuation) -> Bytes {
        let usage = Usage::new(std::slice::from_ref(&text));
        let rest = text.text.strip_prefix(&*self.sent).unwrap_or_default().to_owned();
        let reason = FinishReason::new(&text);
        let sent = self.sent.chars().count();
        let end = if self.is_chat { &[] } else { text.end.as_slice() };
        let mut events = self.event(rest, end, sent, Some(reason)).to_vec();
        if self.includes_usage {
            let object = if self.is_chat { "chat.completion.chunk" } else { "text_completion" };
            let body = self.completion::<TextChoice>(object, Vec::new(), Some(usage));
            events.extend_from_slice(&data(&body));
        }
        events.extend_from_slice(b"data: [DONE]\n\n");
        events.into()
    }

    fn error(&self, problem: Problem) -> Bytes {
        let (_, error) = problem.openai();
        data(&OpenaiError { error })
    }
}

/// An event without a name; the JSON has no line ends.
fn data(body: &impl Serialize) -> Bytes {
    format!("data: {}\n\n", serde_json::to_string(body).unwrap_or_default()).into()
}
