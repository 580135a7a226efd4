//! The model that is served: how it is asked, and its answers in the words of `lrvd predict` and of `lrvd generate --format json`.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::{Duration, UNIX_EPOCH};

use lrvd_bench::Result;
use lrvd_bench::adapter::{
    Abstaining, Continuation, ContinuedToken, Decided, Generation, JudgedAnswer, LabelSets, Prompt,
    Reason, RowAnswer, SavedClassifier, SavedLanguageModel,
};
use lrvd_bench::answers::{AnswerSpace, Invalid, Question, QuestionKind, QuestionOption, SIDES};
use lrvd_bench::data::{self, Content};
use lrvd_bench::method::Intervals;
use schemars::JsonSchema;
use serde::{Serialize, Serializer};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Texts that share a pass.
    pub(crate) batch_size: usize,
    pub(crate) max_draws: usize,
    pub(crate) max_tokens: usize,
    pub(crate) max_texts: usize,
    /// Options of all questions of a request, times its draws.
    pub(crate) max_options: usize,
    pub(crate) max_bytes: usize,
    pub(crate) queue: usize,
    /// From the head of a request to its answer.
    pub(crate) timeout: Duration,
    pub(crate) max_connections: usize,
    pub(crate) max_adapters: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Input {
    /// Of a classifier: a text, a pair or a question.
    Text(data::Input),
    /// Of a language model.
    Prompt { prompt: Prompt, generation: Generation },
    /// Of a classifier that decides: typed questions about one state.
    Decision { state: String, questions: Vec<Question> },
}

impl Input {
    /// Number of texts that it counts as.
    pub(super) fn texts(&self) -> usize {
        match self {
            Self::Text(_) | Self::Prompt { .. } => 1,
            Self::Decision { questions, .. } => questions.len(),
        }
    }
}

/// Draws and seed of an answer. Requests with equal options can share a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AnswerOptions {
    /// Draws that the answer is averaged over; 0 for the mean of the posterior.
    pub(super) draws: usize,
    /// Seed of the draws and of sampled tokens.
    pub(super) seed: u64,
}

/// A saved model, with what requests get that name no draws and no seed.
pub(crate) enum Model {
    /// With the rule by which answers are withheld. One call is one pass, as large as the batch of `saved`.
    Classifier {
        saved: Box<SavedClassifier>,
        draws: usize,
        seed: u64,
        abstaining: Box<Abstaining>,
        /// The rule of the sets of labels, of answers of `draws` draws.
        sets: Option<LabelSets>,
    },
    Language {
        saved: Box<SavedLanguageModel>,
        draws: usize,
        seed: u64,
    },
}

impl Model {
    /// When its folder was last written, seconds after 1970; 0 where the system does not say.
    pub(super) fn created(&self) -> u64 {
        let folder = match self {
            Self::Classifier { saved, .. } => saved.folder(),
            Self::Language { saved, .. } => saved.folder(),
        };
        let written = std::fs::metadata(folder).and_then(|found| found.modified());
        let since = written.ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        since.map_or(0, |since| since.as_secs())
    }

    /// Options of requests that name no draws and no seed.
    pub(super) fn options(&self) -> AnswerOptions {
        match *self {
            Self::Classifier { draws, seed, .. } | Self::Language { draws, seed, .. } => {
                AnswerOptions { draws, seed }
            }
        }
    }

    /// An input for the start.
    pub(super) fn first(&self) -> Input {
        let info = match self {
            Self::Classifier { saved, .. } => &saved.info,
            Self::Language { .. } => {
                let prompt = Content::Text { prompt: "first".to_owned(), completion: None };
                let generation = Generation { max_tokens: 1, ..Generation::default() };
                return Input::Prompt { prompt: prompt.into(), generation };
            }
        };
        let choices: &[&str] = match info.goal.answers {
            AnswerSpace::Questions { .. } => {
                let questions = QuestionKind::ALL.map(simple).to_vec();
                return Input::Decision { state: "first".to_owned(), questions };
            }
            AnswerSpace::Choice { .. } => &["one", "other"],
            _ => &[],
        };
        let pair = (info.pairs == Some(true)).then(|| "second".to_owned());
        let choices = choices.iter().map(ToString::to_string).collect();
        Input::Text(data::Input { pair, choices, ..data::Input::text("first") })
    }

    /// True if `input` can share a pass with others: the answer does not depend on those beside it.
    pub(super) fn is_shared(&self, input: &Input, options: AnswerOptions) -> bool {
        match self {
            // The questions about a state share a pass with nothing else.
            Self::Classifier { .. } if matches!(input, Input::Decision { .. }) => false,
            Self::Classifier { saved, .. } => saved.is_batch_free(options.draws),
            // A text is then the one of `lrvd generate`, to the bit, and does not wait for the longest of several.
            Self::Language { .. } => false,
        }
    }

    /// The answers to `inputs`. `continues` is called after every pass, by a model that generates with the new tokens; the end is an
    /// error once it returns false.
    pub(super) fn answer(
        &self,
        inputs: &[Input],
        AnswerOptions { draws, seed }: AnswerOptions,
        continues: &mut dyn FnMut(&[ContinuedToken]) -> bool,
    ) -> Result<Vec<ModelAnswer>> {
        match self {
            Self::Classifier { saved, abstaining, sets, .. } => {
                let continues = RefCell::new(continues);
                let watch = |_| (continues.borrow_mut())(&[]);
                // Alone: it is not shared.
                if let [Input::Decision { state, questions }] = inputs {
                    let decided = saved.decide(state, questions, draws, seed, Some(&watch))?;
                    return Ok(vec![ModelAnswer::Decided(decided)]);
                }
                let texts = inputs.iter().filter_map(|input| match input {
                    Input::Text(text) => Some(text.clone()),
                    Input::Prompt { .. } | Input::Decision { .. } => None,
                });
                let texts: Vec<data::Input> = texts.collect();
                let found = saved.predict_while(&texts, draws, seed, 0, Some(&watch))?;
                let found = abstaining.judge(saved, &texts, found, (draws, 0))?;
                let labels = &saved.info.goal.answers.names();
                let beside = found.into_iter().zip(&texts);
                let answer = |(found, text): (_, &data::Input)| {
                    ModelAnswer::new(found, labels, &text.choices, draws, sets.as_ref())
                };
                Ok(beside.map(answer).collect())
            }
            Self::Language { saved, .. } => {
                let mut found = Vec::with_capacity(inputs.len());
                for input in inputs {
                    if let Input::Prompt { prompt, generation } = input {
                        let prompt = std::slice::from_ref(prompt);
                        found.extend(saved.generate(
                            prompt,
                            0,
                            (draws, seed),
                            generation,
                            continues,
                        )?);
                    }
                }
                Ok(found.into_iter().map(ModelAnswer::Text).collect())
            }
        }
    }
}

/// A question of a type, with two options.
fn simple(kind: QuestionKind) -> Question {
    let option =
        |name: &str| QuestionOption { name: name.to_owned(), description: Some(name.to_owned()) };
    let names = match kind {
        QuestionKind::YesNo => SIDES,
        QuestionKind::Choice => ["one", "other"],
        QuestionKind::Score => ["0", "1"],
    };
    Question { kind, instructions: "first".to_owned(), options: names.map(option).to_vec() }
}

/// The answer to one text, pair or question.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(rename = "Answer")]
pub(super) enum ModelAnswer {
    Class(ClassAnswer),
    Labels(LabelsAnswer),
    Score(ScoreAnswer),
    #[serde(skip)]
    #[schemars(skip)]
    Text(Continuation),
    /// To typed questions, which their route writes in its own form.
    #[serde(skip)]
    #[schemars(skip)]
    Decided(Answered),
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
    /// True if the answer is withheld; null where the server withholds none.
    abstained: Option<bool>,
    /// Why it is withheld: `uncertain`, it is above the threshold, or `unlike_training`, the text is unlike those of training.
    /// Absent of an answer that is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    /// Labels among which the right one is, but for the share of the texts that the server allows (`--sets`); absent without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    set: Option<Vec<String>>,
    /// Draws that the answer is averaged over; 0 at the mean of the posterior.
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
    /// Draws that the answer is averaged over; 0 at the mean of the posterior.
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
    /// Draws that the answer is averaged over; 0 at the mean of the posterior.
    draws: usize,
}

/// The answers to the questions of one request, and the errors of those that have none.
pub(super) type Answered = Vec<Result<Decided, Invalid>>;

/// A map that keeps the order of the labels.
pub(super) fn in_order<S: Serializer>(
    map: &[(String, f64)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(map.iter().map(|(label, p)| (label, p)))
}

impl ModelAnswer {
    /// A prediction under `labels`, from `draws` draws, to a text or to a question with `choices`; without a label if it is
    /// withheld.
    pub(super) fn new(
        JudgedAnswer { answer, abstained, reason }: JudgedAnswer,
        labels: &[String],
        choices: &[String],
        draws: usize,
        sets: Option<&LabelSets>,
    ) -> Self {
        match answer {
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
                let given = |names: &[String]| {
                    names.get(class).filter(|_| abstained != Some(true)).cloned()
                };
                let set = sets.map(|sets| {
                    let set = sets.of(&probabilities, class).into_iter();
                    set.filter_map(|id| labels.get(id).cloned()).collect()
                });
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
                    reason: reason.map(Reason::name),
                    set,
                    draws,
                })
            }
        }
    }

    /// Number of texts or questions that it answers.
    pub(super) fn texts(&self) -> usize {
        match self {
            Self::Decided(all) => all.iter().flatten().count(),
            Self::Class(_) | Self::Labels(_) | Self::Score(_) | Self::Text(_) => 1,
        }
    }

    /// Number of labels that are withheld.
    pub(super) fn withheld(&self) -> usize {
        match self {
            Self::Class(answer) => usize::from(answer.abstained == Some(true)),
            Self::Decided(all) => all.iter().flatten().filter(|answer| answer.abstained).count(),
            Self::Labels(_) | Self::Score(_) | Self::Text(_) => 0,
        }
    }

    /// The texts of one request.
    pub(super) fn into_texts(answers: Vec<Self>) -> Vec<Continuation> {
        let text = |answer| match answer {
            Self::Text(text) => Some(text),
            _ => None,
        };
        answers.into_iter().filter_map(text).collect()
    }

    /// The answers to the typed questions of one request.
    pub(super) fn into_decided(answers: Vec<Self>) -> Answered {
        let decided = |answer| match answer {
            Self::Decided(all) => Some(all),
            _ => None,
        };
        answers.into_iter().filter_map(decided).flatten().collect()
    }
}
