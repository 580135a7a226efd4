//! Reads the files that were located, says what a reader of the results must know of them, and tokenises them.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use anyhow::bail;
use lrvd_core::noise::{NoiseKey, Stream, permutation};
use serde::Deserialize;

use super::batch::TokenisedExample;
use super::table::{Format, Layout, Table};
use super::{
    Dataset, Example, FileSet, Origin, SourceFile, Split, SplitName, locate, read_examples,
};
use crate::error::{Error, Result};
use crate::io::{cannot, read_text, sha256_file};
use crate::record::Metrics;
use crate::task::{GlueTask, Goal};

/// Columns of the list of dev pairs, which has no header.
const PAIR: &[&str] = &["#1 ID", "#2 ID"];

pub(crate) fn load(data_dir: &Path, task: GlueTask) -> Result<Dataset> {
    let located = locate(data_dir, task)?;
    let mut train = read_files(&located.train, task)?;
    let mut validation = read_files(&located.validation, task)?;
    let mut notes = Vec::new();
    if let Some(mark) = GeneratedMark::read(&located.folder)? {
        train.origin = Origin::Generated;
        validation.origin = Origin::Generated;
        let (train, validation) = (train.file_names(), validation.file_names());
        notes.extend(mark.notes(task.display_name(), "labels", &train, &validation, None));
    }
    notes.extend([&train, &validation].into_iter().filter_map(|split| note(split, task)));
    notes.extend(validation.note_shared(&train, "texts", |e| (&e.text_a, &e.text_b)));
    Ok(Dataset { task, train, validation, notes })
}

/// Reads one split.
///
/// The origin `Official` is kept only where the number of rows is the published one.
pub(crate) fn read_files(set: &FileSet, task: GlueTask) -> Result<Split> {
    let mut examples = Vec::new();
    for file in &set.files {
        examples.extend(read_examples(file, set.format, task)?);
    }
    if let Some(list) = &set.dev_pairs {
        examples = chosen_pairs(examples, list, set.split)?;
    }
    let sources = set.files.iter().chain(&set.dev_pairs);
    let files = sources.map(|file| describe(file)).collect::<Result<_, _>>()?;
    let spec = task.spec();
    let published = match set.split {
        SplitName::Train => spec.n_train,
        SplitName::Validation => spec.n_validation,
    };
    let origin = match set.origin {
        Origin::Official if examples.len() != published => Origin::Unverified,
        origin => origin,
    };
    Ok(Split { name: set.split, origin, files, examples })
}

/// The pairs of the corpus that the list names (validation) or does not (train), in the corpus's order.
fn chosen_pairs(examples: Vec<Example>, list: &Path, split: SplitName) -> Result<Vec<Example>> {
    let layout = Layout { unnamed: Some(PAIR), ..Layout::of(Format::Tsv) };
    let mut listed = HashSet::new();
    for row in Table::open(list, &layout)? {
        let row = row?;
        listed.insert(format!("{}-{}", row.text(&PAIR[..1])?, row.text(&PAIR[1..])?));
    }
    let n_listed = listed.len();
    let (chosen, rest): (Vec<_>, Vec<_>) =
        examples.into_iter().partition(|example| listed.contains(&example.id));
    if chosen.len() != n_listed || chosen.is_empty() {
        let (expected, found) = (n_listed, chosen.len());
        bail!("`{}` names {expected} pairs, of which the corpus has {found}", list.display());
    }
    Ok(match split {
        SplitName::Train => rest,
        SplitName::Validation => chosen,
    })
}

pub(crate) fn describe(path: &Path) -> Result<SourceFile> {
    let bytes = std::fs::metadata(path).map_err(cannot("read", path))?.len();
    Ok(SourceFile { path: path.into(), bytes, sha256: sha256_file(path)? })
}

/// Why metrics on a split cannot stand beside published ones; `None` where they can.
fn note(split: &Split, task: GlueTask) -> Option<String> {
    let spec = task.spec();
    let published = match split.name {
        SplitName::Train => spec.n_train,
        SplitName::Validation => spec.n_validation,
    };
    let (name, rows, described) = (split.name, split.rows(), split.describe());
    match split.origin {
        Origin::Official | Origin::Generated => None,
        Origin::Unverified | Origin::Subset => {
            Some(format!("{name}: {described}, {rows} rows; the published split has {published}"))
        }
        Origin::LocalSplit => Some(format!("{name}: {described}, {rows} rows")),
    }
}

/// Cuts validation `rows` to the first `most` and says so.
pub(crate) fn limit<T>(rows: &mut Vec<T>, most: Option<usize>) -> Option<String> {
    let most = most.filter(|&most| most < rows.len())?;
    let all = rows.len();
    rows.truncate(most);
    Some(format!("evaluated on the first {most} of {all} validation rows"))
}

/// Cuts training `rows` to `most` drawn without replacement, in their order, and says so. The same rows
/// whatever the seed of the run: seeds then differ in nothing but training.
pub(crate) fn sample<T>(rows: &mut Vec<T>, most: Option<usize>) -> Option<String> {
    let most = most.filter(|&most| most < rows.len())?;
    let all = rows.len();
    *rows = drawn(std::mem::take(rows), most, 0).0;
    Some(format!("trained on {most} of {all} rows, drawn at random"))
}

/// `count` of the `rows`, and the others, drawn by `seed`; both in their order. Seed 0 is for what is drawn once and for
/// all runs.
pub(crate) fn drawn<T>(rows: Vec<T>, count: usize, seed: u64) -> (Vec<T>, Vec<T>) {
    let order = permutation(NoiseKey::new(seed).on_stream(Stream::DATA), rows.len());
    let mut is_drawn = vec![false; rows.len()];
    order[..count.min(rows.len())].iter().for_each(|&row| is_drawn[row] = true);
    let mut is_drawn = is_drawn.into_iter();
    rows.into_iter().partition(|_| is_drawn.next().unwrap_or(false))
}

const MARK: &str = "generated.json";

/// A generated folder: its seed, and the changed labels of its files.
#[derive(Debug)]
pub(crate) struct GeneratedMark {
    seed: u64,
    files: BTreeMap<String, FileMark>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileMark {
    rows: usize,
    /// Rows whose label was changed, counted from 0.
    noisy: Vec<usize>,
}

/// A mark as it is written: by the tasks of GLUE, or by the reasoning sets.
#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Glue { config: GlueConfig, noisy_train: Vec<usize>, noisy_validation: Vec<usize> },
    Reasoning { config: Seed, files: BTreeMap<String, FileMark> },
}

#[derive(Deserialize)]
struct GlueConfig {
    seed: u64,
    n_train: usize,
    n_validation: usize,
}

#[derive(Deserialize)]
struct Seed {
    seed: u64,
}

impl GeneratedMark {
    pub(crate) fn read(folder: &Path) -> Result<Option<Self>> {
        let file = folder.join(MARK);
        if !file.exists() {
            return Ok(None);
        }
        match serde_json::from_str(&read_text(&file)?) {
            Ok(Written::Glue { config, noisy_train, noisy_validation }) => {
                let train = FileMark { rows: config.n_train, noisy: noisy_train };
                let validation = FileMark { rows: config.n_validation, noisy: noisy_validation };
                let files = [("train.tsv", train), ("dev.tsv", validation)];
                let files = files.map(|(name, mark)| (name.to_owned(), mark)).into();
                Ok(Some(Self { seed: config.seed, files }))
            }
            Ok(Written::Reasoning { config, files }) => Ok(Some(Self { seed: config.seed, files })),
            Err(source) => Err(Error::new(source)
                .context(format!("`{}` does not describe a generated data set", file.display()))),
        }
    }

    /// What a reader of results on the data `name` must know, of which the first `rows` validation rows are used or all.
    /// `labels` is what they are called; files that the mark does not list add nothing.
    pub(crate) fn notes(
        &self,
        name: &str,
        labels: &str,
        train: &[String],
        validation: &[String],
        rows: Option<usize>,
    ) -> Vec<String> {
        let count = |names: &[String], most: usize| {
            let mut left = most;
            let (mut noisy, mut rows) = (0, 0);
            for mark in names.iter().filter_map(|name| self.files.get(name)) {
                let used = mark.rows.min(left);
                noisy += mark.noisy.iter().filter(|&&row| row < used).count();
                rows += used;
                left -= used;
            }
            (noisy, rows)
        };
        let (noisy, rows_train) = count(train, usize::MAX);
        let (noisy_validation, rows) = count(validation, rows.unwrap_or(usize::MAX));
        let best = 1.0 - noisy_validation as f64 / rows.max(1) as f64;
        vec![
            format!("generated by a grammar from seed {}, not real {name}", self.seed),
            format!(
                "label noise: {noisy} of {rows_train} train and {noisy_validation} of {rows} validation {labels} \
                 are changed at random; best reachable validation accuracy {best:.3}"
            ),
        ]
    }
}

/// Mixed into the run's seed, so that the rows held out are no order of an epoch.
const HOLDOUT_SALT: u64 = 0x484f_4c44_4f55_5421;

#[derive(Clone, Debug)]
pub struct PreparedTask {
    pub goal: Goal,
    pub labels: usize,
    pub train: Vec<TokenisedExample>,
    /// Examples kept out of training, for methods that fit something afterwards.
    pub holdout: Vec<TokenisedExample>,
    pub validation: Vec<TokenisedExample>,
    pub validation_ids: Vec<String>,
    pub pad_id: u32,
    /// Tokens that stand for the classes, for a language model; empty for an encoder.
    pub answers: Vec<u32>,
    /// What a reader of the results must know of the encoding, one sentence each.
    pub notes: Vec<String>,
}

/// How many of `rows` a `share` of them is; one row is left at least.
pub(crate) fn held_out_rows(rows: usize, share: f64) -> usize {
    let expected = (share * rows as f64).round() as usize;
    expected.min(rows.saturating_sub(1))
}

/// The `rows` less `share` of them, and those, drawn by `seed`; both in their order. One row stays at least.
pub(crate) fn held_out<T>(rows: Vec<T>, share: f64, seed: u64) -> (Vec<T>, Vec<T>) {
    let expected = held_out_rows(rows.len(), share);
    let (held, rest) = drawn(rows, expected, seed ^ HOLDOUT_SALT);
    (rest, held)
}

/// The rows of a run in their order and the number of those, at its end, that take part once they have cut the ranks: all of
/// `holdout`, or none of it where something `is_fitted_to` them afterwards.
pub(crate) fn in_order<T: Clone>(
    train: &[T],
    holdout: &[T],
    is_fitted_to: bool,
) -> (Vec<T>, usize) {
    let waiting = if is_fitted_to { &[] } else { holdout };
    ([train, waiting].concat(), waiting.len())
}

impl PreparedTask {
    /// A task without examples, for a model that only answers.
    pub fn without_examples(goal: Goal) -> Self {
        Self {
            labels: goal.n_labels(),
            goal,
            train: Vec::new(),
            holdout: Vec::new(),
            validation: Vec::new(),
            validation_ids: Vec::new(),
            pad_id: 0,
            answers: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// The same task with the last `share` of the training examples kept out of training.
    #[must_use]
    pub fn holding_out(&self, share: f64) -> Self {
        let mut task = self.clone();
        let kept = task.train.len() - (share * task.train.len() as f64).round() as usize;
        task.holdout = task.train.split_off(kept.max(1).min(task.train.len()));
        task
    }

    /// The same task with `share` of the training examples kept out of training, drawn by `seed`; both parts stay in
    /// their order.
    #[must_use]
    pub fn holding_out_drawn(&self, share: f64, seed: u64) -> Self {
        let (train, holdout) = held_out(self.train.clone(), share, seed);
        Self { train, holdout, ..self.clone() }
    }

    /// Name of the metric that picks the best checkpoint.
    pub fn selection_metric(&self) -> &'static str {
        self.goal.selection.name()
    }

    /// That metric in `metrics`; minus infinity where it is absent.
    pub fn score(&self, metrics: &Metrics) -> f64 {
        self.goal.score(metrics)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::fs;

    use super::*;
    use crate::data::Label;

    #[test]
    fn a_sample_keeps_its_order_and_is_always_the_same() {
        let drawn = |most: usize| {
            let mut rows: Vec<usize> = (0..100).collect();
            let note = sample(&mut rows, Some(most));
            (rows, note)
        };
        let (rows, note) = drawn(30);
        assert_eq!((rows.len(), rows.is_sorted()), (30, true));
        assert_eq!(note.unwrap(), "trained on 30 of 100 rows, drawn at random");
        assert_eq!(drawn(30).0, rows);
        // Not the first ones, and more rows are these and others.
        assert!(rows[29] > 60 && drawn(60).0.iter().filter(|row| rows.contains(row)).count() == 30);
        assert_eq!(drawn(100), ((0..100).collect(), None));
    }

    #[test]
    fn splits_are_hashed_counted_and_labelled_honestly() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("SST-2");
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("train.tsv"), "sentence\tlabel\nfine\t1\npoor\t0\n").unwrap();
        fs::write(folder.join("dev.tsv"), "sentence\tlabel\npoor\t0\n").unwrap();
        let data = load(dir.path(), GlueTask::Sst2).unwrap();
        assert_eq!((data.train.rows(), data.validation.rows()), (2, 1));
        assert_eq!(data.validation.origin, Origin::Unverified);
        let classes: Vec<_> = data.train.examples.iter().map(|e| e.label.class()).collect();
        assert_eq!(classes, [Some(1), Some(0)]);
        // Digest from `sha256sum`.
        assert_eq!(data.validation.files[0].bytes, 22);
        assert_eq!(
            data.validation.files[0].sha256,
            "887ba5f65d3379931644f10fdc670ed6e906d90de7e33e7b1a724f1bd4eb7b39"
        );
        assert_eq!(
            data.notes,
            [
                "train: train of unknown origin, 2 rows; the published split has 67349",
                "validation: dev of unknown origin, 1 rows; the published split has 872",
                "1 of 1 validation texts occur in the train split too",
            ]
        );
    }

    #[test]
    fn the_corpus_is_split_by_its_list_of_dev_pairs() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("MRPC");
        fs::create_dir(&folder).unwrap();
        let corpus = "\u{feff}Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n\
                      1\t1\t2\ta\tb\n0\t3\t4\tc\td\n1\t5\t6\te\tf\n0\t7\t8\tg\th\n";
        fs::write(folder.join("msr_paraphrase_train.txt"), corpus).unwrap();
        fs::write(folder.join("dev_ids.tsv"), "7\t8\r\n3\t4\r\n").unwrap();
        let data = load(dir.path(), GlueTask::Mrpc).unwrap();
        let ids = |split: &Split| split.examples.iter().map(|e| e.id.clone()).collect::<Vec<_>>();
        assert_eq!(ids(&data.train), ["1-2", "5-6"]);
        assert_eq!(ids(&data.validation), ["3-4", "7-8"]);
        assert_eq!(data.train.files.len(), 2);
        fs::write(folder.join("dev_ids.tsv"), "7\t8\n3\t9\n").unwrap();
        let error = load(dir.path(), GlueTask::Mrpc).unwrap_err().to_string();
        assert!(error.contains("names 2 pairs, of which the corpus has 1"), "{error}");
    }

    #[test]
    fn shards_are_read_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("cola");
        fs::create_dir(&folder).unwrap();
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/data");
        for shard in ["train-00000-of-00002.parquet", "train-00001-of-00002.parquet"] {
            fs::copy(golden.join(format!("cola-{shard}")), folder.join(shard)).unwrap();
        }
        fs::write(folder.join("validation.jsonl"), "{\"sentence\":\"A\",\"label\":0}\n").unwrap();
        let data = load(dir.path(), GlueTask::Cola).unwrap();
        let ids: Vec<_> = data.train.examples.iter().map(|e| e.id.as_str()).collect();
        assert_eq!(ids, ["0", "1", "2"]);
    }

    #[test]
    fn a_mark_counts_the_rows_that_are_used() {
        let dir = tempfile::tempdir().unwrap();
        let write = |text: &str| fs::write(dir.path().join(MARK), text).unwrap();
        let read = || GeneratedMark::read(dir.path());
        assert!(read().unwrap().is_none());
        write(
            r#"{"config":{"seed":7},"files":{"a":{"rows":4,"noisy":[3]},"b":{"rows":4,"noisy":[0,2]},"t":{"rows":9,"noisy":[]}}}"#,
        );
        let names =
            |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let mark = read().unwrap().unwrap();
        let notes = mark.notes("X", "answers", &names(&["t"]), &names(&["a", "b"]), Some(6));
        assert_eq!(notes[0], "generated by a grammar from seed 7, not real X");
        assert!(
            notes[1]
                .starts_with("label noise: 0 of 9 train and 2 of 6 validation answers are changed")
                && notes[1].ends_with("accuracy 0.667"),
            "{notes:?}"
        );
        write("{}");
        assert!(
            read().unwrap_err().to_string().ends_with("does not describe a generated data set")
        );
    }

    #[test]
    fn rows_held_out_are_drawn_by_the_seed_and_go_nowhere_else() {
        let one = |i: u32| TokenisedExample {
            ids: vec![i],
            type_ids: vec![0],
            choices: None,
            label: Label::Class(0),
        };
        let goal = Goal::classification("tone", ["a", "b"].map(String::from).to_vec());
        let task = PreparedTask {
            train: (0..40).map(one).collect(),
            ..PreparedTask::without_examples(goal)
        };
        let ids = |rows: &[TokenisedExample]| rows.iter().map(|e| e.ids[0]).collect::<Vec<_>>();
        let (first, other) = (task.holding_out_drawn(0.1, 1), task.holding_out_drawn(0.1, 2));
        assert_eq!((first.train.len(), first.holdout.len()), (36, 4));
        assert_ne!(ids(&first.holdout), ids(&other.holdout));
        assert_eq!(ids(&first.holdout), ids(&task.holding_out_drawn(0.1, 1).holdout));
        let mut all = [ids(&first.train), ids(&first.holdout)].concat();
        assert!(ids(&first.train).is_sorted() && ids(&first.holdout).is_sorted());
        all.sort_unstable();
        assert_eq!(all, ids(&task.train));
        assert_eq!(task.holding_out_drawn(1.0, 1).train.len(), 1);
    }
}
