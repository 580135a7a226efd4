//! Cards of models: what their clients know of them, and what can be asked.

use std::collections::BTreeMap;

use lrvd_bench::Result;
use lrvd_bench::adapter::{
    AbstainBy, Generation, NEW_TOKENS, SavedClassifier, SavedLanguageModel, Withheld,
};
use lrvd_bench::answers::{AnswerSpace, QuestionKind};
use lrvd_bench::data::LanguageColumns;
use lrvd_bench::run::MAX_SEED;
use schemars::JsonSchema;
use serde::Serialize;

use super::model::{AnswerOptions, Limits, Model};
use super::problem::Problem;
use super::{
    CHAT_COMPLETIONS, CLASSIFY, COMPLETIONS, DECISIONS, GENERATE, SCHEMA_VERSION, SYSTEMONE,
};

/// Kind of a model, by its answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Kind {
    Classes,
    Choices,
    Labels,
    Scores,
    Texts,
    Decisions,
}

/// A model as its clients know it: `/v1/model`, and what can be asked.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(rename = "Model")]
pub(super) enum Card {
    Classifier(ClassifierCard),
    Language(LanguageCard),
}

impl Card {
    /// The card of `model` under `limits`; without a `name` it is called by what it was trained for.
    pub(super) fn new(model: &Model, name: Option<String>, limits: &Limits) -> Result<Self> {
        let mut card = match model {
            Model::Classifier { saved, draws, seed, abstaining, sets } => {
                let mut card = ClassifierCard::new(saved, *draws, *seed, abstaining.asked, limits);
                if sets.is_some() {
                    card.only_usual_draws();
                }
                Self::Classifier(card)
            }
            Model::Language { saved, draws, seed } => {
                Self::Language(LanguageCard::new(saved, *draws, *seed, limits)?)
            }
        };
        if let Some(name) = name {
            *match &mut card {
                Self::Classifier(card) => &mut card.name,
                Self::Language(card) => &mut card.name,
            } = name;
        }
        Ok(card)
    }

    /// Paths at which it is asked.
    pub(super) fn paths(&self) -> &'static [&'static str] {
        match self {
            Self::Classifier(card) if card.kind == Kind::Decisions => &[SYSTEMONE, DECISIONS],
            Self::Classifier(card) if card.decides => &[CLASSIFY, SYSTEMONE, DECISIONS],
            Self::Classifier(_) => &[CLASSIFY],
            Self::Language(_) => &[GENERATE, COMPLETIONS, CHAT_COMPLETIONS],
        }
    }

    pub(super) fn name(&self) -> &str {
        match self {
            Self::Classifier(card) => &card.name,
            Self::Language(card) => &card.name,
        }
    }

    /// In a sentence.
    pub(super) fn description(&self) -> String {
        let (method, does) = match self {
            Self::Classifier(card) => (
                Some(&card.method),
                match card.kind {
                    Kind::Decisions => "answers typed questions",
                    Kind::Choices => "answers questions with choices",
                    Kind::Scores => "predicts a number",
                    Kind::Labels => "labels texts",
                    Kind::Classes | Kind::Texts => "classifies texts",
                },
            ),
            Self::Language(card) => (card.method.as_ref(), "continues texts"),
        };
        match method {
            Some(method) => format!("{does}, trained by {method}"),
            None => does.to_owned(),
        }
    }
}

/// A model that classifies, predicts numbers or answers typed questions.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "ClassifierModel")]
pub(super) struct ClassifierCard {
    pub(super) schema_version: u32,
    /// Its name on the command line or in `/v1/adapters`; without one what it was trained for.
    pub(super) name: String,
    /// Method by which it was trained.
    pub(super) method: String,
    pub(super) kind: Kind,
    /// Labels in the order of the probabilities, the letters of questions with choices; empty for scores.
    pub(super) labels: Vec<String>,
    /// True if typed questions are answered, at `/v1/systemone` and `/v1/decisions`.
    pub(super) decides: bool,
    /// True if inputs are pairs of texts, questions about a passage; null where that is not known.
    pub(super) pairs: Option<bool>,
    /// The temperature of the answers, or the half-width of the interval of numbers, with the number of held-out rows that it was
    /// fitted to, or that they are not calibrated, in words; null where nothing is fitted.
    pub(super) calibration: Option<String>,
    /// Draws where a request names no number.
    pub(super) draws: usize,
    /// Seed of the draws where a request names none.
    pub(super) seed: u64,
    /// The numbers of draws that a request may ask for.
    pub(super) allowed_draws: Vec<usize>,
    /// By number of draws: the entropy in nats above which an answer is withheld. Empty where the server withholds none, and for a
    /// threshold on the entropy at temperature 1, which answers do not have.
    pub(super) abstain_above: BTreeMap<usize, f64>,
    /// Most texts of a request.
    pub(super) max_texts: usize,
    /// Most options of all questions of a request together, times its draws, 1 at the mean.
    pub(super) max_options: usize,
    /// Most bytes of a request.
    pub(super) max_bytes: usize,
}

impl ClassifierCard {
    /// The card of `classifier`. Numbers of draws that it has no temperature or threshold for, while it has them for
    /// others, cannot be asked for; thresholds count if they are `asked` for.
    fn new(
        classifier: &SavedClassifier,
        draws: usize,
        seed: u64,
        asked: Option<AbstainBy>,
        limits: &Limits,
    ) -> Self {
        let info = &classifier.info;
        let fitted = classifier.fitted_draws(asked);
        let is_stated = matches!(asked, Some(AbstainBy::Above(_)));
        let is_allowed = |draws: &usize| {
            // What was fitted is not for draws that are spared.
            let is_calibrated = |kind| classifier.calibration(kind, *draws).is_ok();
            classifier.draws(Some(*draws)).is_ok()
                && classifier.withheld(asked, *draws).is_ok()
                && QuestionKind::ALL.into_iter().all(is_calibrated)
        };
        let known = (0..=limits.max_draws).filter(|draws| {
            is_stated || fitted.as_ref().is_none_or(|fitted| fitted.contains(draws))
        });
        let allowed_draws: Vec<usize> = known.filter(is_allowed).collect();
        let above = |&draws: &usize| match classifier.withheld(asked, draws) {
            Ok(Some(
                Withheld::Above(above) | Withheld::Fitted { above, temperature: None, .. },
            )) => Some((draws, above)),
            _ => None,
        };
        let answers = &info.goal.answers;
        // Options of any question come with the request.
        let kind = match answers {
            AnswerSpace::Questions { .. } => Kind::Decisions,
            AnswerSpace::Choice { .. } => Kind::Choices,
            AnswerSpace::Labels { .. } => Kind::Labels,
            AnswerSpace::Score => Kind::Scores,
            AnswerSpace::Tokens => Kind::Texts,
            AnswerSpace::Classes { .. } | AnswerSpace::Question { .. } => Kind::Classes,
        };
        Self {
            schema_version: SCHEMA_VERSION,
            name: info.goal.name.clone(),
            method: info.run.method.clone(),
            kind,
            labels: if kind == Kind::Decisions { Vec::new() } else { answers.names() },
            decides: matches!(
                answers,
                AnswerSpace::Question { .. } | AnswerSpace::Questions { .. }
            ),
            pairs: info.pairs,
            calibration: info.temperatures.describe().or_else(|| info.intervals.describe()),
            draws,
            seed,
            abstain_above: allowed_draws.iter().filter_map(above).collect(),
            allowed_draws,
            max_texts: limits.max_texts,
            max_options: limits.max_options,
            max_bytes: limits.max_bytes,
        }
    }

    /// Allows no other number of draws than that of a request that names none.
    fn only_usual_draws(&mut self) {
        let draws = self.draws;
        self.allowed_draws.retain(|&allowed| allowed == draws);
        self.abstain_above.retain(|&allowed, _| allowed == draws);
    }

    /// Options of a request, or the error that names the wrong one.
    pub(super) fn options(
        &self,
        draws: Option<usize>,
        asked: Option<u64>,
    ) -> Result<AnswerOptions, Problem> {
        let draws = draws.unwrap_or(self.draws);
        if !self.allowed_draws.contains(&draws) {
            return Err(Problem::draws(draws, &self.allowed()));
        }
        Ok(AnswerOptions { draws, seed: seed(asked, self.seed)? })
    }

    /// The numbers of draws in words.
    fn allowed(&self) -> String {
        let all = &self.allowed_draws;
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

/// A model that continues texts.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "LanguageModel")]
pub(super) struct LanguageCard {
    pub(super) schema_version: u32,
    /// Its name on the command line or in `/v1/adapters`; without one its base model, without the place.
    pub(super) name: String,
    /// Method by which it was trained; null if the adapter does not state it.
    pub(super) method: Option<String>,
    pub(super) kind: Kind,
    /// True if it was trained on conversations.
    pub(super) chat: bool,
    /// True if `messages` can be sent: the base model has a template for conversations.
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
    /// Most prompts of a request.
    pub(super) max_texts: usize,
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
            max_texts: limits.max_texts,
            max_bytes: limits.max_bytes,
        })
    }

    /// Options of a request, or the error that names the wrong one.
    pub(super) fn options(
        &self,
        draws: Option<usize>,
        asked: Option<u64>,
    ) -> Result<AnswerOptions, Problem> {
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
        Ok(AnswerOptions { draws, seed: seed(asked, self.seed)? })
    }

    /// Checks sampling and the number of new tokens, at least `least`, which `field` holds.
    pub(super) fn check(
        &self,
        generation: &Generation,
        least: usize,
        field: &str,
    ) -> Result<(), Problem> {
        let found = generation.max_tokens;
        let most = self.max_tokens;
        if !(least..=most).contains(&found) {
            let message = format!("{found} new tokens, expected {least} to {most}");
            return Err(Problem::invalid(field, message));
        }
        generation.check().map_err(|error| {
            let field = match &error {
                lrvd_burn::core::Error::OutOfRange { name, .. } => *name,
                _ => "body",
            };
            Problem::invalid(field, error)
        })
    }
}

/// The seed of a request, `own` where it names none.
fn seed(asked: Option<u64>, own: u64) -> Result<u64, Problem> {
    let found = asked.unwrap_or(own);
    if found > MAX_SEED {
        let message = format!("seed {found}, expected 0 to {MAX_SEED}");
        return Err(Problem::invalid("seed", message));
    }
    Ok(found)
}
