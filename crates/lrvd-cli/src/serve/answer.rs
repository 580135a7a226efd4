//! The answer to a text, in the words of `lrvd predict` and of `lrvd generate --format json`.

use std::collections::BTreeMap;

use lrvd_bench::adapter::{Continuation, Decided, RowAnswer, Withheld};
use lrvd_bench::answers::Invalid;
use lrvd_bench::method::Intervals;
use schemars::JsonSchema;
use serde::{Serialize, Serializer};

/// The answer to one text, pair or question.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(rename = "Answer")]
pub(super) enum ModelAnswer {
    Class(ClassAnswer),
    Labels(LabelsAnswer),
    Score(ScoreAnswer),
    #[schemars(skip)]
    Text(Continuation),
    /// To typed questions, which their route writes in its own form.
    #[serde(skip)]
    #[schemars(skip)]
    Decided(Vec<Result<Decided, Invalid>>),
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
    /// Whether the answer is withheld because of the threshold; null where there is none.
    abstained: Option<bool>,
    /// How many draws the answer is averaged over; 0 at the mean of the posterior.
    draws: usize,
}

/// Of a model that gives several labels.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct LabelsAnswer {
    /// Labels whose probability is at or above their threshold; there may be none.
    predicted: Vec<String>,
    /// Of each label, in the model's order. They are independent of each other. Averaged over the draws.
    #[serde(serialize_with = "in_order")]
    #[schemars(with = "BTreeMap<String, f64>")]
    probabilities: Vec<(String, f64)>,
    /// Sum over the labels, nats.
    entropy: f64,
    /// Sum over the labels of that between label and weights, nats; null without draws.
    mutual_information: Option<f64>,
    /// How many draws the answer is averaged over; 0 at the mean of the posterior.
    draws: usize,
}

/// Of a regressor.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct ScoreAnswer {
    /// The number, averaged over the draws.
    predicted: f64,
    /// Lower and upper end of the interval that holds the number with the probability `interval_level` or more, on average over
    /// texts like the validation rows of the training; null where none was fitted for this number of draws.
    interval: Option<[f64; 2]>,
    /// 0.95; null without an interval.
    interval_level: Option<f64>,
    /// Standard deviation over the draws, which leaves out the noise of the numbers: the spread of the draws, not an error of the
    /// number. Null below two of them.
    draws_deviation: Option<f64>,
    /// How many draws the answer is averaged over; 0 at the mean of the posterior.
    draws: usize,
}

/// A map that keeps the order of the labels.
pub(super) fn in_order<S: Serializer>(
    map: &[(String, f64)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(map.iter().map(|(label, p)| (label, p)))
}

impl ModelAnswer {
    /// A prediction under `labels`, from `draws` draws, to a text or to a question with `choices`; without a label if it is one of
    /// those that are `withheld`.
    pub(super) fn new(
        prediction: RowAnswer,
        labels: &[String],
        choices: &[String],
        draws: usize,
        withheld: Option<Withheld>,
    ) -> Self {
        match prediction {
            RowAnswer::Score { score, interval, draws_deviation } => Self::Score(ScoreAnswer {
                predicted: score,
                interval,
                interval_level: interval.map(|_| Intervals::LEVEL),
                draws_deviation,
                draws,
            }),
            RowAnswer::Labels { probabilities, given, entropy, mutual_information, draws } => {
                Self::Labels(LabelsAnswer {
                    predicted: given.iter().map(|&label| labels[label].clone()).collect(),
                    probabilities: labels.iter().cloned().zip(probabilities).collect(),
                    entropy,
                    mutual_information,
                    draws,
                })
            }
            RowAnswer::Class { probabilities, class, entropy, mutual_information, draws } => {
                let abstained = withheld.map(|those| those.contains(&probabilities, entropy));
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

    /// How many texts or questions it answers.
    pub(super) fn texts(&self) -> usize {
        match self {
            Self::Decided(all) => all.iter().flatten().count(),
            Self::Class(_) | Self::Labels(_) | Self::Score(_) | Self::Text(_) => 1,
        }
    }

    /// How many labels are withheld.
    pub(super) fn withheld(&self) -> usize {
        match self {
            Self::Class(answer) => usize::from(answer.abstained == Some(true)),
            Self::Decided(all) => all.iter().flatten().filter(|answer| answer.abstained).count(),
            Self::Labels(_) | Self::Score(_) | Self::Text(_) => 0,
        }
    }
}
