//! Typed questions in no API's form: how much is read and answered, what is asked of the model, the answers in order, our own fields.

use std::sync::Arc;

use axum::http::StatusCode;
use lrvd_bench::adapter::Decided;
use lrvd_bench::answers::{Invalid, Question, QuestionKind};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::app::{Asked, Form};
use super::body::json;
use super::card::ClassifierCard;
use super::model::{AnswerOptions, Answered, Input, ModelAnswer};
use super::models::Served;
use super::problem::{Code, Problem};

/// Bytes of the text that a value is written as, in which nesting is indentation: a short body can be a long text.
pub(super) fn length(value: &Value, depth: usize) -> usize {
    let line = |value: &Value| 2 * depth + 3 + length(value, depth + 1);
    match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(line).sum(),
        Value::Object(fields) => fields.iter().map(|(key, value)| key.len() + line(value)).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 8,
    }
}

/// Rejects a request whose text has more than the bytes that a body may have.
pub(super) fn check_length(found: usize, card: &ClassifierCard) -> Result<(), Problem> {
    if found > card.max_bytes {
        let most = card.max_bytes;
        let message =
            format!("as text, nesting being indentation, the body is longer than {most} bytes");
        return Err(Problem::new(Code::BodyTooLarge, message));
    }
    Ok(())
}

/// Rejects more questions than a request may have, and none; `field` holds them.
pub(super) fn check_count(found: usize, card: &ClassifierCard) -> Result<(), Problem> {
    let most = card.max_texts;
    if (1..=most).contains(&found) {
        return Ok(());
    }
    let message = format!("{found} questions, expected 1 to {most}");
    Err(Problem::invalid("questions", message))
}

/// A request with `questions` about `state`; `write` puts the answers into the form of an API, under the name of the model.
pub(super) fn asked<A: Serialize>(
    model: Arc<Served>,
    state: String,
    questions: Vec<Question>,
    options: AnswerOptions,
    write: impl FnOnce(Answered, String) -> Result<A, Problem> + Send + 'static,
) -> Result<Asked, Problem> {
    let card = model.classifier()?;
    let count = questions.iter().map(|question| question.options.len()).sum();
    check_options(count, options.draws, card)?;
    let name = card.name.clone();
    let form = Form::whole(move |answers| {
        let body = write(ModelAnswer::into_decided(answers), name)?;
        Ok(json(StatusCode::OK, &body))
    });
    let inputs = vec![Input::Decision { state, questions }];
    Ok(Asked { model, inputs, fields: vec!["questions".to_owned()], options, form })
}

/// The answers in the form of an API, and the tokens that the model read. `write` has the plan of a question with its answer,
/// `fail` that of a question without one, for its error in place of an answer and for the problem of the request where no
/// question has an answer: that of the first.
pub(super) fn written<P, A>(
    plans: impl Iterator<Item = P>,
    found: Answered,
    write: impl Fn(P, Decided) -> A,
    fail: impl Fn(P, Invalid) -> (A, Problem),
) -> Result<(Vec<A>, usize), Problem> {
    let tokens = found.iter().flatten().map(|answer| answer.tokens).sum();
    let is_answered = found.iter().any(Result::is_ok);
    let mut answers = Vec::with_capacity(found.len());
    for (plan, found) in plans.zip(found) {
        answers.push(match found {
            Ok(found) => write(plan, found),
            Err(invalid) => {
                let (answer, problem) = fail(plan, invalid);
                if !is_answered {
                    return Err(problem);
                }
                answer
            }
        });
    }
    Ok((answers, tokens))
}

/// Rejects questions with more `options` in all, for each draw, than a request may have.
fn check_options(options: usize, draws: usize, card: &ClassifierCard) -> Result<(), Problem> {
    let found = options.saturating_mul(draws.max(1));
    let most = card.max_options;
    if found <= most {
        return Ok(());
    }
    let times = if draws > 1 { format!(" for each of {draws} draws") } else { String::new() };
    let message = format!(
        "the questions have {options} options in all{times}, that is {found}, expected at most {most}: the server's \
         `--max-options`"
    );
    Err(Problem::invalid("questions", message))
}

/// Fields that neither API has.
#[expect(clippy::struct_field_names, reason = "the names on the wire")]
#[derive(Serialize, JsonSchema)]
pub(super) struct Own {
    /// Of a yes or no, which has no `confidence` in either API.
    #[serde(skip_serializing_if = "Option::is_none")]
    x_confidence: Option<f64>,
    /// Of the probabilities, nats.
    x_entropy: f64,
    /// Between answer and weights, nats; null without draws.
    x_mutual_information: Option<f64>,
    /// Standard deviation over the draws of a score, or of the probability of true, which leaves out the spread of the
    /// probabilities themselves; null of a choice and below two draws.
    x_draws_deviation: Option<f64>,
    /// True if the confidence is below the threshold; null where there is none. The answer is given all the same.
    x_abstained: Option<bool>,
    /// The confidence that `lrvd abstain fit` found for a target risk; null where there is none.
    x_threshold: Option<f64>,
    /// Draws that the probabilities are averaged over; 0 at the mean of the posterior.
    x_draws: usize,
    /// True if a temperature was fitted on held-out rows.
    x_calibrated: bool,
}

impl Own {
    pub(super) fn new(answer: &Decided) -> Self {
        Self {
            x_confidence: (answer.kind == QuestionKind::YesNo).then_some(answer.confidence),
            x_entropy: answer.entropy,
            x_mutual_information: answer.mutual_information,
            x_draws_deviation: answer.draws_deviation,
            x_abstained: answer.threshold.map(|_| answer.abstained),
            x_threshold: answer.threshold,
            x_draws: answer.draws,
            x_calibrated: answer.calibrated,
        }
    }
}
