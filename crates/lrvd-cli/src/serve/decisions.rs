//! `POST /v1/decisions`: typed questions about an input, as the clients of `OpenAI` send them.

use std::collections::HashSet;

use lrvd_bench::Unique;
use lrvd_bench::adapter::Decided;
use lrvd_bench::answers::{
    Invalid, MOST_LEVELS, MOST_OPTIONS, Question, QuestionKind, QuestionOption, SIDES, rendered,
};
use schemars::JsonSchema;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::DECISIONS;
use super::app::Asked;
use super::body::{Object, Words, filled, object};
use super::card::ClassifierCard;
use super::model::Answered;
use super::models::Models;
use super::problem::{OpenaiDetail, Problem};
use super::typed::{self, Own, check_count, check_length, length, written};

/// Typed questions about an input.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct DecisionsRequest {
    /// Of `/v1/models`, or `jev-latest`.
    model: String,
    /// A text, or messages, calls of tools and their outputs.
    input: Words<Item>,
    /// One or more.
    #[schemars(with = "Vec<Asks>")]
    questions: Vec<Object<Asks>>,
    /// Draws of the posterior that answers are averaged over; 0 answers at its mean.
    #[serde(default)]
    x_draws: Option<usize>,
    /// Seed of the draws.
    #[serde(default)]
    x_seed: Option<u64>,
    /// Accepted and not used: there is no cache between requests.
    #[serde(default, rename = "prompt_cache_key")]
    #[schemars(with = "Option<String>")]
    _cache_key: IgnoredAny,
    /// Accepted and not used.
    #[serde(default, rename = "prompt_cache_options")]
    #[schemars(with = "Option<Value>")]
    _cache_options: IgnoredAny,
    /// Accepted and not used.
    #[serde(default, rename = "safety_identifier")]
    #[schemars(with = "Option<String>")]
    _safety_identifier: IgnoredAny,
}

/// A message, a call of a tool, or its output.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Item {
    /// `message`, which may be left out, `function_call`, `function_call_output`, `custom_tool_call` or
    /// `custom_tool_call_output`.
    #[serde(default, rename = "type")]
    kind: Option<String>,
    /// Of a message: `user`, `developer`, `system` or `assistant`.
    #[serde(default)]
    role: Option<String>,
    /// Of a message.
    #[serde(default)]
    content: Option<Words<Part>>,
    /// Of a call.
    #[serde(default)]
    name: Option<String>,
    /// Of a call of a function: JSON as text.
    #[serde(default)]
    arguments: Option<String>,
    /// Of a call of another tool.
    #[serde(default)]
    input: Option<String>,
    /// Of a call, and of its output.
    #[serde(default)]
    call_id: Option<String>,
    /// Of an output.
    #[serde(default)]
    output: Option<Words<Part>>,
    /// Accepted and not used.
    #[serde(default, rename = "id")]
    #[schemars(with = "Option<String>")]
    _id: IgnoredAny,
    /// Accepted and not used.
    #[serde(default, rename = "namespace")]
    #[schemars(with = "Option<String>")]
    _namespace: IgnoredAny,
    /// Accepted and not used.
    #[serde(default, rename = "status")]
    #[schemars(with = "Option<String>")]
    _status: IgnoredAny,
    /// Accepted and not used.
    #[serde(default, rename = "phase")]
    #[schemars(with = "Option<String>")]
    _phase: IgnoredAny,
}

/// A part of a message, of an output, or of instructions.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Part {
    /// `input_text`, `output_text`, `refusal` or `input_json`; `input_image` is rejected.
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    refusal: Option<String>,
    #[serde(default)]
    #[schemars(with = "Option<Value>")]
    data: Option<Unique>,
    #[serde(default, rename = "image_url")]
    #[schemars(skip)]
    _image_url: IgnoredAny,
    #[serde(default, rename = "detail")]
    #[schemars(skip)]
    _detail: IgnoredAny,
    /// Accepted and not used.
    #[serde(default, rename = "prompt_cache_breakpoint")]
    #[schemars(with = "Option<Value>")]
    _breakpoint: IgnoredAny,
}

/// A question.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Asks {
    /// `predicate`, `choice` or `score`.
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    name: Option<String>,
    instructions: Words<Part>,
    /// Of a choice: 2 to 255.
    #[serde(default)]
    #[schemars(with = "Option<Vec<Offered>>")]
    choices: Option<Vec<Object<Offered>>>,
    /// Of a score: 2 to 10, from the lowest.
    #[serde(default)]
    #[schemars(with = "Option<Vec<Level>>")]
    levels: Option<Vec<Object<Level>>>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Offered {
    value: ChoiceValue,
    #[serde(default)]
    description: Option<String>,
}

/// A text or a boolean; `true` and `"true"` are two.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
#[serde(untagged, expecting = "expected a text or a boolean")]
enum ChoiceValue {
    Text(String),
    Flag(bool),
}

impl ChoiceValue {
    fn text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Flag(flag) => flag.to_string(),
        }
    }

    /// As JSON, in which a text has quotation marks: the model reads two options where a flag and a text have the same words.
    fn json(&self) -> String {
        match self {
            Self::Text(text) => Value::from(&**text).to_string(),
            Self::Flag(flag) => flag.to_string(),
        }
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Level {
    label: String,
    #[serde(default)]
    description: Option<String>,
}

/// A question, as its answer is written.
struct Plan {
    name: Option<String>,
    options: Options,
}

enum Options {
    Sides,
    /// In the client's order, each with its place in the question.
    Choices(Vec<(ChoiceValue, usize)>),
    Levels(Vec<String>),
}

fn missing(field: &str) -> Problem {
    Problem::invalid(field, "missing")
}

/// Reads a request.
pub(super) fn read(body: &[u8], models: &Models) -> Result<Asked, Problem> {
    let request: DecisionsRequest = object(body)?;
    let model = models.find(Some(&request.model), DECISIONS)?;
    let card = model.classifier()?;
    check_count(request.questions.len(), card)?;
    let options = card.options(request.x_draws, request.x_seed).map_err(Problem::of_own_field)?;
    let mut budget = Budget { card, used: 0 };
    let state = state(&request.input, &mut budget)?;
    filled(&state, || "input".to_owned())?;
    let mut questions = Vec::new();
    let mut plans = Vec::new();
    for (i, Object(asks)) in request.questions.into_iter().enumerate() {
        let (question, plan) = asks.check(&format!("questions[{i}]"), &mut budget)?;
        questions.push(question);
        plans.push(plan);
    }
    typed::asked(model, state, questions, options, |found, name| {
        DecisionsAnswers::new(plans, found, name)
    })
}

/// Length of the text of JSON values so far.
struct Budget<'a> {
    card: &'a ClassifierCard,
    used: usize,
}

impl Part {
    fn text(&self, field: &str, budget: &mut Budget<'_>) -> Result<String, Problem> {
        let given = |name: &str, text: &Option<String>| {
            text.clone().ok_or_else(|| missing(&format!("{field}.{name}")))
        };
        match &*self.kind {
            "input_text" | "output_text" => given("text", &self.text),
            "refusal" => given("refusal", &self.refusal),
            "input_json" => {
                let place = format!("{field}.data");
                let Unique(data) = self.data.as_ref().ok_or_else(|| missing(&place))?;
                let is_list = |items: &Vec<Value>| items.iter().all(Value::is_object);
                if !data.is_object() && !data.as_array().is_some_and(is_list) {
                    return Err(Problem::invalid(
                        &place,
                        "expected an object or a list of objects",
                    ));
                }
                budget.used += length(data, 0);
                check_length(budget.used, budget.card)?;
                Ok(rendered(data))
            }
            "input_image" => Err(Problem::invalid(
                field,
                "the model reads text: images cannot be part of a request",
            )),
            other => {
                let expected = "`input_text`, `output_text`, `refusal` or `input_json`";
                Err(Problem::invalid(
                    format!("{field}.type"),
                    format!("`{other}`, expected {expected}"),
                ))
            }
        }
    }
}

/// The text that the questions are about: that of the only message of a user as it is, else each item behind who says it.
fn state(input: &Words<Item>, budget: &mut Budget<'_>) -> Result<String, Problem> {
    let items = match input {
        Words::Text(text) => return Ok(text.clone()),
        Words::Parts(items) => items,
    };
    let mut calls = HashSet::new();
    let mut lines = Vec::new();
    for (i, item) in items.iter().enumerate() {
        lines.push(item.line(&format!("input[{i}]"), &mut calls, budget)?);
    }
    Ok(match <[_; 1]>::try_from(lines) {
        Ok([(who, said)]) if who == "user" => said,
        Ok([(who, said)]) => format!("{who}: {said}"),
        Err(lines) => {
            let lines = lines.into_iter().map(|(who, said)| format!("{who}: {said}"));
            lines.collect::<Vec<_>>().join("\n\n")
        }
    })
}

impl Item {
    /// Who says what; `calls` are those of the items before.
    fn line<'a>(
        &'a self,
        field: &str,
        calls: &mut HashSet<&'a str>,
        budget: &mut Budget<'_>,
    ) -> Result<(String, String), Problem> {
        let place = |name: &str| format!("{field}.{name}");
        let given = |name: &str, value: &'a Option<String>| {
            value.as_deref().ok_or_else(|| missing(&place(name)))
        };
        let mut said = |name: &str, words: &Option<Words<Part>>| {
            let words = words.as_ref().ok_or_else(|| missing(&place(name)))?;
            words.each(&place(name), |part, field| part.text(field, budget))
        };
        match self.kind.as_deref().unwrap_or("message") {
            "message" => {
                let role = given("role", &self.role)?;
                if !["user", "developer", "system", "assistant"].contains(&role) {
                    let expected = "`user`, `developer`, `system` or `assistant`";
                    return Err(Problem::invalid(
                        place("role"),
                        format!("`{role}`, expected {expected}"),
                    ));
                }
                Ok((role.to_owned(), said("content", &self.content)?))
            }
            kind @ ("function_call" | "custom_tool_call") => {
                calls.insert(given("call_id", &self.call_id)?);
                let name = given("name", &self.name)?;
                let given = match kind {
                    "function_call" => given("arguments", &self.arguments),
                    _ => given("input", &self.input),
                };
                Ok((format!("call of {name}"), given?.to_owned()))
            }
            "function_call_output" | "custom_tool_call_output" => {
                let call = given("call_id", &self.call_id)?;
                if !calls.contains(call) {
                    let message = format!("no call before it has the id `{call}`");
                    return Err(Problem::invalid(place("call_id"), message));
                }
                Ok(("output".to_owned(), said("output", &self.output)?))
            }
            other => {
                let expected = "`message`, `function_call`, `function_call_output`, `custom_tool_call` or \
                                `custom_tool_call_output`";
                Err(Problem::invalid(place("type"), format!("`{other}`, expected {expected}")))
            }
        }
    }
}

impl Asks {
    fn check(self, field: &str, budget: &mut Budget<'_>) -> Result<(Question, Plan), Problem> {
        let place = |name: &str| format!("{field}.{name}");
        let Self { kind, name, instructions, choices, levels } = self;
        let said = place("instructions");
        let instructions = instructions.each(&said, |part, field| part.text(field, budget))?;
        filled(&instructions, || said)?;
        let check = |name: &str, holds: bool, message: String| {
            if holds { Ok(()) } else { Err(Problem::invalid(place(name), message)) }
        };
        let unwanted = |name: &str, is_given: bool| {
            check(name, !is_given, format!("a question of type `{kind}` has none"))
        };
        let count = |name: &str, found: usize, most: usize| {
            check(name, (2..=most).contains(&found), format!("{found}, expected 2 to {most}"))
        };
        let described =
            |description: Option<String>| description.filter(|text| !text.trim().is_empty());
        let (kind, options, plan) = match &*kind {
            "predicate" => {
                unwanted("choices", choices.is_some())?;
                unwanted("levels", levels.is_some())?;
                let side = |name: &str| QuestionOption { name: name.to_owned(), description: None };
                (QuestionKind::YesNo, SIDES.map(side).to_vec(), Options::Sides)
            }
            "choice" => {
                unwanted("levels", levels.is_some())?;
                let choices = choices.ok_or_else(|| missing(&place("choices")))?;
                count("choices", choices.len(), MOST_OPTIONS)?;
                let choices: Vec<_> = choices.into_iter().map(|Object(choice)| choice).collect();
                let mut known = HashSet::new();
                for (i, choice) in choices.iter().enumerate() {
                    let place = format!("{}[{i}].value", place("choices"));
                    if !known.insert(&choice.value) {
                        return Err(Problem::invalid(&place, "the value of a choice before it"));
                    }
                    filled(&choice.value.text(), || place)?;
                }
                let is_typed = [true, false].into_iter().any(|flag| {
                    let text = ChoiceValue::Text(flag.to_string());
                    known.contains(&ChoiceValue::Flag(flag)) && known.contains(&text)
                });
                let name = |value: &ChoiceValue| if is_typed { value.json() } else { value.text() };
                // By name, as `/v1/systemone` has them: the same question has the same answer at both.
                let mut sorted: Vec<_> = choices.into_iter().enumerate().collect();
                sorted.sort_by_cached_key(|(_, choice)| name(&choice.value));
                let mut places = Vec::new();
                let option = |(at, (i, choice)): (usize, (usize, Offered))| {
                    let name = name(&choice.value);
                    places.push((i, (choice.value, at)));
                    QuestionOption { name, description: described(choice.description) }
                };
                let options = sorted.into_iter().enumerate().map(option).collect();
                places.sort_by_key(|(i, _)| *i);
                let places = places.into_iter().map(|(_, place)| place).collect();
                (QuestionKind::Choice, options, Options::Choices(places))
            }
            "score" => {
                unwanted("choices", choices.is_some())?;
                let levels = levels.ok_or_else(|| missing(&place("levels")))?;
                count("levels", levels.len(), MOST_LEVELS)?;
                let mut labels = Vec::new();
                let mut options = Vec::new();
                for (i, Object(Level { label, description })) in levels.into_iter().enumerate() {
                    filled(&label, || format!("{}[{i}].label", place("levels")))?;
                    let text = match described(description) {
                        Some(description) => format!("{label}: {description}"),
                        None => label.clone(),
                    };
                    options.push(QuestionOption { name: i.to_string(), description: Some(text) });
                    labels.push(label);
                }
                (QuestionKind::Score, options, Options::Levels(labels))
            }
            other => {
                let message = format!("`{other}`, expected `predicate`, `choice` or `score`");
                return Err(Problem::invalid(place("type"), message));
            }
        };
        Ok((Question { kind, instructions, options }, Plan { name, options: plan }))
    }
}

/// Answers in the order of the questions.
#[derive(Serialize, JsonSchema)]
pub(super) struct DecisionsAnswers {
    model: String,
    answers: Vec<DecisionsAnswer>,
    usage: DecisionsUsage,
}

#[derive(Serialize, JsonSchema)]
struct DecisionsUsage {
    /// Tokens that the model read.
    input_tokens: usize,
    input_tokens_details: InputDetails,
    output_tokens: usize,
    output_tokens_details: OutputDetails,
    total_tokens: usize,
}

#[derive(Default, Serialize, JsonSchema)]
struct InputDetails {
    cache_write_tokens: usize,
    cached_tokens: usize,
}

#[derive(Default, Serialize, JsonSchema)]
struct OutputDetails {
    reasoning_tokens: usize,
}

#[derive(Serialize, JsonSchema)]
struct DecisionsAnswer {
    /// The question's; null where it has none.
    name: Option<String>,
    #[serde(flatten)]
    found: Found,
    #[serde(flatten)]
    own: Option<Own>,
}

#[derive(Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Found {
    Predicate {
        /// That it holds.
        probability: f64,
    },
    Choice {
        /// The most probable value.
        choice: ChoiceValue,
        /// In the order of the choices.
        probabilities: Vec<ChoiceProbability>,
        /// `(p_max - 1/n)/(1 - 1/n)`
        confidence: f64,
    },
    Score {
        /// The expected level.
        score: f64,
        probabilities: Vec<LevelProbability>,
        /// `max(0, 1 - sum p_i |i - mode| / u)`, `u = sum |i - (n-1)/2| / n`
        confidence: f64,
    },
    /// In place of an answer, where other questions of the request have one: the model does not answer this question.
    Error { error: OpenaiDetail },
}

#[derive(Serialize, JsonSchema)]
struct ChoiceProbability {
    value: ChoiceValue,
    probability: f64,
}

#[derive(Serialize, JsonSchema)]
struct LevelProbability {
    /// From 0.
    value: usize,
    label: String,
    probability: f64,
}

impl DecisionsAnswers {
    fn new(plans: Vec<Plan>, found: Answered, model: String) -> Result<Self, Problem> {
        let (answers, input_tokens) = written(
            plans.into_iter().enumerate(),
            found,
            |(_, Plan { name, options }), found| {
                let own = Some(Own::new(&found));
                DecisionsAnswer { name, found: Found::new(options, &found), own }
            },
            |(i, Plan { name, options }), invalid| {
                let problem = of_question(i, &options, &invalid);
                let (_, error) = problem.openai();
                (DecisionsAnswer { name, found: Found::Error { error }, own: None }, problem)
            },
        )?;
        let usage = DecisionsUsage {
            input_tokens,
            input_tokens_details: InputDetails::default(),
            output_tokens: 0,
            output_tokens_details: OutputDetails::default(),
            total_tokens: input_tokens,
        };
        Ok(Self { model, answers, usage })
    }
}

/// The error in question `i`, in the names of this API.
fn of_question(i: usize, options: &Options, wrong: &Invalid) -> Problem {
    let key = match (wrong.path.first().map(String::as_str), options) {
        (Some("criteria"), Options::Choices(_)) => Some("choices"),
        (Some("criteria"), Options::Levels(_)) => Some("levels"),
        // A predicate has no field for its sides.
        (Some("criteria"), Options::Sides) => None,
        (key, _) => key,
    };
    let field = key.map_or_else(String::new, |key| format!(".{key}"));
    Problem::invalid(format!("questions[{i}]{field}"), &wrong.message)
}

impl Found {
    fn new(options: Options, found: &Decided) -> Self {
        let p = |at: usize| found.probabilities.get(at).copied().unwrap_or_default();
        let confidence = found.confidence;
        match options {
            Options::Sides => Self::Predicate { probability: p(0) },
            Options::Choices(places) => Self::Choice {
                choice: match places.iter().find(|(_, at)| *at == found.choice) {
                    Some((value, _)) => value.clone(),
                    None => ChoiceValue::Text(String::new()),
                },
                probabilities: places
                    .into_iter()
                    .map(|(value, at)| ChoiceProbability { value, probability: p(at) })
                    .collect(),
                confidence,
            },
            Options::Levels(labels) => Self::Score {
                score: found.score.unwrap_or_default(),
                probabilities: labels
                    .into_iter()
                    .enumerate()
                    .map(|(value, label)| LevelProbability { value, label, probability: p(value) })
                    .collect(),
                confidence,
            },
        }
    }
}
