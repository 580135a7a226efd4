//! `POST /v1/systemone`: typed questions about a state, as the clients of decision models send and read them.

use std::collections::BTreeMap;

use lrvd_bench::Unique;
use lrvd_bench::adapter::Decided;
use lrvd_bench::answers::{Invalid, Question, QuestionKind, QuestionOption, state};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use super::SYSTEMONE;
use super::app::Asked;
use super::body::parsed;
use super::model::{Answered, in_order};
use super::models::Models;
use super::problem::{Detail, Problem};
use super::typed::{self, Own, check_count, check_length, length, written};

/// A question, as its answer is written.
struct Plan {
    /// The client's name of it; the model does not read it.
    id: String,
    kind: QuestionKind,
    /// Of a question with levels, the levels in words.
    legend: Vec<String>,
}

/// Reads a request. Fields that are not known are passed over, as every server of this API does, but not those of a question.
pub(super) fn read(body: &[u8], models: &Models) -> Result<Asked, Problem> {
    let Unique(body) = parsed(body)?;
    let Value::Object(fields) = body else {
        return Err(Problem::invalid("body", "expected an object"));
    };
    let model = field(&fields, "model", "the model's name")?;
    let Value::String(model) = model else {
        return Err(Problem::within(&["model"], "expected a text"));
    };
    let model = models.find(Some(model), SYSTEMONE)?;
    let card = model.classifier()?;
    let given = field(&fields, "state", "a text, an object or a list")?;
    let questions = field(&fields, "questions", "an object of questions")?;
    let Value::Object(questions) = questions else {
        let message = "expected an object of questions by their names";
        return Err(Problem::within(&["questions"], message));
    };
    check_count(questions.len(), card)?;
    check_length(
        length(given, 0) + questions.values().map(|value| length(value, 0)).sum::<usize>(),
        card,
    )?;
    let draws = whole(&fields, "x_draws")?;
    let seed = whole(&fields, "x_seed")?;
    let options = card.options(draws, seed).map_err(Problem::of_own_field)?;
    let state = state(given).map_err(|error| Problem::of(&[], &error))?;
    let mut plans = Vec::new();
    let mut all = Vec::new();
    for (id, value) in questions {
        if id.is_empty() {
            let message = "a question without a name";
            return Err(Problem::within(&["questions", id], message));
        }
        let question = Question::read_as(value, type_name)
            .map_err(|error| of_question(id, value["type"].as_str(), &error))?;
        let words = |level: &QuestionOption| level.description.clone().unwrap_or_default();
        let kind = question.kind;
        let levels = question.options.iter().filter(|_| kind == QuestionKind::Score);
        plans.push(Plan { id: id.clone(), kind, legend: levels.map(words).collect() });
        all.push(question);
    }
    typed::asked(model, state, all, options, |found, name| {
        SystemoneAnswers::new(plans, found, name)
    })
}

/// The name of a type in this API.
fn type_name(kind: QuestionKind) -> &'static str {
    match kind {
        QuestionKind::YesNo => "noul",
        QuestionKind::Choice | QuestionKind::Score => kind.name(),
    }
}

/// The error in the question `id` of this type: its keys are below the type.
fn of_question(id: &str, kind: Option<&str>, wrong: &Invalid) -> Problem {
    let kind = kind.filter(|_| wrong.path.first().is_some_and(|key| key != "type"));
    let outer: Vec<&str> = ["questions", id].into_iter().chain(kind).collect();
    Problem::of(&outer, wrong)
}

fn field<'a>(
    fields: &'a Map<String, Value>,
    name: &str,
    expected: &str,
) -> Result<&'a Value, Problem> {
    fields.get(name).ok_or_else(|| {
        let message = format!("missing, expected {expected}");
        Problem { is_missing: true, ..Problem::within(&[name], message) }
    })
}

/// A field of ours, which may be left out.
fn whole<T: TryFrom<u64>>(fields: &Map<String, Value>, name: &str) -> Result<Option<T>, Problem> {
    let Some(value) = fields.get(name).filter(|value| !value.is_null()) else { return Ok(None) };
    let found = value.as_u64().and_then(|value| T::try_from(value).ok());
    let wrong = || Problem::within(&[name], format!("{value}, expected a whole number"));
    found.map(Some).ok_or_else(wrong)
}

/// Answers by the names of their questions.
#[derive(Serialize, JsonSchema)]
pub(super) struct SystemoneAnswers {
    model: String,
    answers: BTreeMap<String, SystemoneAnswer>,
    usage: SystemoneUsage,
}

#[derive(Serialize, JsonSchema)]
struct SystemoneUsage {
    /// Tokens that the model read.
    input_tokens: usize,
    output_tokens: usize,
}

#[derive(Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
enum SystemoneAnswer {
    Noul {
        /// Probability that it is true.
        noul: f64,
        #[serde(flatten)]
        own: Own,
    },
    Choice {
        /// The most probable option.
        choice: String,
        /// By option.
        #[serde(serialize_with = "in_order")]
        #[schemars(with = "BTreeMap<String, f64>")]
        probabilities: Vec<(String, f64)>,
        /// `(p_max - 1/n)/(1 - 1/n)`
        confidence: f64,
        #[serde(flatten)]
        own: Own,
    },
    Score {
        /// The expected level.
        score: f64,
        /// The levels in words.
        legend: BTreeMap<String, String>,
        /// By level.
        #[serde(serialize_with = "in_order")]
        #[schemars(with = "BTreeMap<String, f64>")]
        probabilities: Vec<(String, f64)>,
        /// `max(0, 1 - sum p_i |i - mode| / u)`, `u = sum |i - (n-1)/2| / n`
        confidence: f64,
        #[serde(flatten)]
        own: Own,
    },
    /// In place of an answer, where other questions of the request have one: the model does not answer this question.
    Error { error: Detail },
}

impl SystemoneAnswers {
    fn new(plans: Vec<Plan>, found: Answered, model: String) -> Result<Self, Problem> {
        let (answers, input_tokens) = written(
            plans.into_iter(),
            found,
            |plan, found| (plan.id, answer(found, plan.legend)),
            |Plan { id, kind, .. }, invalid| {
                let problem = of_question(&id, Some(type_name(kind)), &invalid);
                ((id, SystemoneAnswer::Error { error: problem.detail() }), problem)
            },
        )?;
        let usage = SystemoneUsage { input_tokens, output_tokens: 0 };
        Ok(Self { model, answers: answers.into_iter().collect(), usage })
    }
}

fn answer(found: Decided, legend: Vec<String>) -> SystemoneAnswer {
    let own = Own::new(&found);
    let Decided { kind, names, probabilities, choice, score, confidence, .. } = found;
    match kind {
        QuestionKind::YesNo => {
            SystemoneAnswer::Noul { noul: probabilities.first().copied().unwrap_or_default(), own }
        }
        QuestionKind::Choice => SystemoneAnswer::Choice {
            choice: names.get(choice).cloned().unwrap_or_default(),
            probabilities: names.into_iter().zip(probabilities).collect(),
            confidence,
            own,
        },
        QuestionKind::Score => SystemoneAnswer::Score {
            score: score.unwrap_or_default(),
            legend: names.iter().cloned().zip(legend).collect(),
            probabilities: names.into_iter().zip(probabilities).collect(),
            confidence,
            own,
        },
    }
}
