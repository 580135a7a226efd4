//! `POST /v1/classify` and `POST /v1/generate`: requests and responses in our form.

use axum::body::Bytes;
use axum::http::StatusCode;
use lrvd_bench::adapter::{Continuation, ContinuedToken, Generation};
use lrvd_bench::data::{self, Content};
use lrvd_bench::language::{Message, Role};
use schemars::JsonSchema;
use serde::Serialize;

use super::app::{Asked, Events, Form};
use super::body::{Object, clash, filled, json, object};
use super::card::{ClassifierCard, Kind, LanguageCard};
use super::model::{AnswerOptions, Input, ModelAnswer};
use super::models::Models;
use super::problem::Problem;
use super::{CLASSIFY, GENERATE, SCHEMA_VERSION};

/// Reads a request for `/v1/classify`.
pub(super) fn classify(body: &[u8], models: &Models) -> Result<Asked, Problem> {
    let request: ClassifyRequest = object(body)?;
    let model = models.find(request.model.as_deref(), CLASSIFY)?;
    let card = model.classifier()?;
    let options = card.options(request.draws, request.seed)?;
    let is_listed = request.inputs.is_some();
    let inputs = request.inputs(card)?;
    let fields = (0..inputs.len()).map(|index| place(is_listed, index, "text")).collect();
    let inputs = inputs.into_iter().map(Input::Text).collect();
    let form = Form::whole(move |answers| {
        let schema_version = SCHEMA_VERSION;
        let body = ClassifierAnswers { schema_version, seed: options.seed, answers };
        Ok(json(StatusCode::OK, &body))
    });
    Ok(Asked { model, inputs, fields, options, form })
}

/// Reads a request for `/v1/generate`.
pub(super) fn generate(body: &[u8], models: &Models) -> Result<Asked, Problem> {
    let request: GenerateRequest = object(body)?;
    let model = models.find(request.model.as_deref(), GENERATE)?;
    let card = model.language()?;
    let options = card.options(request.draws, request.seed)?;
    let is_streamed = request.stream == Some(true);
    let generation = request.generation(card)?;
    let settings = Settings::new(options, generation.sampling);
    let (field, content) = request.content()?;
    let form = if is_streamed {
        Form::Events(Box::new(settings))
    } else {
        Form::whole(move |answers| {
            let texts = ModelAnswer::into_texts(answers);
            Ok(json(StatusCode::OK, &LanguageAnswers { settings, texts }))
        })
    };
    let inputs = vec![Input::Prompt { prompt: content.into(), generation }];
    Ok(Asked { model, inputs, fields: vec![field.to_owned()], options, form })
}

/// Field of an input, as the client wrote it.
fn place(is_listed: bool, index: usize, name: &str) -> String {
    if is_listed { format!("inputs[{index}].{name}") } else { name.to_owned() }
}

/// Texts to classify: `text`, with `pair` where the model was trained on pairs and `choices` where it answers questions, or
/// several of these in `inputs`.
#[derive(serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ClassifyRequest {
    /// Of `/v1/adapters`; the first one without it.
    #[serde(default)]
    model: Option<String>,
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

impl ClassifyRequest {
    /// Inputs for the model of `card`.
    fn inputs(self, card: &ClassifierCard) -> Result<Vec<data::Input>, Problem> {
        let Self { text, pair, choices, inputs, .. } = self;
        let is_listed = inputs.is_some();
        let inputs: Vec<data::Input> = match (text, inputs) {
            (Some(text), None) => vec![input(text, pair, choices)],
            (None, Some(_)) if pair.is_some() => return Err(clash("pair", "inputs")),
            (None, Some(_)) if choices.is_some() => return Err(clash("choices", "inputs")),
            (None, Some(items)) => {
                let item = |Object(Item { text, pair, choices })| input(text, pair, choices);
                items.into_iter().map(item).collect()
            }
            (Some(_), Some(_)) => return Err(clash("text", "inputs")),
            (None, None) => Vec::new(),
        };
        if inputs.is_empty() {
            let expected = "`text`, or `inputs` with at least one text";
            return Err(Problem::invalid("text", format!("expected {expected}")));
        }
        if inputs.len() > card.max_texts {
            let message = format!("{} texts, expected at most {}", inputs.len(), card.max_texts);
            return Err(Problem::invalid("inputs", message));
        }
        for (index, input) in inputs.iter().enumerate() {
            check(input, card, |name| place(is_listed, index, name))?;
        }
        Ok(inputs)
    }
}

fn input(text: String, pair: Option<String>, choices: Option<Vec<String>>) -> data::Input {
    // As the choices of a table.
    let choices = choices.iter().flatten().map(|choice| choice.trim().to_owned()).collect();
    data::Input { pair, choices, ..data::Input::text(text) }
}

/// Rejects an input of another form than those that the model of `card` was trained on; `place` gives the field of a part.
fn check(
    input: &data::Input,
    card: &ClassifierCard,
    place: impl Fn(&str) -> String,
) -> Result<(), Problem> {
    filled(&input.text, || place("text"))?;
    if let Some(pair) = &input.pair {
        filled(pair, || place("pair"))?;
    }
    let found = input.choices.len();
    let most = card.labels.len();
    let asks = card.kind == Kind::Choices;
    let pair = match (card.pairs, input.pair.is_some()) {
        (Some(true), false) => "the model was trained on pairs: expected `pair`, the second text",
        (Some(false), true) => "the model was trained on single texts: expected no `pair`",
        _ => "",
    };
    let (name, message) = if !pair.is_empty() {
        ("pair", pair.to_owned())
    } else if asks && !(2..=most).contains(&found) {
        ("choices", format!("{found} choices, expected 2 to {most}"))
    } else if !asks && found > 0 {
        let message = "the model was trained on texts without choices: expected no `choices`";
        ("choices", message.to_owned())
    } else {
        let mut choices = input.choices.iter().enumerate();
        return choices.try_for_each(|(index, choice)| {
            filled(choice, || format!("{}[{index}]", place("choices")))
        });
    };
    Err(Problem::invalid(place(name), message))
}

/// A text to continue: `prompt`, or `messages` by the model's template for conversations.
#[derive(serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct GenerateRequest {
    /// Of `/v1/adapters`; the first one without it.
    #[serde(default)]
    model: Option<String>,
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
    /// True if tokens are sent as they come, as server-sent events.
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
    fn generation(&self, card: &LanguageCard) -> Result<Generation, Problem> {
        let generation = Generation {
            max_tokens: self.max_tokens.unwrap_or(card.tokens),
            sampling: Generation::sampling(self.temperature, self.top_p),
            ..Generation::default()
        };
        card.check(&generation, 1, "max_tokens")?;
        Ok(generation)
    }

    /// The text or the conversation to continue, and its field.
    fn content(self) -> Result<(&'static str, Content), Problem> {
        match (self.prompt, self.messages) {
            (Some(_), Some(_)) => Err(clash("messages", "prompt")),
            (Some(prompt), None) => {
                filled(&prompt, || "prompt".to_owned())?;
                Ok(("prompt", Content::Text { prompt, completion: None }))
            }
            (None, Some(said)) if !said.is_empty() => {
                let message = |(index, Object(Said { role, content })): (usize, _)| {
                    filled(&content, || format!("messages[{index}].content"))?;
                    Ok(Message::new(role, content))
                };
                let messages: Result<_, Problem> =
                    said.into_iter().enumerate().map(message).collect();
                Ok(("messages", Content::Chat(messages?)))
            }
            (None, messages) => {
                let field = if messages.is_some() { "messages" } else { "prompt" };
                let expected = "`prompt`, or `messages` with at least one message";
                Err(Problem::invalid(field, format!("expected {expected}")))
            }
        }
    }
}

/// Answers to the texts of one request, in their order.
#[derive(Serialize, JsonSchema)]
pub(super) struct ClassifierAnswers {
    schema_version: u32,
    /// Seed of the draws.
    seed: u64,
    answers: Vec<ModelAnswer>,
}

/// The continuation of the prompt of one request.
#[derive(Serialize, JsonSchema)]
pub(super) struct LanguageAnswers {
    #[serde(flatten)]
    settings: Settings,
    /// One.
    texts: Vec<Continuation>,
}

/// The last event of a text that was sent token by token.
#[derive(Serialize, JsonSchema)]
pub(super) struct Summary {
    #[serde(flatten)]
    settings: Settings,
    text: String,
    /// Number of tokens.
    tokens: usize,
    prompt_tokens: usize,
    /// True if the model ended the text.
    stopped: bool,
    /// True if the text was cut because prompt and text fill the model's context, before the largest number of tokens.
    context_full: bool,
    /// Mean over the tokens, nats; null without a token.
    mean_log_probability: Option<f64>,
}

/// The settings that a text can be repeated with.
#[derive(Clone, Copy, Serialize, JsonSchema)]
struct Settings {
    schema_version: u32,
    /// Draws that the probabilities are averaged over; 0 at the mean of the posterior.
    draws: usize,
    /// Seed of the draws and of drawn tokens.
    seed: u64,
    /// Temperature at which tokens were drawn; null where the most likely one was taken.
    temperature: Option<f64>,
    /// Probability that tokens were drawn from; null where the most likely one was taken.
    top_p: Option<f64>,
}

impl Settings {
    fn new(AnswerOptions { draws, seed }: AnswerOptions, sampling: Option<(f64, f64)>) -> Self {
        let (temperature, top_p) = sampling.unzip();
        Self { schema_version: SCHEMA_VERSION, draws, seed, temperature, top_p }
    }
}

impl Events for Settings {
    fn start(&self) -> Option<Bytes> {
        None
    }

    fn token(&mut self, token: &ContinuedToken) -> Bytes {
        event("token", token)
    }

    fn end(&self, text: Continuation) -> Bytes {
        let summary = Summary {
            settings: *self,
            tokens: text.tokens.len(),
            prompt_tokens: text.prompt_tokens,
            stopped: text.stopped,
            context_full: text.context_full,
            mean_log_probability: text.mean_log_probability,
            text: text.text,
        };
        event("answer", &summary)
    }

    fn error(&self, problem: Problem) -> Bytes {
        event("error", &problem.event())
    }
}

/// One event; the JSON has no line ends.
fn event(name: &str, data: &impl Serialize) -> Bytes {
    let data = serde_json::to_string(data).unwrap_or_default();
    format!("event: {name}\ndata: {data}\n\n").into()
}
