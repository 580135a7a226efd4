//! Splits that share no sentence, and label noise of a stated amount.

use std::collections::HashSet;

use lrvd_core::noise::{Draws, NoiseKey, Stream, module_id, permutation};
use serde::{Deserialize, Serialize};

use super::scribe::{Draft, Scribe};
use super::write::GeneratedMark;
use super::{agreement, answer, entailment, paraphrase, sentiment};
use crate::data::{DataError, Dataset, Example, Label, Origin, Split, SplitName};
use crate::task::{GlueTask, Target};

/// Drafts that are tried for each wanted example before giving up.
const TRIES: usize = 400;

/// How much is generated, and from which seed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GenerateConfig {
    /// Seed of everything.
    pub seed: u64,
    /// Examples in the train split.
    pub n_train: usize,
    /// Examples in the validation split.
    pub n_validation: usize,
    /// Fraction of labels that are changed, in both splits; within `0..=0.5`.
    pub label_noise: f64,
}

impl Default for GenerateConfig {
    /// 2,000 and 500 examples, one label in twenty changed.
    fn default() -> Self {
        Self { seed: 1, n_train: 2_000, n_validation: 500, label_noise: 0.05 }
    }
}

/// A generated task.
#[derive(Debug, Clone, PartialEq)]
pub struct Generated {
    /// The task.
    pub task: GlueTask,
    /// How it was generated.
    pub config: GenerateConfig,
    /// Train split, labels as they are to be learnt.
    pub train: Vec<Example>,
    /// Validation split.
    pub validation: Vec<Example>,
    /// Rows of `train` whose label was changed, in ascending order.
    pub noisy_train: Vec<usize>,
    /// Rows of `validation` whose label was changed, in ascending order.
    pub noisy_validation: Vec<usize>,
    ceiling: f64,
}

/// Generates one task.
///
/// No sentence occurs twice anywhere in the result, so the splits share none. Classes are equally frequent over
/// both splits together, before the noise. The noise changes exactly `round(label_noise · n)` labels of each
/// split: a class to one of the others, a score to a uniform draw from its range.
///
/// # Errors
///
/// [`DataError::Setting`] for an empty split or a fraction outside `0..=0.5`; [`DataError::Exhausted`] if the
/// grammar has too few sentences.
///
/// # Invariants
///
/// A pure function of its arguments, the same on every machine. The clean label is a function of the text, so the
/// best reachable accuracy on a split is exactly `1 − round(label_noise · n)/n`.
pub fn generate(task: GlueTask, config: &GenerateConfig) -> Result<Generated, DataError> {
    check(config)?;
    let key = NoiseKey::new(config.seed).on_stream(Stream::DATA).for_module(module_id(task.name()));
    let mut drafts = drafts(task, config.n_train + config.n_validation, key)?;
    let validation = drafts.split_off(config.n_train);
    let clean: Vec<f64> = validation.iter().filter_map(|draft| draft.label.score()).collect();
    let (train, noisy_train) = finish(drafts, task, config.label_noise, key.with_use(1));
    let (validation, noisy_validation) =
        finish(validation, task, config.label_noise, key.with_use(2));
    let ceiling = if task.spec().is_regression() {
        let noisy: Vec<f64> =
            validation.iter().filter_map(|example| example.label.score()).collect();
        correlation(&clean, &noisy)
    } else {
        1.0 - noisy_validation.len() as f64 / validation.len() as f64
    };
    let config = *config;
    Ok(Generated { task, config, train, validation, noisy_train, noisy_validation, ceiling })
}

impl Generated {
    /// The best reachable result on the validation split: the accuracy (for regression, the correlation with the
    /// labels) of one who knows every clean label.
    pub const fn validation_ceiling(&self) -> f64 {
        self.ceiling
    }

    /// What a folder of this task says of itself.
    pub fn mark(&self) -> GeneratedMark {
        GeneratedMark {
            task: self.task,
            config: self.config,
            noisy_train: self.noisy_train.clone(),
            noisy_validation: self.noisy_validation.clone(),
            validation_ceiling: self.ceiling,
        }
    }

    /// The task as a data set that was never written.
    pub fn into_dataset(self) -> Dataset {
        let notes = self.mark().notes();
        let split =
            |name, examples| Split { name, origin: Origin::Generated, files: Vec::new(), examples };
        Dataset {
            task: self.task,
            train: split(SplitName::Train, self.train),
            validation: split(SplitName::Validation, self.validation),
            notes,
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
    let value = config.label_noise;
    if !(0.0..=0.5).contains(&value) {
        return Err(DataError::Setting { name: "label_noise", value, wanted: "0 to 0.5" });
    }
    Ok(())
}

/// Drafts in random order with balanced classes, no sentence twice.
fn drafts(task: GlueTask, wanted: usize, key: NoiseKey) -> Result<Vec<Draft>, DataError> {
    let grammar = match task {
        GlueTask::Cola => agreement::draft,
        GlueTask::Sst2 => sentiment::draft,
        GlueTask::Mrpc => paraphrase::draft,
        GlueTask::Qqp => paraphrase::question_draft,
        GlueTask::Mnli => entailment::three_way,
        GlueTask::Qnli => answer::draft,
        GlueTask::Rte => entailment::two_way,
        GlueTask::Stsb => paraphrase::similarity_draft,
    };
    let n_classes = task.spec().n_labels();
    let mut room = vec![wanted.div_ceil(n_classes); n_classes];
    let mut scribe = Scribe { draws: Draws::new(key) };
    let mut known = HashSet::new();
    let mut drafts = Vec::with_capacity(wanted);
    for _ in 0..wanted.saturating_mul(TRIES) {
        if drafts.len() == wanted {
            break;
        }
        let draft = grammar(&mut scribe);
        let class = draft.label.class().unwrap_or_default();
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

/// Numbers the examples and changes the labels of a part of them.
fn finish(
    drafts: Vec<Draft>,
    task: GlueTask,
    label_noise: f64,
    key: NoiseKey,
) -> (Vec<Example>, Vec<usize>) {
    let n_noisy = (label_noise * drafts.len() as f64).round() as usize;
    let mut noisy = permutation(key, drafts.len());
    noisy.truncate(n_noisy);
    noisy.sort_unstable();
    let mut draws = Draws::new(key.at_step(1));
    let mut examples: Vec<Example> = drafts
        .into_iter()
        .enumerate()
        .map(|(row, Draft { text_a, text_b, label })| Example {
            id: id(task, row),
            text_a,
            text_b,
            label,
        })
        .collect();
    for row in &noisy {
        let label = &mut examples[*row].label;
        *label = match (task.spec().target, *label) {
            (Target::Classes(names), Label::Class(id)) => {
                Label::Class((id + 1 + draws.index(names.len() - 1)) % names.len())
            }
            // Thousandths, as the file layout holds them.
            (Target::Score { low, high }, _) => {
                Label::Score((1e3 * (low + (high - low) * draws.uniform())).round() / 1e3)
            }
            (_, label) => label,
        };
    }
    (examples, noisy)
}

/// The id that a reader gives this row of the written file.
fn id(task: GlueTask, row: usize) -> String {
    match task {
        GlueTask::Mrpc => format!("{}-{}", 2 * row + 1, 2 * row + 2),
        _ => row.to_string(),
    }
}

/// Pearson's correlation coefficient; 0 where one side does not vary.
fn correlation(x: &[f64], y: &[f64]) -> f64 {
    let n = x.len() as f64;
    let (mean_x, mean_y) = (x.iter().sum::<f64>() / n, y.iter().sum::<f64>() / n);
    let (mut xy, mut xx, mut yy) = (0.0, 0.0, 0.0);
    for (a, b) in x.iter().zip(y) {
        let (a, b) = (a - mean_x, b - mean_y);
        xy += a * b;
        xx += a * a;
        yy += b * b;
    }
    if xx * yy > 0.0 { xy / (xx * yy).sqrt() } else { 0.0 }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::data::generate::write_all;
    use crate::data::load;

    const SMALL: GenerateConfig =
        GenerateConfig { seed: 5, n_train: 150, n_validation: 50, label_noise: 0.1 };

    fn sentences(examples: &[Example]) -> Vec<&str> {
        examples
            .iter()
            .flat_map(|e| [Some(e.text_a.as_str()), e.text_b.as_deref()])
            .flatten()
            .collect()
    }

    #[test]
    fn no_sentence_occurs_twice_and_classes_are_balanced() {
        for task in GlueTask::ALL {
            let generated = generate(task, &SMALL).unwrap();
            let all = [sentences(&generated.train), sentences(&generated.validation)].concat();
            let distinct: HashSet<_> = all.iter().collect();
            assert_eq!(distinct.len(), all.len(), "{task}");
            let quiet = GenerateConfig { label_noise: 0.0, ..SMALL };
            let clean = generate(task, &quiet).unwrap();
            let classes = task.spec().class_names().len();
            let rows = clean.train.iter().chain(&clean.validation);
            let counts =
                rows.filter_map(|e| e.label.class()).fold(vec![0; classes], |mut n, id| {
                    n[id] += 1;
                    n
                });
            assert!(
                counts.iter().all(|n| usize::abs_diff(*n, 200 / classes) <= 1),
                "{task} {counts:?}"
            );
        }
    }

    #[test]
    fn noise_changes_exactly_the_listed_labels() {
        for task in GlueTask::ALL {
            let noisy = generate(task, &SMALL).unwrap();
            let clean = generate(task, &GenerateConfig { label_noise: 0.0, ..SMALL }).unwrap();
            for (noisy, clean, rows, wanted) in [
                (&noisy.train, &clean.train, &noisy.noisy_train, 15),
                (&noisy.validation, &clean.validation, &noisy.noisy_validation, 5),
            ] {
                let pairs = noisy.iter().zip(clean).enumerate();
                assert!(pairs.clone().all(|(_, (n, c))| n.text_a == c.text_a));
                let changed: Vec<usize> =
                    pairs.filter(|(_, (n, c))| n.label != c.label).map(|(row, _)| row).collect();
                assert_eq!((&changed, changed.len()), (rows, wanted), "{task}");
            }
            let ceiling = noisy.validation_ceiling();
            let wanted = if task == GlueTask::Stsb { 0.6..0.999 } else { 0.9..0.9 + 1e-12 };
            assert!(wanted.contains(&ceiling), "{task} {ceiling}");
        }
    }

    #[test]
    fn the_seed_decides_everything() {
        for task in GlueTask::ALL {
            let first = generate(task, &SMALL).unwrap();
            assert_eq!(first, generate(task, &SMALL).unwrap());
            assert_ne!(
                first.train,
                generate(task, &GenerateConfig { seed: 6, ..SMALL }).unwrap().train
            );
        }
    }

    #[test]
    fn written_files_are_read_back_by_the_readers_of_the_originals() {
        let dir = tempfile::tempdir().unwrap();
        write_all(dir.path(), &SMALL).unwrap();
        for task in GlueTask::ALL {
            let generated = generate(task, &SMALL).unwrap();
            let data = load(dir.path(), task).unwrap();
            assert_eq!(data.train.examples, generated.train, "{task}");
            assert_eq!(data.validation.examples, generated.validation, "{task}");
            assert_eq!(data.validation.origin, Origin::Generated);
            assert_eq!(data.notes, generated.clone().into_dataset().notes);
            assert!(
                data.notes[1].contains("15 of 150 train and 5 of 50 validation"),
                "{:?}",
                data.notes
            );
        }
        let mrpc = std::fs::read(dir.path().join("MRPC/train.tsv")).unwrap();
        assert!(mrpc.starts_with(b"\xef\xbb\xbfQuality\t"));
    }

    #[test]
    fn equal_texts_never_carry_different_clean_labels() {
        let grammars: [fn(&mut Scribe) -> Draft; 7] = [
            agreement::draft,
            sentiment::draft,
            paraphrase::draft,
            paraphrase::question_draft,
            entailment::three_way,
            answer::draft,
            paraphrase::similarity_draft,
        ];
        for (number, grammar) in grammars.into_iter().enumerate() {
            let mut scribe = Scribe { draws: Draws::new(NoiseKey::new(number as u64)) };
            let mut known = std::collections::HashMap::new();
            for _ in 0..40_000 {
                let Draft { text_a, text_b, label } = grammar(&mut scribe);
                let before = *known.entry((text_a.clone(), text_b.clone())).or_insert(label);
                assert_eq!(before, label, "{text_a} | {text_b:?}");
            }
        }
    }

    #[test]
    fn settings_are_checked_at_their_limits() {
        let with = |label_noise| generate(GlueTask::Rte, &GenerateConfig { label_noise, ..SMALL });
        assert!(with(0.0).is_ok() && with(0.5).is_ok());
        for bad in [-0.001, 0.501, f64::NAN] {
            let error = with(bad).unwrap_err().to_string();
            assert!(
                error.starts_with("`label_noise` is") && error.ends_with("wanted 0 to 0.5"),
                "{error}"
            );
        }
        let empty = GenerateConfig { n_validation: 0, ..SMALL };
        let error = generate(GlueTask::Rte, &empty).unwrap_err().to_string();
        assert_eq!(error, "`n_validation` is 0, wanted at least 1");
    }
}
