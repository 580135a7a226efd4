//! What clients can know of a classifier.

use std::collections::BTreeMap;

use lrvd_bench::adapter::SavedClassifier;
use lrvd_bench::data::Input;
use schemars::JsonSchema;
use serde::Serialize;

use super::answer::{Answers, Found};
use super::request::Request;
use crate::serve::problem::Problem;
use crate::serve::routes::Limits;
use crate::serve::served::{Asked, Card, Kind, SCHEMA_VERSION, seed};

/// Where classifiers are asked.
pub(crate) const CLASSIFY: &str = "/v1/classify";

/// What is drawn for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Drawn {
    /// 0 for the mean.
    pub(crate) draws: usize,
    /// Addresses the draws.
    pub(crate) seed: u64,
}

/// The model that answers.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "Model")]
pub(crate) struct ClassifierCard {
    pub(crate) schema_version: u32,
    /// What it was trained for.
    pub(crate) name: String,
    /// How it was trained.
    pub(crate) method: String,
    pub(crate) kind: Kind,
    /// Labels in the order of the probabilities, the letters of questions with choices; empty for scores.
    pub(crate) labels: Vec<String>,
    /// Whether inputs are pairs of texts, questions about a passage; null where that is not known.
    pub(crate) pairs: Option<bool>,
    /// Draws where a request names no number.
    pub(crate) draws: usize,
    /// Seed of the draws where a request names none.
    pub(crate) seed: u64,
    /// By number of draws that a request may ask for: the entropy in nats above which the answer is withheld, null
    /// where there is no such threshold.
    pub(crate) abstain_above: BTreeMap<usize, Option<f64>>,
    /// Most texts of a request.
    pub(crate) max_texts: usize,
    /// Most bytes of a request.
    pub(crate) max_bytes: usize,
}

impl ClassifierCard {
    /// The card of `classifier`. Numbers of draws that it has no temperature or threshold for, while it has them for
    /// others, cannot be asked for; `limit` takes the place of all thresholds.
    pub(super) fn new(
        classifier: &SavedClassifier,
        Drawn { draws, seed }: Drawn,
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
    pub(super) fn drawn(&self, draws: Option<usize>, asked: Option<u64>) -> Result<Drawn, Problem> {
        let draws = draws.unwrap_or(self.draws);
        if !self.abstain_above.contains_key(&draws) {
            return Err(Problem::Draws { found: draws, expected: self.allowed() });
        }
        Ok(Drawn { draws, seed: seed(asked, self.seed)? })
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

impl Card for ClassifierCard {
    const PATH: &'static str = CLASSIFY;
    const DESCRIPTION: &'static str = "A classifier that says how sure it is.";
    const SUMMARY: &'static str = "Classify texts, with uncertainty.";

    type Request = Request;
    type Input = Input;
    type Key = Drawn;
    type Found = Found;
    type Answers = Answers;

    fn check(&self, request: Request) -> Result<Asked<Self>, Problem> {
        request.check(self)
    }

    fn answers(&self, found: Vec<Found>, key: Drawn) -> Answers {
        let limit = self.abstain_above.get(&key.draws).copied().flatten();
        Answers::new(found, &self.labels, key, limit)
    }

    fn withheld(answers: &Answers) -> usize {
        answers.withheld()
    }

    fn draws(key: Drawn) -> usize {
        key.draws
    }
}
