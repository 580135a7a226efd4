//! The body of an answer, in the words of `lrvd predict`.

use std::borrow::Cow;
use std::collections::BTreeMap;

use lrvd_bench::adapter::Prediction;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Serialize, Serializer};

use super::card::Drawn;
use crate::serve::served::SCHEMA_VERSION;

/// Answers to the texts of one request, in their order.
#[derive(Serialize, JsonSchema)]
#[expect(clippy::struct_field_names, reason = "the field's name is the one in the body")]
pub(crate) struct Answers {
    schema_version: u32,
    /// Seed of the draws.
    seed: u64,
    answers: Vec<Answer>,
}

/// The answer to one text, pair or question.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
enum Answer {
    Class(ClassAnswer),
    Score(ScoreAnswer),
}

/// Of a classifier.
#[derive(Serialize, JsonSchema)]
struct ClassAnswer {
    /// The most probable label; null where the answer is withheld.
    predicted: Option<String>,
    /// Of a question: the text of the choice with that letter; null where the answer is withheld.
    #[expect(clippy::option_option, reason = "absent of a text, null where it is withheld")]
    #[serde(skip_serializing_if = "Option::is_none")]
    choice: Option<Option<String>>,
    /// By label, in the model's order; of a question only the letters that it has. Averaged over the draws.
    probabilities: Probabilities,
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
#[derive(Serialize, JsonSchema)]
struct ScoreAnswer {
    /// The number, averaged over the draws.
    predicted: f64,
    /// Standard deviation over the draws; null below two of them.
    deviation: Option<f64>,
    /// How many draws the answer is averaged over; 0 at the mean of the posterior.
    draws: usize,
}

/// What the model says of one input.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) prediction: Prediction,
    /// Choices of a question; none of a text.
    pub(crate) choices: Vec<String>,
}

/// A map that keeps the order of the labels.
struct Probabilities(Vec<(String, f64)>);

impl Serialize for Probabilities {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(label, p)| (label, p)))
    }
}

impl JsonSchema for Probabilities {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Probabilities".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        BTreeMap::<String, f64>::json_schema(generator)
    }
}

impl Answers {
    /// `found` under `labels`; without a label above the entropy `limit`, if there is one.
    pub(super) fn new(
        found: Vec<Found>,
        labels: &[String],
        key: Drawn,
        limit: Option<f64>,
    ) -> Self {
        let answer = |Found { prediction, choices }| match prediction {
            Prediction::Score { score, deviation } => {
                Answer::Score(ScoreAnswer { predicted: score, deviation, draws: key.draws })
            }
            Prediction::Class { probabilities, class, entropy, mutual_information, draws } => {
                let abstained = limit.map(|limit| entropy > limit);
                let given = |names: &[String]| {
                    names.get(class).filter(|_| abstained != Some(true)).cloned()
                };
                let is_question = !choices.is_empty();
                let shown = if is_question { choices.len() } else { labels.len() };
                let named = labels.iter().cloned().zip(probabilities).take(shown);
                Answer::Class(ClassAnswer {
                    predicted: given(labels),
                    choice: is_question.then(|| given(&choices)),
                    probabilities: Probabilities(named.collect()),
                    entropy,
                    mutual_information,
                    abstained,
                    draws,
                })
            }
        };
        let answers = found.into_iter().map(answer).collect();
        Self { schema_version: SCHEMA_VERSION, seed: key.seed, answers }
    }

    /// How many of the answers are withheld.
    pub(super) fn withheld(&self) -> usize {
        let is_withheld = |answer: &&Answer| matches!(answer, Answer::Class(answer) if answer.abstained == Some(true));
        self.answers.iter().filter(is_withheld).count()
    }
}
