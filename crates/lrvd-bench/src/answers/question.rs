//! Typed questions about a state: the language of decision models.
//!
//! A question is read from the JSON that clients send and that training rows hold. Whatever
//! its type, it has named options, and its answer is a distribution over them. Options have one order, that of a
//! yes-or-no question's sides, of a score's levels, or of a choice's names: the order of keys in a file changes no answer.

use std::fmt;

use lrvd_core::Error as CoreError;
use lrvd_core::metrics::{choice_confidence, expected_level, score_confidence};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::io::kind;
use crate::text::quoted;

/// Most options of a choice.
pub const MOST_OPTIONS: usize = 255;
/// Most levels of a score.
pub const MOST_LEVELS: usize = 10;
/// The sides of a yes-or-no question, in the order of its options.
pub const SIDES: [&str; 2] = ["true", "false"];
/// The keys of a question.
const KEYS: [&str; 3] = ["type", "instructions", "criteria"];
/// Largest distance from 1 of the sum of the shares of a target.
const SHARES: f64 = 1e-3;

/// Type of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum QuestionKind {
    /// The probability that something holds.
    YesNo,
    /// One of several options.
    Choice,
    /// A level on an ordered scale.
    Score,
}

impl QuestionKind {
    pub const ALL: [Self; 3] = [Self::YesNo, Self::Choice, Self::Score];

    pub const fn name(self) -> &'static str {
        match self {
            Self::YesNo => "yes-no",
            Self::Choice => "choice",
            Self::Score => "score",
        }
    }

    /// Confidence of an answer with these probabilities, from 0 to 1.
    pub fn confidence(self, probabilities: &[f64]) -> Result<f64, CoreError> {
        match self {
            Self::YesNo | Self::Choice => choice_confidence(probabilities),
            Self::Score => score_confidence(probabilities),
        }
    }

    /// The expected level of a score.
    pub fn score(self, probabilities: &[f64]) -> Option<f64> {
        (self == Self::Score).then(|| expected_level(probabilities))
    }
}

impl fmt::Display for QuestionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Fault of a question or target, and its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid {
    /// Keys from the outermost to that of the value.
    pub path: Vec<String>,
    pub message: String,
    /// `true` if the value is not there.
    pub missing: bool,
}

impl Invalid {
    pub(crate) fn at(path: &[&str], message: impl Into<String>) -> Self {
        let path = path.iter().map(ToString::to_string).collect();
        Self { path, message: message.into(), missing: false }
    }

    fn missing(path: &[&str], expected: &str) -> Self {
        Self { missing: true, ..Self::at(path, format!("missing, expected {expected}")) }
    }

    /// This fault below `key`.
    #[must_use]
    pub fn below(mut self, key: &str) -> Self {
        self.path.insert(0, key.to_owned());
        self
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`: {}", self.path.join("."), self.message)
    }
}

impl std::error::Error for Invalid {}

/// One option and what is meant by it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QuestionOption {
    /// As it is answered: a side, a level's index, or the name of a choice, byte for byte.
    pub name: String,
    /// In words; of a level never empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

/// A question with its options.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Question {
    pub kind: QuestionKind,
    /// Empty where a yes-or-no question has none.
    pub instructions: String,
    pub options: Vec<QuestionOption>,
}

impl Question {
    /// Reads `{"type", "instructions", "criteria"}`.
    ///
    /// | type | `criteria` |
    /// |---|---|
    /// | `yes-no` | an object of `true` and `false`, either may be left out, or null |
    /// | `choice` | an object of 2 to 255 options, each with a description or null |
    /// | `score` | a list of 2 to 10 levels, from the lowest |
    ///
    /// Instructions and descriptions are texts, or objects and lists, which [`rendered`] writes as text.
    pub fn read(value: &Value) -> Result<Self, Invalid> {
        Self::read_as(value, QuestionKind::name)
    }

    /// [`read`](Self::read) with the types under the names of another format.
    pub fn read_as(
        value: &Value,
        type_name: fn(QuestionKind) -> &'static str,
    ) -> Result<Self, Invalid> {
        let Value::Object(fields) = value else {
            return Err(Invalid::at(&[], format!("{} where a question is expected", kind(value))));
        };
        if let Some(key) = fields.keys().find(|key| !KEYS.contains(&key.as_str())) {
            return Err(Invalid::at(&[key], format!("unknown key, expected {}", quoted(KEYS))));
        }
        let expected = quoted(QuestionKind::ALL.map(type_name));
        let name = fields.get("type").ok_or_else(|| Invalid::missing(&["type"], &expected))?;
        let found =
            QuestionKind::ALL.into_iter().find(|&kind| name.as_str() == Some(type_name(kind)));
        let Some(question) = found else {
            let found =
                name.as_str().map_or_else(|| kind(name).to_owned(), |name| format!("`{name}`"));
            return Err(Invalid::at(&["type"], format!("{found}, expected {expected}")));
        };
        let instructions = match fields.get("instructions") {
            None | Some(Value::Null) if question == QuestionKind::YesNo => String::new(),
            None => return Err(Invalid::missing(&["instructions"], "a text, an object or a list")),
            Some(value) => worded(value).map_err(|error| error.below("instructions"))?,
        };
        let criteria = fields.get("criteria").filter(|criteria| !criteria.is_null());
        let options = match question {
            QuestionKind::YesNo => sides(criteria),
            QuestionKind::Choice => choices(criteria),
            QuestionKind::Score => levels(criteria),
        };
        let options = options.map_err(|error| error.below("criteria"))?;
        Ok(Self { kind: question, instructions, options })
    }

    /// A choice among `names`, which mean what they say.
    pub(crate) fn choice(instructions: &str, names: &[String]) -> Result<Self, Invalid> {
        let expected = format!("2 to {MOST_OPTIONS} options");
        if !(2..=MOST_OPTIONS).contains(&names.len()) {
            return Err(Invalid::at(&[], format!("{} options, expected {expected}", names.len())));
        }
        let option = |name: &String| QuestionOption { name: name.clone(), description: None };
        let (instructions, options) = (instructions.trim().to_owned(), names.iter().map(option));
        Ok(Self { kind: QuestionKind::Choice, instructions, options: options.collect() })
    }

    /// The place in this question of every option of `other`, if that has the same type and options, in any order.
    pub(crate) fn places(&self, other: &Self) -> Option<Vec<usize>> {
        let place = |asked: &QuestionOption| self.options.iter().position(|o| o.name == asked.name);
        let is_like = self.kind == other.kind && self.options.len() == other.options.len();
        other.options.iter().map(place).collect::<Option<_>>().filter(|_| is_like)
    }

    /// The places of the options of `other` in this question, which must be the same one, with its options in any order: a
    /// classifier that reads the state alone answers no other. Descriptions may be left out.
    pub(crate) fn places_of_same(&self, other: &Self) -> Result<Vec<usize>, Invalid> {
        let places = self.places(other).ok_or_else(|| {
            let key = if self.kind == other.kind { "criteria" } else { "type" };
            let (own, other) = (self.describe(), other.describe());
            let message = format!("this classifier answers {own}, and the question is {other}");
            Invalid::at(&[key], message)
        })?;
        let [own, asked] = [self, other].map(|question| question.instructions.trim());
        if own != asked {
            let message =
                format!("`{asked}`, and this classifier answers the question `{own}` alone");
            return Err(Invalid::at(&["instructions"], message));
        }
        for (asked, &place) in other.options.iter().zip(&places) {
            let own = &self.options[place].description;
            if asked.description.is_some() && asked.description != *own {
                let expected = match own {
                    Some(words) => format!("`{words}`, as in training, or no description"),
                    None => "no description, as in training".to_owned(),
                };
                let message =
                    format!("another description of `{}`, expected {expected}", asked.name);
                return Err(Invalid::at(&["criteria"], message));
            }
        }
        Ok(places)
    }

    /// The type and the options, for an error.
    pub(crate) fn describe(&self) -> String {
        format!("the {} among {}", self.kind, quoted(self.names()))
    }

    /// The names of the options.
    pub fn names(&self) -> Vec<String> {
        self.options.iter().map(|option| option.name.clone()).collect()
    }

    /// The shares of the options in a target: an object of options and shares that sum to 1, or the one option.
    pub fn target(&self, value: &Value) -> Result<Vec<f64>, Invalid> {
        let index = |name: &str| {
            let at = self.options.iter().position(|option| option.name == name);
            at.ok_or_else(|| {
                let names = quoted(self.names());
                Invalid::at(&[], format!("`{name}` is no option, expected one of {names}"))
            })
        };
        let mut shares = vec![0.0; self.options.len()];
        let Value::Object(found) = value else {
            let name = match value {
                Value::String(name) => name.clone(),
                Value::Bool(_) | Value::Number(_) => value.to_string(),
                _ => {
                    let found = kind(value);
                    let expected = "an option, or an object of options and shares";
                    return Err(Invalid::at(&[], format!("{found} where {expected} is expected")));
                }
            };
            shares[index(&name)?] = 1.0;
            return Ok(shares);
        };
        for (name, value) in found {
            let share = value.as_f64().filter(|share| (0.0..=1.0).contains(share));
            let wrong = || format!("{value}, expected a share from 0 to 1");
            shares[index(name)?] = share.ok_or_else(|| Invalid::at(&[name], wrong()))?;
        }
        let total: f64 = shares.iter().sum();
        if (total - 1.0).abs() > SHARES {
            return Err(Invalid::at(&[], format!("the shares sum to {total}, expected 1")));
        }
        for share in &mut shares {
            *share /= total;
        }
        Ok(shares)
    }
}

/// The questions of an object, by their ids.
pub fn questions(value: &Value) -> Result<Vec<(String, Question)>, Invalid> {
    let expected = "an object of questions by their ids";
    let Value::Object(found) = value else {
        return Err(Invalid::at(&[], format!("{} where {expected} is expected", kind(value))));
    };
    if found.is_empty() {
        return Err(Invalid::at(&[], "no question, expected at least one"));
    }
    let question = |(id, value): (&String, &Value)| {
        if id.is_empty() {
            return Err(Invalid::at(&[id], "a question without an id"));
        }
        let question = Question::read(value).map_err(|error| error.below(id))?;
        Ok((id.clone(), question))
    };
    found.iter().map(question).collect()
}

/// The shares of the options of all `questions`, in their order, from an object of targets by the questions' ids.
pub(crate) fn targets(
    value: &Value,
    questions: &[(String, Question)],
) -> Result<Vec<Vec<f64>>, Invalid> {
    let Value::Object(found) = value else {
        let expected = "an object of targets by the ids of the questions is expected";
        return Err(Invalid::at(&[], format!("{} where {expected}", kind(value))));
    };
    if let Some(id) = found.keys().find(|id| !questions.iter().any(|(known, _)| known == *id)) {
        let ids = quoted(questions.iter().map(|(id, _)| id));
        return Err(Invalid::at(&[id], format!("a target without a question, which are {ids}")));
    }
    let target = |(id, question): &(String, Question)| {
        let target =
            found.get(id).ok_or_else(|| Invalid::missing(&[id], "the question's target"))?;
        question.target(target).map_err(|error| error.below(id))
    };
    questions.iter().map(target).collect()
}

/// The text of a state: a string verbatim, an object or a list as [`rendered`] writes it.
pub fn state(value: &Value) -> Result<String, Invalid> {
    worded(value).map_err(|error| error.below("state"))
}

pub(crate) fn worded(value: &Value) -> Result<String, Invalid> {
    match value {
        Value::String(_) | Value::Object(_) | Value::Array(_) => {}
        _ => {
            let expected = "a text, an object or a list is expected";
            return Err(Invalid::at(&[], format!("{} where {expected}", kind(value))));
        }
    }
    let text = rendered(value);
    if text.trim().is_empty() {
        return Err(Invalid::at(&[], "it is empty"));
    }
    Ok(text)
}

fn described(value: &Value) -> Result<Option<String>, Invalid> {
    match value {
        Value::Null => Ok(None),
        Value::String(text) if text.trim().is_empty() => Ok(None),
        value => worded(value).map(Some),
    }
}

fn sides(criteria: Option<&Value>) -> Result<Vec<QuestionOption>, Invalid> {
    let none = Map::new();
    let found = match criteria {
        None => &none,
        Some(Value::Object(found)) => found,
        Some(other) => {
            let expected = "an object of `true` and `false` is expected";
            return Err(Invalid::at(&[], format!("{} where {expected}", kind(other))));
        }
    };
    if let Some(key) = found.keys().find(|key| !SIDES.contains(&key.as_str())) {
        return Err(Invalid::at(&[key], format!("unknown side, expected {}", quoted(SIDES))));
    }
    let side = |name: &str| {
        let description = found.get(name).map_or(Ok(None), described);
        let description = description.map_err(|error| error.below(name))?;
        Ok(QuestionOption { name: name.to_owned(), description })
    };
    SIDES.into_iter().map(side).collect()
}

fn choices(criteria: Option<&Value>) -> Result<Vec<QuestionOption>, Invalid> {
    let expected = format!("an object of 2 to {MOST_OPTIONS} options");
    let found = match criteria {
        None => return Err(Invalid::missing(&[], &expected)),
        Some(Value::Object(found)) => found,
        Some(other) => {
            return Err(Invalid::at(&[], format!("{} where {expected} is expected", kind(other))));
        }
    };
    if !(2..=MOST_OPTIONS).contains(&found.len()) {
        return Err(Invalid::at(&[], format!("{} options, expected {expected}", found.len())));
    }
    let choice = |(name, description): (&String, &Value)| {
        if name.trim().is_empty() {
            return Err(Invalid::at(&[name], "an option without a name"));
        }
        let description = described(description).map_err(|error| error.below(name))?;
        Ok(QuestionOption { name: name.clone(), description })
    };
    found.iter().map(choice).collect()
}

fn levels(criteria: Option<&Value>) -> Result<Vec<QuestionOption>, Invalid> {
    let expected = format!("a list of 2 to {MOST_LEVELS} levels");
    let found = match criteria {
        None => return Err(Invalid::missing(&[], &expected)),
        Some(Value::Array(found)) => found,
        Some(other) => {
            return Err(Invalid::at(&[], format!("{} where {expected} is expected", kind(other))));
        }
    };
    if !(2..=MOST_LEVELS).contains(&found.len()) {
        return Err(Invalid::at(&[], format!("{} levels, expected {expected}", found.len())));
    }
    let level = |(i, value): (usize, &Value)| {
        let description = worded(value).map_err(|error| error.below(&i.to_string()))?;
        Ok(QuestionOption { name: i.to_string(), description: Some(description) })
    };
    found.iter().enumerate().map(level).collect()
}

/// A JSON value as text: strings verbatim, `key: value` for each key of an object in the order of keys, `- item` for
/// each item of a list; what is nested is indented by two spaces.
pub fn rendered(value: &Value) -> String {
    let mut text = String::new();
    write(value, 0, &mut text);
    text
}

fn write(value: &Value, depth: usize, text: &mut String) {
    let is_nested = |value: &Value| match value {
        Value::Object(fields) => !fields.is_empty(),
        Value::Array(items) => !items.is_empty(),
        _ => false,
    };
    let mut line = |head: &str, value: &Value| {
        if !text.is_empty() {
            text.push('\n');
        }
        text.extend(std::iter::repeat_n("  ", depth));
        text.push_str(head);
        if is_nested(value) {
            write(value, depth + 1, text);
        } else {
            if !head.ends_with("- ") {
                text.push(' ');
            }
            write(value, depth, text);
        }
    };
    match value {
        Value::Null => {}
        Value::String(string) => text.push_str(string),
        Value::Bool(_) | Value::Number(_) => text.push_str(&value.to_string()),
        Value::Object(fields) => {
            fields.iter().for_each(|(key, value)| line(&format!("{key}:"), value));
        }
        Value::Array(items) => items.iter().for_each(|value| line("- ", value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_one_text_whatever_the_order_of_its_keys() {
        let nested = serde_json::json!({
            "b": [1, {"y": "two", "x": [true]}, []], "a": {"d": {}, "c": "three"}
        });
        let text = "a:\n  c: three\n  d: \nb:\n  - 1\n  - \n    x:\n      - true\n    y: two\n  - ";
        assert_eq!(rendered(&nested), text);
        assert_eq!(state(&nested).unwrap(), text);
        assert_eq!(state(&" two\nlines ".into()).unwrap(), " two\nlines ");
    }
}
