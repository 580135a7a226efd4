//! `POST /v1/systemone`: typed questions about a state, and `GET /v1/models`, as the clients of decision models send and read them.

use std::collections::BTreeMap;
use std::sync::Arc;

use lrvd_bench::Unique;
use lrvd_bench::adapter::Decided;
use lrvd_bench::answers::{Invalid, Question, QuestionKind, state};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use super::SYSTEMONE;
use super::answer::in_order;
use super::model::ClassifierCard;
use super::models::{Models, Served};
use super::problem::{Code, Detail, Problem};
use super::request::{Asked, parsed};
use super::typed::{self, Answered, Own, check_count, check_length, length, written};

/// What the answers are written with.
#[derive(Debug)]
pub(super) struct Plan {
    /// The client's names of the questions; the model does not read them.
    ids: Vec<String>,
    kinds: Vec<QuestionKind>,
    /// Of each question with levels, the levels in words.
    legends: Vec<Vec<String>>,
}

/// Reads a request. Fields that are not known are passed over, as every server of this API does, but not those of a question.
pub(super) fn read(body: &[u8], models: &Models) -> Result<(Arc<Served>, Asked, Plan), Problem> {
    let Unique(body) = parsed(body)?;
    let Value::Object(fields) = body else {
        return Err(Problem::at(Code::InvalidField, "body", "expected an object"));
    };
    let model = field(&fields, "model", "the model's name")?;
    let Value::String(model) = model else {
        return Err(Problem::within(Code::InvalidField, &["model"], "expected a text"));
    };
    let model = models.find(Some(model), SYSTEMONE)?;
    let card = model.classifier()?;
    let given = field(&fields, "state", "a text, an object or a list")?;
    let questions = field(&fields, "questions", "an object of questions")?;
    let Value::Object(questions) = questions else {
        let message = "expected an object of questions by their names";
        return Err(Problem::within(Code::InvalidField, &["questions"], message));
    };
    check_count(questions.len(), card)?;
    check_length(
        length(given, 0) + questions.values().map(|value| length(value, 0)).sum::<usize>(),
        card,
    )?;
    let (draws, seed) = (whole(&fields, "x_draws")?, whole(&fields, "x_seed")?);
    let options = card.options(draws, seed).map_err(Problem::of_own_field)?;
    let state = state(given).map_err(|error| Problem::invalid(&[], &error))?;
    let mut plan = Plan { ids: Vec::new(), kinds: Vec::new(), legends: Vec::new() };
    let mut all = Vec::new();
    for (id, value) in questions {
        if id.is_empty() {
            let message = "a question without a name";
            return Err(Problem::within(Code::InvalidField, &["questions", id], message));
        }
        let question = Question::read_as(value, type_name)
            .map_err(|error| of_question(id, value["type"].as_str(), &error))?;
        let levels = question.options.iter().filter(|_| question.kind == QuestionKind::Score);
        plan.legends
            .push(levels.map(|level| level.description.clone().unwrap_or_default()).collect());
        plan.ids.push(id.clone());
        plan.kinds.push(question.kind);
        all.push(question);
    }
    let asked = typed::asked(state, all, options, card)?;
    Ok((model, asked, plan))
}

/// The name of a type in this API.
fn type_name(kind: QuestionKind) -> &'static str {
    match kind {
        QuestionKind::YesNo => "noul",
        QuestionKind::Choice | QuestionKind::Score => kind.name(),
    }
}

/// What is wrong with the question `id` of this type: its keys are below the type.
fn of_question(id: &str, kind: Option<&str>, wrong: &Invalid) -> Problem {
    let kind = kind.filter(|_| wrong.path.first().is_some_and(|key| key != "type"));
    let outer: Vec<&str> = ["questions", id].into_iter().chain(kind).collect();
    Problem::invalid(&outer, wrong)
}

fn field<'a>(
    fields: &'a Map<String, Value>,
    name: &str,
    expected: &str,
) -> Result<&'a Value, Problem> {
    let missing =
        || Problem::within(Code::MissingField, &[name], format!("missing, expected {expected}"));
    fields.get(name).ok_or_else(missing)
}

/// A field of ours, which may be left out.
fn whole<T: TryFrom<u64>>(fields: &Map<String, Value>, name: &str) -> Result<Option<T>, Problem> {
    let Some(value) = fields.get(name).filter(|value| !value.is_null()) else { return Ok(None) };
    let found = value.as_u64().and_then(|value| T::try_from(value).ok());
    let wrong = || {
        Problem::within(Code::InvalidField, &[name], format!("{value}, expected a whole number"))
    };
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
    pub(super) fn new(plan: Plan, found: Answered, card: &ClassifierCard) -> Result<Self, Problem> {
        let plans = plan.ids.into_iter().zip(plan.kinds).zip(plan.legends);
        let (answers, input_tokens) = written(
            plans,
            found,
            |((id, _), legend), found| (id, answer(found, legend)),
            |((id, kind), _), invalid| {
                let problem = of_question(&id, Some(type_name(kind)), &invalid);
                ((id, SystemoneAnswer::Error { error: problem.detail() }), problem)
            },
        )?;
        Ok(Self {
            model: card.name.clone(),
            answers: answers.into_iter().collect(),
            usage: SystemoneUsage { input_tokens, output_tokens: 0 },
        })
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

/// `/v1/models`, for the clients of decision models and for those of `OpenAI`.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Models")]
pub(super) struct ModelList {
    models: Vec<ModelLine>,
    /// `list`
    object: &'static str,
    data: Vec<ModelObject>,
}

#[derive(Serialize, JsonSchema)]
struct ModelLine {
    name: String,
    description: String,
    /// Day on which the model was written.
    release_date: String,
}

#[derive(Serialize, JsonSchema)]
struct ModelObject {
    id: String,
    /// `model`
    object: &'static str,
    /// Seconds since 1970.
    created: u64,
    owned_by: &'static str,
}

impl ModelList {
    pub(super) fn new(all: &[Arc<Served>]) -> Self {
        let name = |model: &Served| model.card.name().to_owned();
        let line = |model: &Arc<Served>| ModelLine {
            name: name(model),
            description: model.card.description(),
            release_date: day(model.created),
        };
        let object = |model: &Arc<Served>| ModelObject {
            id: name(model),
            object: "model",
            created: model.created,
            owned_by: "lrvd",
        };
        Self {
            models: all.iter().map(line).collect(),
            object: "list",
            data: all.iter().map(object).collect(),
        }
    }
}

/// The day in UTC, `YYYY-MM-DD`, of a second after 1970: Howard Hinnant's `civil_from_days`.
fn day(seconds: u64) -> String {
    let days = seconds / 86_400 + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    // From March.
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of Python's `datetime.fromtimestamp(seconds, UTC)`.
    #[test]
    fn days_are_those_of_the_calendar() {
        for (seconds, expected) in [
            (0, "1970-01-01"),
            (951_782_400, "2000-02-29"),
            (951_868_799, "2000-02-29"),
            (951_868_800, "2000-03-01"),
            (1_735_689_599, "2024-12-31"),
            (4_107_542_400, "2100-03-01"),
        ] {
            assert_eq!(day(seconds), expected);
        }
    }
}
