//! The body of an answer, in the words of `lrvd predict` and of `lrvd generate --format json`.

use std::collections::BTreeMap;

use axum::http::StatusCode;
use axum::response::Response;
use lrvd_bench::adapter::{Continuation, Prediction};
use schemars::JsonSchema;
use serde::{Serialize, Serializer};

use super::model::{Card, Key, SCHEMA_VERSION};
use super::problem::json;

/// The response to one request, whose texts the model of `card` answered with one key.
pub(super) fn respond(card: &Card, answers: Vec<Answer>, key: Key) -> Response {
    let (schema_version, Key { draws, seed, sampling, .. }) = (SCHEMA_VERSION, key);
    match card {
        Card::Classifier(_) => {
            json(StatusCode::OK, &ClassifierAnswers { schema_version, seed, answers })
        }
        Card::Language(_) => {
            let (temperature, top_p) = sampling.unzip();
            let texts = answers;
            let body = LanguageAnswers { schema_version, draws, seed, temperature, top_p, texts };
            json(StatusCode::OK, &body)
        }
    }
}

/// Answers to the texts of one request, in their order.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Answers")]
pub(super) struct ClassifierAnswers {
    schema_version: u32,
    /// Seed of the draws.
    seed: u64,
    answers: Vec<Answer>,
}

/// The continuation of the prompt of one request, and the settings that it can be repeated with.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Answers")]
pub(super) struct LanguageAnswers {
    schema_version: u32,
    /// How many draws the probabilities are averaged over; 0 at the mean of the posterior.
    draws: usize,
    /// Seed of the draws and of drawn tokens.
    seed: u64,
    /// Temperature at which tokens were drawn; null where the most likely one was taken.
    temperature: Option<f64>,
    /// Probability that tokens were drawn from; null where the most likely one was taken.
    top_p: Option<f64>,
    /// One.
    #[schemars(with = "Vec<Continuation>")]
    texts: Vec<Answer>,
}

/// The answer to one text, pair or question.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
pub(super) enum Answer {
    Class(ClassAnswer),
    Score(ScoreAnswer),
    #[schemars(skip)]
    Text(Continuation),
}

/// Of a classifier.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct ClassAnswer {
    /// The most probable label; null where the answer is withheld.
    predicted: Option<String>,
    /// Of a question: the text of the choice with that letter; null where the answer is withheld.
    #[expect(clippy::option_option, reason = "absent of a text, null where it is withheld")]
    #[serde(skip_serializing_if = "Option::is_none")]
    choice: Option<Option<String>>,
    /// By label, in the model's order; of a question only the letters that it has. Averaged over the draws.
    #[serde(serialize_with = "in_order")]
    #[schemars(with = "BTreeMap<String, f64>")]
    probabilities: Vec<(String, f64)>,
    /// Of the probabilities, nats.
    entropy: f64,
    /// Between answer and weights, nats; null without draws.
    mutual_information: Option<f64>,
    /// Whether the answer is withheld because the entropy is above the threshold; null where there is none.
    abstained: Option<bool>,
    /// How many draws the answer is averaged over; 0 at the mean of the posterior.
    draws: usize,
}

/// Of a regressor.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct ScoreAnswer {
    /// The number, averaged over the draws.
    predicted: f64,
    /// Standard deviation over the draws; null below two of them.
    deviation: Option<f64>,
    /// How many draws the answer is averaged over; 0 at the mean of the posterior.
    draws: usize,
}

/// A map that keeps the order of the labels.
fn in_order<S: Serializer>(map: &[(String, f64)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(map.iter().map(|(label, p)| (label, p)))
}

impl Answer {
    /// A prediction under `labels`, from `draws` draws, to a text or to a question with `choices`; without a label above the
    /// entropy `limit`, if there is one.
    pub(super) fn new(
        prediction: Prediction,
        labels: &[String],
        choices: &[String],
        draws: usize,
        limit: Option<f64>,
    ) -> Self {
        match prediction {
            Prediction::Score { score, deviation } => {
                Self::Score(ScoreAnswer { predicted: score, deviation, draws })
            }
            Prediction::Class { probabilities, class, entropy, mutual_information, draws } => {
                let abstained = limit.map(|limit| entropy > limit);
                let given = |names: &[String]| {
                    names.get(class).filter(|_| abstained != Some(true)).cloned()
                };
                let is_question = !choices.is_empty();
                let shown = if is_question { choices.len() } else { labels.len() };
                let named = labels.iter().cloned().zip(probabilities).take(shown);
                Self::Class(ClassAnswer {
                    predicted: given(labels),
                    choice: is_question.then(|| given(choices)),
                    probabilities: named.collect(),
                    entropy,
                    mutual_information,
                    abstained,
                    draws,
                })
            }
        }
    }

    /// Whether the label is withheld.
    pub(super) fn is_withheld(&self) -> bool {
        matches!(self, Self::Class(answer) if answer.abstained == Some(true))
    }
}
