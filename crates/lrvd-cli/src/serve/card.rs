//! What clients can know of the model.

use std::collections::BTreeMap;

use lrvd_bench::classify::{MAX_SEED, SavedClassifier};
use schemars::JsonSchema;
use serde::Serialize;

use super::answer::SCHEMA_VERSION;
use super::problem::Problem;
use super::queue::Key;

/// What a model answers with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Kind {
    Classes,
    Scores,
}

/// The model that answers.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "Model")]
pub(super) struct ModelCard {
    pub(super) schema_version: u32,
    /// What it was trained for.
    pub(super) name: String,
    /// How it was trained.
    pub(super) method: String,
    pub(super) kind: Kind,
    /// Labels in the order of the probabilities; empty for scores.
    pub(super) labels: Vec<String>,
    /// Whether inputs are pairs of texts; null where that is not known.
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

impl ModelCard {
    /// The card of `classifier`. Numbers of draws that it has no temperature or threshold for, while it has them for
    /// others, cannot be asked for; `limit` takes the place of all thresholds.
    pub(super) fn new(
        classifier: &SavedClassifier,
        draws: usize,
        seed: u64,
        limit: Option<f64>,
        max_draws: usize,
        [max_texts, max_bytes]: [usize; 2],
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
            method: info.method.clone(),
            kind: if scores { Kind::Scores } else { Kind::Classes },
            labels: if scores { Vec::new() } else { info.goal.classes.clone() },
            pairs: info.pairs,
            draws,
            seed,
            abstain_above: (0..=max_draws).filter_map(threshold).collect(),
            max_texts,
            max_bytes,
        }
    }

    /// What to draw for a request, and the entropy above which its answers are withheld.
    pub(super) fn key(
        &self,
        draws: Option<usize>,
        seed: Option<u64>,
    ) -> Result<(Key, Option<f64>), Problem> {
        let (draws, seed) = (draws.unwrap_or(self.draws), seed.unwrap_or(self.seed));
        let Some(limit) = self.abstain_above.get(&draws) else {
            return Err(Problem::Draws { found: draws, wanted: self.allowed() });
        };
        if seed > MAX_SEED {
            return Err(Problem::Seed { found: seed, most: MAX_SEED });
        }
        Ok((Key { draws, seed }, *limit))
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
