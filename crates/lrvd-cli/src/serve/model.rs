//! The model that is served: what clients can know of it, and how it is asked.

use std::collections::BTreeMap;
use std::time::Duration;

use lrvd_bench::Result;
use lrvd_bench::adapter::{
    Continuation, Generation, NEW_TOKENS, Prediction, SavedClassifier, SavedLanguageModel,
};
use lrvd_bench::data::{self, Content, LanguageColumns};
use lrvd_bench::run::MAX_SEED;
use schemars::JsonSchema;
use serde::Serialize;

use super::problem::{Code, Problem};

/// Version of answers and of the model's description.
pub(super) const SCHEMA_VERSION: u32 = 1;
/// Where classifiers are asked.
pub(super) const CLASSIFY: &str = "/v1/classify";
/// Where language models are asked.
pub(super) const GENERATE: &str = "/v1/generate";

/// The limits of a server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Texts that share a pass.
    pub(crate) batch_size: usize,
    /// Draws that a request may ask for.
    pub(crate) max_draws: usize,
    /// New tokens that a request may ask for.
    pub(crate) max_tokens: usize,
    /// Texts of a request.
    pub(crate) max_texts: usize,
    /// Bytes of a request.
    pub(crate) max_bytes: usize,
    /// Texts that wait.
    pub(crate) queue: usize,
    /// From the head of a request to its answer.
    pub(crate) timeout: Duration,
    /// Connections that are open at a time.
    pub(crate) max_connections: usize,
}

/// One of the texts of a request.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Input {
    /// Of a classifier: a text, a pair or a question.
    Text(data::Input),
    /// Of a language model.
    Prompt(Content),
}

/// How texts are answered. Requests with one key can share a pass. A classifier reads draws and seed alone.
pub(super) type Key = Generation;

/// The key of a classifier.
pub(super) fn drawn(draws: usize, seed: u64) -> Key {
    Key { max_tokens: 0, draws, seed, sampling: None }
}

/// The model's answer to one text.
#[derive(Debug)]
pub(super) enum Found {
    /// Of a classifier; with the choices of a question, none of a text.
    Prediction(Prediction, Vec<String>),
    Continuation(Continuation),
}

/// A saved model, with what requests get that name no draws and no seed.
pub(crate) enum Model {
    /// With the entropy above which answers are withheld, in place of the classifier's own. One call is one pass, as large as the
    /// batch of `saved`.
    Classifier {
        saved: Box<SavedClassifier>,
        draws: usize,
        seed: u64,
        limit: Option<f64>,
    },
    Language {
        saved: Box<SavedLanguageModel>,
        draws: usize,
        seed: u64,
    },
}

impl Model {
    /// What clients can know of it under `limits`.
    pub(super) fn card(&self, limits: &Limits) -> Result<Card> {
        Ok(match self {
            Self::Classifier { saved, draws, seed, limit } => {
                Card::Classifier(ClassifierCard::new(saved, *draws, *seed, *limit, limits))
            }
            Self::Language { saved, draws, seed } => {
                Card::Language(LanguageCard::new(saved, *draws, *seed, limits)?)
            }
        })
    }

    /// A question for the start, with the draws and the seed of requests that name none.
    pub(super) fn first(&self) -> (Input, Key) {
        match self {
            Self::Classifier { saved, draws, seed, .. } => {
                let info = &saved.info;
                let pair = (info.pairs == Some(true)).then(|| "second".to_owned());
                let choices: &[&str] = if info.has_choices() { &["one", "other"] } else { &[] };
                let choices = choices.iter().map(ToString::to_string).collect();
                let input = data::Input { pair, choices, ..data::Input::text("first") };
                (Input::Text(input), drawn(*draws, *seed))
            }
            Self::Language { draws, seed, .. } => {
                let prompt = Content::Text { prompt: "first".to_owned(), completion: None };
                (Input::Prompt(prompt), Key { max_tokens: 1, ..drawn(*draws, *seed) })
            }
        }
    }

    /// Whether the answer to a text does not depend on those beside it.
    pub(super) fn is_shared(&self, key: Key) -> bool {
        match self {
            Self::Classifier { saved, .. } => saved.is_batch_free(key.draws),
            // A text is then the one of `lrvd generate`, to the bit, and does not wait for the longest of several.
            Self::Language { .. } => false,
        }
    }

    /// The answers to `inputs`. A model that generates tells `go_on` after every token how many there are more, and ends
    /// with an error if that says no.
    pub(super) fn answer(
        &self,
        inputs: &[Input],
        key: Key,
        go_on: &mut dyn FnMut(usize) -> bool,
    ) -> Result<Vec<Found>> {
        match self {
            Self::Classifier { saved, .. } => {
                let texts = inputs.iter().filter_map(|input| match input {
                    Input::Text(text) => Some(text.clone()),
                    Input::Prompt(_) => None,
                });
                let texts: Vec<data::Input> = texts.collect();
                let found = saved.predict(&texts, key.draws, key.seed, 0)?;
                let beside = found.into_iter().zip(texts);
                Ok(beside.map(|(found, text)| Found::Prediction(found, text.choices)).collect())
            }
            Self::Language { saved, .. } => {
                let prompts = inputs.iter().filter_map(|input| match input {
                    Input::Prompt(prompt) => Some(prompt.clone()),
                    Input::Text(_) => None,
                });
                let found = saved.generate(&prompts.collect::<Vec<_>>(), 0, &key, go_on)?;
                Ok(found.into_iter().map(Found::Continuation).collect())
            }
        }
    }
}

/// What a model answers with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Kind {
    Classes,
    Choices,
    Scores,
    Texts,
}

/// A model as its clients know it: `/v1/model`, and what can be asked.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub(super) enum Card {
    Classifier(ClassifierCard),
    Language(LanguageCard),
}

impl Card {
    /// Where it is asked.
    pub(super) fn path(&self) -> &'static str {
        match self {
            Self::Classifier(_) => CLASSIFY,
            Self::Language(_) => GENERATE,
        }
    }
}

/// The model that answers.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "Model")]
pub(super) struct ClassifierCard {
    pub(super) schema_version: u32,
    /// What it was trained for.
    pub(super) name: String,
    /// How it was trained.
    pub(super) method: String,
    pub(super) kind: Kind,
    /// Labels in the order of the probabilities, the letters of questions with choices; empty for scores.
    pub(super) labels: Vec<String>,
    /// Whether inputs are pairs of texts, questions about a passage; null where that is not known.
    pub(super) pairs: Option<bool>,
    /// Draws where a request names no number.
    pub(super) draws: usize,
    /// Seed of the draws where a request names none.
    pub(super) seed: u64,
    /// By number of draws that a request may ask for: the entropy in nats above which the answer is withheld, null
    /// where there is no such threshold.
    pub(super) abstain_above: BTreeMap<usize, Option<f64>>,
    /// Most texts of a request.
    pub(super) max_texts: usize,
    /// Most bytes of a request.
    pub(super) max_bytes: usize,
}

impl ClassifierCard {
    /// The card of `classifier`. Numbers of draws that it has no temperature or threshold for, while it has them for
    /// others, cannot be asked for; `limit` takes the place of all thresholds.
    fn new(
        classifier: &SavedClassifier,
        draws: usize,
        seed: u64,
        limit: Option<f64>,
        limits: &Limits,
    ) -> Self {
        let info = &classifier.info;
        let threshold = |draws: usize| {
            let draws = classifier.draws(Some(draws)).ok()?;
            match limit {
                Some(limit) => Some((draws, Some(limit))),
                None => Some((draws, classifier.abstention(draws).ok()?.map(|found| found.above))),
            }
        };
        let scores = info.goal.is_regression();
        Self {
            schema_version: SCHEMA_VERSION,
            name: info.goal.name.clone(),
            method: info.run.method.clone(),
            kind: match info.has_choices() {
                true => Kind::Choices,
                false if scores => Kind::Scores,
                false => Kind::Classes,
            },
            labels: if scores { Vec::new() } else { info.goal.classes.clone() },
            pairs: info.pairs,
            draws,
            seed,
            abstain_above: (0..=limits.max_draws).filter_map(threshold).collect(),
            max_texts: limits.max_texts,
            max_bytes: limits.max_bytes,
        }
    }

    /// What to draw for a request.
    pub(super) fn key(&self, draws: Option<usize>, asked: Option<u64>) -> Result<Key, Problem> {
        let draws = draws.unwrap_or(self.draws);
        if !self.abstain_above.contains_key(&draws) {
            return Err(Problem::draws(draws, &self.allowed()));
        }
        Ok(drawn(draws, seed(asked, self.seed)?))
    }

    /// The numbers of draws in words.
    fn allowed(&self) -> String {
        let all: Vec<usize> = self.abstain_above.keys().copied().collect();
        match all[..] {
            [first, .., last] if last - first + 1 == all.len() => format!("{first} to {last}"),
            [only] => only.to_string(),
            _ => {
                let names: Vec<String> = all.iter().map(usize::to_string).collect();
                format!("one of {}", names.join(", "))
            }
        }
    }
}

/// The model that answers.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "Model")]
pub(super) struct LanguageCard {
    pub(super) schema_version: u32,
    /// Its base model, without the place.
    pub(super) name: String,
    /// How it was trained; null where the adapter does not say.
    pub(super) method: Option<String>,
    pub(super) kind: Kind,
    /// Whether it was trained on conversations.
    pub(super) chat: bool,
    /// Whether `messages` can be sent: the base model has a template for conversations.
    pub(super) messages: bool,
    /// Most new tokens where a request names no number.
    pub(super) tokens: usize,
    /// Most new tokens that a request may ask for.
    pub(super) max_tokens: usize,
    /// Tokens that a prompt and its continuation may have together.
    pub(super) context: usize,
    /// Draws where a request names no number.
    pub(super) draws: usize,
    /// Most draws that a request may ask for; 0 where there is no posterior.
    pub(super) max_draws: usize,
    /// Seed of the draws and of drawn tokens where a request names none.
    pub(super) seed: u64,
    /// Most bytes of a request.
    pub(super) max_bytes: usize,
}

impl LanguageCard {
    /// The card of a model under `limits`.
    fn new(model: &SavedLanguageModel, draws: usize, seed: u64, limits: &Limits) -> Result<Self> {
        // The local path is not exposed.
        let name = model.base_name().rsplit(['/', '\\']).next().unwrap_or_default();
        Ok(Self {
            schema_version: SCHEMA_VERSION,
            name: name.to_owned(),
            method: model.info.as_ref().map(|info| info.run.method.clone()),
            kind: Kind::Texts,
            chat: model.columns().is_some_and(LanguageColumns::is_chat),
            messages: model.has_chat()?,
            tokens: NEW_TOKENS.min(limits.max_tokens),
            max_tokens: limits.max_tokens,
            context: model.context(),
            draws,
            max_draws: if model.has_posterior() { limits.max_draws } else { 0 },
            seed,
            max_bytes: limits.max_bytes,
        })
    }

    /// How to answer a request.
    pub(super) fn key(
        &self,
        max_tokens: Option<usize>,
        draws: Option<usize>,
        asked: Option<u64>,
        sampling: Option<(f64, f64)>,
    ) -> Result<Key, Problem> {
        let max_tokens = max_tokens.unwrap_or(self.tokens);
        if !(1..=self.max_tokens).contains(&max_tokens) {
            let most = self.max_tokens;
            let message = format!("{max_tokens} new tokens, expected 1 to {most}");
            return Err(Problem::at(Code::MaxTokensOutOfRange, "max_tokens", message));
        }
        let draws = draws.unwrap_or(self.draws);
        if draws > self.max_draws {
            return Err(Problem::draws(
                draws,
                &match self.max_draws {
                    0 => "0: the model has no posterior, or the server allows no draws".to_owned(),
                    most => format!("0 to {most}"),
                },
            ));
        }
        let key = Key { max_tokens, draws, seed: seed(asked, self.seed)?, sampling };
        key.check().map_err(|error| {
            let field = match &error {
                lrvd_burn::core::Error::OutOfRange { name, .. } => *name,
                _ => "body",
            };
            Problem::at(Code::InvalidField, field, error)
        })?;
        Ok(key)
    }
}

/// The seed of a request, `own` where it names none.
fn seed(asked: Option<u64>, own: u64) -> Result<u64, Problem> {
    let found = asked.unwrap_or(own);
    if found > MAX_SEED {
        let message = format!("seed {found}, expected 0 to {MAX_SEED}");
        return Err(Problem::at(Code::SeedOutOfRange, "seed", message));
    }
    Ok(found)
}
