//! Splits that share no item, and label noise of a stated amount.

use std::collections::HashSet;

use lrvd_core::noise::{Draws, NoiseKey, Stream, module_id};
use serde::{Deserialize, Serialize};

use super::write::FileMark;
use super::{arc, check_set, openbook, winogrande};
use crate::data::generator::{Generator, add_noise, check_noise};
use crate::data::{DataError, SplitName};
use crate::reasoning::{ChoiceItem, ReasoningError, ReasoningSet};

/// Drafts that are tried for each wanted item before giving up.
const TRIES: usize = 200;

/// How much is generated, and from which seed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReasoningGenerateConfig {
    /// Seed of everything.
    pub(crate) seed: u64,
    /// Training rows of WG-S and ARC-C; even, at most `n_train_large`.
    pub(crate) n_train_small: usize,
    /// Training rows of the other four sets; even.
    pub(crate) n_train_large: usize,
    /// Validation rows of every set; even.
    pub(crate) n_validation: usize,
    /// Fraction of answers that are changed, in both splits; within `0..=0.5`.
    pub(crate) label_noise: f64,
}

impl Default for ReasoningGenerateConfig {
    /// 640 or 2,000 training rows and 400 validation rows, one answer in twenty changed.
    fn default() -> Self {
        Self {
            seed: 1,
            n_train_small: 640,
            n_train_large: 2_000,
            n_validation: 400,
            label_noise: 0.05,
        }
    }
}

impl ReasoningGenerateConfig {
    /// Training rows of one set.
    pub(crate) const fn n_train(&self, set: ReasoningSet) -> usize {
        match set {
            ReasoningSet::WgS | ReasoningSet::ArcC => self.n_train_small,
            _ => self.n_train_large,
        }
    }

    fn check(&self) -> Result<(), DataError> {
        let counts = [
            ("n_train_small", self.n_train_small),
            ("n_train_large", self.n_train_large),
            ("n_validation", self.n_validation),
        ];
        let refused = |name, value: usize, wanted| {
            Err(DataError::Setting { name, value: value as f64, wanted })
        };
        for (name, value) in counts {
            if value == 0 || value % 2 == 1 {
                return refused(name, value, "an even number from 2");
            }
        }
        if self.n_train_small > self.n_train_large {
            return refused("n_train_small", self.n_train_small, "at most `n_train_large`");
        }
        check_noise(self.label_noise)
    }
}

/// A generated set.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct GeneratedSet {
    /// The set.
    pub(crate) set: ReasoningSet,
    /// How it was generated.
    pub(crate) config: ReasoningGenerateConfig,
    /// Train split, answers as they are to be learnt.
    pub(crate) train: Vec<ChoiceItem>,
    /// Validation split.
    pub(crate) validation: Vec<ChoiceItem>,
    /// Rows of `train` whose answer was changed, in ascending order.
    pub(crate) noisy_train: Vec<usize>,
    /// Rows of `validation` whose answer was changed, in ascending order.
    pub(crate) noisy_validation: Vec<usize>,
}

/// Generates one set.
///
/// No item occurs twice in the two splits together, not even with its choices in another order. Twin sentences stay
/// together, and the train split of WG-S is the beginning of that of WG-M, with the same validation split, as in
/// the original. The noise changes exactly `round(label_noise · n)` answers of the validation split and of the train
/// split (of WG-M: of its first `n_train_small` rows and of the others).
///
/// # Invariants
///
/// A pure function of its arguments, the same on every machine. Without noise the answer is a function of the text,
/// so the best reachable accuracy on the validation split is exactly `1 − round(label_noise · n)/n`.
pub(crate) fn generate(
    set: ReasoningSet,
    config: &ReasoningGenerateConfig,
) -> Result<GeneratedSet, ReasoningError> {
    check_set(set)?;
    config.check()?;
    let name = match set {
        ReasoningSet::WgS | ReasoningSet::WgM => "winogrande",
        other => other.name(),
    };
    let id = module_id(&format!("reasoning/{name}"));
    let key = NoiseKey::new(config.seed).on_stream(Stream::DATA).for_module(id);
    // Both sizes of the sentences with a blank are cut from the larger one.
    let n_generated = if name == "winogrande" { config.n_train_large } else { config.n_train(set) };
    let wanted = n_generated + config.n_validation;
    let mut drafts = drafts(set, wanted, key)?;
    for (row, draft) in drafts.iter_mut().enumerate() {
        draft.id = row_id(set, row);
    }
    let first = config.n_train_small.min(n_generated);
    let spans = [0..first, first..n_generated, n_generated..wanted];
    let mut noisy = Vec::new();
    for (span, part) in spans.into_iter().zip(1..) {
        let changed =
            add_noise(&mut drafts[span.clone()], config.label_noise, key.with_use(part), |item| {
                (&mut item.answer, item.choices.len())
            });
        noisy.extend(changed.into_iter().map(|row| span.start + row));
    }
    let n_train = config.n_train(set);
    let noisy_train = noisy.iter().copied().filter(|row| *row < n_train).collect();
    let of_validation = noisy.iter().filter(|row| **row >= n_generated);
    let noisy_validation = of_validation.map(|row| row - n_generated).collect();
    let validation = drafts.split_off(n_generated);
    drafts.truncate(n_train);
    Ok(GeneratedSet {
        set,
        config: *config,
        train: drafts,
        validation,
        noisy_train,
        noisy_validation,
    })
}

impl GeneratedSet {
    /// Accuracy on the validation split of one who knows every answer before the noise.
    pub(crate) fn validation_ceiling(&self) -> f64 {
        self.mark(SplitName::Validation).ceiling()
    }

    /// What the mark of a folder says of one split's file.
    pub(crate) fn mark(&self, split: SplitName) -> FileMark {
        let (rows, noisy) = match split {
            SplitName::Train => (self.train.len(), &self.noisy_train),
            SplitName::Validation => (self.validation.len(), &self.noisy_validation),
        };
        FileMark { rows, noisy: noisy.clone() }
    }
}

/// Distinct drafts; twins beside each other.
fn drafts(set: ReasoningSet, wanted: usize, key: NoiseKey) -> Result<Vec<ChoiceItem>, DataError> {
    let mut generator = Generator { draws: Draws::new(key) };
    let mut known = HashSet::new();
    let mut drafts = Vec::with_capacity(wanted);
    for _ in 0..wanted.saturating_mul(TRIES) {
        if drafts.len() >= wanted {
            break;
        }
        let new: Vec<ChoiceItem> = match set {
            ReasoningSet::ArcC => vec![arc::hard(&mut generator)],
            ReasoningSet::ArcE => vec![arc::easy(&mut generator)],
            ReasoningSet::Obqa => vec![openbook::draft(&mut generator)],
            _ => winogrande::twins(&mut generator).into(),
        };
        let keys: Vec<String> = new.iter().map(identity).collect();
        if keys.iter().all(|key| !known.contains(key)) {
            known.extend(keys);
            drafts.extend(new);
        }
    }
    if drafts.len() < wanted {
        return Err(DataError::Exhausted { task: set.name(), wanted, found: drafts.len() });
    }
    drafts.truncate(wanted);
    Ok(drafts)
}

/// Texts of an item, the choices in alphabetical order.
fn identity(item: &ChoiceItem) -> String {
    let mut texts: Vec<&str> = item.choices.iter().map(|choice| choice.text.as_str()).collect();
    texts.sort_unstable();
    format!("{}\n{}", item.question, texts.join("\n"))
}

/// The id of a row.
fn row_id(set: ReasoningSet, row: usize) -> String {
    match set {
        ReasoningSet::WgS | ReasoningSet::WgM => format!("GEN{:05}-{}", row / 2, row % 2 + 1),
        _ => format!("GEN_{row:05}"),
    }
}
