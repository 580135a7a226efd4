//! Splits that share no sentence, and label noise of a stated amount.

use std::collections::HashSet;

use lrvd_core::noise::{Draws, NoiseKey, Stream, module_id};
use serde::{Deserialize, Serialize};

use super::phrase::Draft;
use super::write::GeneratedMark;
use super::{agreement, check_task, entailment, sentiment};
use crate::data::generator::{Generator, add_noise, check_noise};
use crate::data::{DataError, Example, Label};
use crate::task::GlueTask;

/// Drafts that are tried for each wanted example before giving up.
const TRIES: usize = 400;

/// How much is generated, and from which seed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GenerateConfig {
    /// Seed of everything.
    pub(crate) seed: u64,
    /// Examples in the train split.
    pub(crate) n_train: usize,
    /// Examples in the validation split.
    pub(crate) n_validation: usize,
    /// Fraction of labels that are changed, in both splits; within `0..=0.5`.
    pub(crate) label_noise: f64,
}

impl Default for GenerateConfig {
    /// 2,000 and 500 examples, one label in twenty changed.
    fn default() -> Self {
        Self { seed: 1, n_train: 2_000, n_validation: 500, label_noise: 0.05 }
    }
}

/// A generated task.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Generated {
    /// The task.
    pub(crate) task: GlueTask,
    /// How it was generated.
    pub(crate) config: GenerateConfig,
    /// Train split, labels as they are to be learnt.
    pub(crate) train: Vec<Example>,
    /// Validation split.
    pub(crate) validation: Vec<Example>,
    /// Rows of `train` whose label was changed, in ascending order.
    pub(crate) noisy_train: Vec<usize>,
    /// Rows of `validation` whose label was changed, in ascending order.
    pub(crate) noisy_validation: Vec<usize>,
}

/// Generates one task.
///
/// No sentence occurs twice anywhere in the result, so the splits share none. Classes are equally frequent over
/// both splits together, before the noise. The noise changes exactly `round(label_noise · n)` labels of each
/// split to one of the other classes.
///
/// # Invariants
///
/// A pure function of its arguments, the same on every machine. The clean label is a function of the text, so the
/// best reachable accuracy on a split is exactly `1 − round(label_noise · n)/n`.
pub(crate) fn generate(task: GlueTask, config: &GenerateConfig) -> Result<Generated, DataError> {
    check_task(task)?;
    check(config)?;
    let key = NoiseKey::new(config.seed).on_stream(Stream::DATA).for_module(module_id(task.name()));
    let mut drafts = drafts(task, config.n_train + config.n_validation, key)?;
    let validation = drafts.split_off(config.n_train);
    let classes = task.spec().n_labels();
    let noise = config.label_noise;
    let (train, noisy_train) = finish(drafts, classes, noise, key.with_use(1));
    let (validation, noisy_validation) = finish(validation, classes, noise, key.with_use(2));
    Ok(Generated { task, config: *config, train, validation, noisy_train, noisy_validation })
}

impl Generated {
    /// The accuracy on the validation split of one who knows every clean label.
    pub(crate) fn validation_ceiling(&self) -> f64 {
        1.0 - self.noisy_validation.len() as f64 / self.validation.len() as f64
    }

    /// What a folder of this task says of itself.
    pub(crate) fn mark(&self) -> GeneratedMark {
        GeneratedMark {
            task: self.task,
            config: self.config,
            noisy_train: self.noisy_train.clone(),
            noisy_validation: self.noisy_validation.clone(),
            validation_ceiling: self.validation_ceiling(),
        }
    }
}

fn check(config: &GenerateConfig) -> Result<(), DataError> {
    let wanted = "at least 1";
    for (name, value) in [("n_train", config.n_train), ("n_validation", config.n_validation)] {
        if value == 0 {
            return Err(DataError::Setting { name, value: 0.0, wanted });
        }
    }
    check_noise(config.label_noise)
}

/// Drafts in random order with balanced classes, no sentence twice.
fn drafts(task: GlueTask, wanted: usize, key: NoiseKey) -> Result<Vec<Draft>, DataError> {
    let grammar = match task {
        GlueTask::Cola => agreement::draft,
        GlueTask::Sst2 => sentiment::draft,
        _ => entailment::draft,
    };
    let n_classes = task.spec().n_labels();
    let mut room = vec![wanted.div_ceil(n_classes); n_classes];
    let mut generator = Generator { draws: Draws::new(key) };
    let mut known = HashSet::new();
    let mut drafts = Vec::with_capacity(wanted);
    for _ in 0..wanted.saturating_mul(TRIES) {
        if drafts.len() == wanted {
            break;
        }
        let draft = grammar(&mut generator);
        let class = draft.class;
        let second = draft.text_b.as_ref();
        let repeated = known.contains(&draft.text_a)
            || second.is_some_and(|text| known.contains(text) || *text == draft.text_a);
        if repeated || room[class] == 0 {
            continue;
        }
        room[class] -= 1;
        known.insert(draft.text_a.clone());
        known.extend(second.cloned());
        drafts.push(draft);
    }
    if drafts.len() < wanted {
        return Err(DataError::Exhausted { task: task.name(), wanted, found: drafts.len() });
    }
    // The class that fills up last would otherwise crowd the end, which becomes the validation split.
    Draws::new(key.with_use(3)).shuffle(&mut drafts);
    Ok(drafts)
}

/// Changes the labels of a part of the examples and numbers them all.
fn finish(
    mut drafts: Vec<Draft>,
    classes: usize,
    label_noise: f64,
    key: NoiseKey,
) -> (Vec<Example>, Vec<usize>) {
    let noisy = add_noise(&mut drafts, label_noise, key, |draft| (&mut draft.class, classes));
    let example = |(row, Draft { text_a, text_b, class }): (usize, Draft)| Example {
        id: row.to_string(),
        text_a,
        text_b,
        choices: Vec::new(),
        label: Label::Class(class),
    };
    (drafts.into_iter().enumerate().map(example).collect(), noisy)
}
