//! The body of an answer, in the words of `lrvd predict` and of `lrvd generate --format json`.

use std::collections::BTreeMap;

use lrvd_bench::adapter::{Continuation, ContinuedToken, Prediction};
use schemars::JsonSchema;
use serde::{Serialize, Serializer};

use super::model::{Card, Found, Key, SCHEMA_VERSION};

/// The answers to one request.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum Answers {
    Classifier(ClassifierAnswers),
    Language(LanguageAnswers),
}

impl Answers {
    /// What the model of `card` found with one key.
    pub(super) fn new(card: &Card, found: Vec<Found>, key: Key) -> Self {
        match card {
            Card::Classifier(card) => {
                let limit = card.abstain_above.get(&key.draws).copied().flatten();
                Self::Classifier(ClassifierAnswers::new(found, &card.labels, key, limit))
            }
            Card::Language(_) => Self::Language(LanguageAnswers::new(found, key)),
        }
    }

    /// How many of the answers are withheld.
    pub(super) fn withheld(&self) -> usize {
        let is_withheld = |answer: &&Answer| matches!(answer, Answer::Class(answer) if answer.abstained == Some(true));
        match self {
            Self::Classifier(answers) => answers.answers.iter().filter(is_withheld).count(),
            Self::Language(_) => 0,
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
#[derive(Serialize, JsonSchema)]
struct ScoreAnswer {
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

impl ClassifierAnswers {
    /// `found` under `labels`; without a label above the entropy `limit`, if there is one.
    fn new(found: Vec<Found>, labels: &[String], key: Key, limit: Option<f64>) -> Self {
        let predictions = found.into_iter().filter_map(|found| match found {
            Found::Prediction(prediction, choices) => Some((prediction, choices)),
            Found::Continuation(_) => None,
        });
        let answer = |(prediction, choices): (Prediction, Vec<String>)| match prediction {
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
                    probabilities: named.collect(),
                    entropy,
                    mutual_information,
                    abstained,
                    draws,
                })
            }
        };
        let answers = predictions.map(answer).collect();
        Self { schema_version: SCHEMA_VERSION, seed: key.seed, answers }
    }
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
    texts: Vec<TextAnswer>,
}

/// What comes after a prompt.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Answer")]
struct TextAnswer {
    text: String,
    tokens: Vec<Token>,
    /// Tokens of the prompt.
    prompt_tokens: usize,
    /// Whether the model ended the text, rather than the limit.
    stopped: bool,
    /// Mean over the tokens, nats; null without a token.
    mean_log_probability: Option<f64>,
}

/// One token of it.
#[derive(Serialize, JsonSchema)]
struct Token {
    /// What it adds to the text; the vocabulary's spelling where that is a part of a character.
    text: String,
    id: u32,
    /// Averaged over the draws, before temperature and truncation.
    probability: f64,
    /// Of the next token, nats.
    entropy: f64,
    /// Between the next token and the weights, nats; null without several draws.
    mutual_information: Option<f64>,
}

impl LanguageAnswers {
    /// What was found with `key`.
    fn new(found: Vec<Found>, key: Key) -> Self {
        let texts = found.into_iter().filter_map(|found| match found {
            Found::Continuation(continuation) => Some(continuation.into()),
            Found::Prediction(..) => None,
        });
        let Key { draws, seed, sampling, .. } = key;
        Self {
            schema_version: SCHEMA_VERSION,
            draws,
            seed,
            temperature: sampling.map(|(temperature, _)| temperature),
            top_p: sampling.map(|(_, top_p)| top_p),
            texts: texts.collect(),
        }
    }
}

impl From<Continuation> for TextAnswer {
    fn from(found: Continuation) -> Self {
        let mean_log_probability = found.mean_log_probability();
        let Continuation { text, tokens, prompt_tokens, stopped } = found;
        let token = |token: ContinuedToken| {
            let ContinuedToken { text, id, probability, entropy, mutual_information } = token;
            Token { text, id, probability, entropy, mutual_information }
        };
        let tokens = tokens.into_iter().map(token).collect();
        Self { text, tokens, prompt_tokens, stopped, mean_log_probability }
    }
}
