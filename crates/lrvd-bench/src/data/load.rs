//! A task's data: the located files, read, split and described.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

use anyhow::bail;
use serde::Deserialize;

use super::locate::{FileSet, locate};
use super::table::{Format, Layout, Table};
use super::{Dataset, Example, Labelled, Origin, SourceFile, Split, SplitName, read_examples};
use crate::error::{Error, Result};
use crate::io::read_text;
use crate::task::Task;

/// Columns of the list of dev pairs, which has no header.
const PAIR: &[&str] = &["#1 ID", "#2 ID"];

/// Reads both splits of `task`, of which the first `rows` validation rows will be used.
pub fn load(data_dir: &Path, task: Task, rows: Option<usize>) -> Result<Dataset> {
    let located = locate(data_dir, task)?;
    let (examples, mut files) = read_files(&located.train, task)?;
    let (mut train, mut validation) = match &located.train.dev_pairs {
        Some(list) => {
            let (listed, rest) = by_list(examples, list, &mut files)?;
            let validation = split(&located.validation, task, (listed, files.clone()));
            (split(&located.train, task, (rest, files)), validation)
        }
        None => {
            let validation = read_files(&located.validation, task)?;
            let train = split(&located.train, task, (examples, files));
            (train, split(&located.validation, task, validation))
        }
    };
    let mut notes = Vec::new();
    if let Some(mark) = GeneratedMark::read(&located.folder)? {
        train.origin = Origin::Generated;
        validation.origin = Origin::Generated;
        let (train, validation) = (train.file_names(), validation.file_names());
        notes.extend(mark.notes(task, &train, &validation, rows));
    }
    notes.extend([&train, &validation].into_iter().filter_map(|split| note(split, task)));
    notes.extend(note_shared(&train, &validation, task));
    let kind = Labelled { goal: task.goal(), task: Some(task), columns: None };
    let name = task.name().to_owned();
    Ok(Dataset { name, kind, train, validation, validation_split: None, notes })
}

fn read_files(set: &FileSet, task: Task) -> Result<(Vec<Example>, Vec<SourceFile>)> {
    let mut examples = Vec::new();
    let read = |file| read_examples(file, set.format, task, &mut examples);
    let files = set.files.iter().map(PathBuf::as_path).map(read).collect::<Result<_>>()?;
    Ok((examples, files))
}

/// The origin `Official` is kept only where the number of rows is the published one.
fn split(set: &FileSet, task: Task, (examples, files): (Vec<Example>, Vec<SourceFile>)) -> Split {
    let origin = match set.origin {
        Origin::Official if examples.len() != published(task, set.split) => Origin::Unverified,
        origin => origin,
    };
    Split { name: set.split, origin, files, examples }
}

fn published(task: Task, split: SplitName) -> usize {
    match split {
        SplitName::Train => task.row().n_train,
        SplitName::Validation => task.row().n_validation,
    }
}

/// The pairs of the corpus that the list names, which are validated on, and the others; both in the corpus's order.
fn by_list(
    examples: Vec<Example>,
    list: &Path,
    files: &mut Vec<SourceFile>,
) -> Result<(Vec<Example>, Vec<Example>)> {
    let layout = Layout { unnamed: Some(PAIR), ..Layout::of(Format::Tsv) };
    let (mut table, mut listed) = (Table::open(list, &layout)?, HashSet::new());
    for row in &mut table {
        let row = row?;
        listed.insert(format!("{}-{}", row.text(&PAIR[..1])?, row.text(&PAIR[1..])?));
    }
    files.push(table.source()?);
    let expected = listed.len();
    let (chosen, rest): (Vec<_>, Vec<_>) =
        examples.into_iter().partition(|example| listed.contains(&example.id));
    if chosen.len() != expected || chosen.is_empty() {
        let (list, found) = (list.display(), chosen.len());
        bail!("`{list}` names {expected} pairs, of which the corpus has {found}");
    }
    Ok((chosen, rest))
}

/// Why metrics on a split cannot stand beside published ones; `None` where they can.
fn note(split: &Split, task: Task) -> Option<String> {
    let (name, rows, published) = (split.name, split.rows(), published(task, split.name));
    let mut described = split.describe().to_owned();
    if task.is_question() {
        described = format!("{described} (`{}`)", split.file_names().join(", "));
    }
    match split.origin {
        Origin::Official | Origin::Generated => None,
        Origin::Unverified | Origin::Subset => {
            Some(format!("{name}: {described}, {rows} rows; the published split has {published}"))
        }
        Origin::LocalSplit => Some(format!("{name}: {described}, {rows} rows")),
    }
}

/// What a reader must know if texts of the validation split occur in `train` too.
fn note_shared(train: &Split, validation: &Split, task: Task) -> Option<String> {
    fn texts(example: &Example) -> (&str, Option<&String>, &[String]) {
        (&example.input.text, example.input.pair.as_ref(), &example.input.choices)
    }
    let known: HashSet<_> = train.examples.iter().map(texts).collect();
    let shared = validation.examples.iter().filter(|e| known.contains(&texts(e))).count();
    let (rows, what) = (validation.rows(), if task.is_question() { "items" } else { "texts" });
    (shared > 0)
        .then(|| format!("{shared} of {rows} validation {what} occur in the train split too"))
}

const MARK: &str = "generated.json";

/// A generated folder: its seed, and the changed labels of its files.
#[derive(Debug)]
struct GeneratedMark {
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
    fn read(folder: &Path) -> Result<Option<Self>> {
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

    /// What a reader of results must know of the data, of which the first `rows` validation rows are used or all. Files that
    /// the mark does not list add nothing.
    fn notes(
        &self,
        task: Task,
        train: &[String],
        validation: &[String],
        rows: Option<usize>,
    ) -> Vec<String> {
        let (name, labels) =
            (task.display_name(), if task.is_question() { "answers" } else { "labels" });
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

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn folder_with(name: &str, files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join(name)).unwrap();
        for (file, text) in files {
            fs::write(dir.path().join(name).join(file), text).unwrap();
        }
        dir
    }

    #[test]
    fn splits_are_hashed_counted_and_labelled_honestly() {
        let dir = folder_with(
            "SST-2",
            &[
                ("train.tsv", "sentence\tlabel\nfine\t1\npoor\t0\n"),
                ("dev.tsv", "sentence\tlabel\npoor\t0\n"),
            ],
        );
        let data = load(dir.path(), Task::Sst2, None).unwrap();
        assert_eq!((data.train.rows(), data.validation.rows()), (2, 1));
        assert_eq!(data.validation.origin, Origin::Unverified);
        let classes: Vec<_> = data.train.examples.iter().map(|e| e.label.class()).collect();
        assert_eq!(classes, [Some(1), Some(0)]);
        // Digest from `sha256sum`.
        let digest = "887ba5f65d3379931644f10fdc670ed6e906d90de7e33e7b1a724f1bd4eb7b39";
        let file = &data.validation.files[0];
        assert_eq!((file.bytes, file.sha256.as_str()), (22, digest));
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
    fn rows_that_are_left_out_are_said() {
        let dir = tempfile::tempdir().unwrap();
        crate::data::quick::REASONING.write(dir.path()).unwrap();
        let mut data = load(dir.path(), Task::WgS, None).unwrap();
        data.validation.origin = Origin::Official;
        let notes = [data.sample(Some(30)), data.limit(Some(8)), data.limit(Some(8))];
        let notes = notes.map(Option::unwrap_or_default).join("; ");
        let sampled = "trained on 30 of 640 rows, drawn at random; evaluated on the first 8 of 400 validation rows; ";
        assert_eq!(notes, sampled);
        assert_eq!((data.train.rows(), data.validation.rows()), (30, 8));
        assert_eq!(data.validation.origin, Origin::Subset);
    }

    #[test]
    fn the_corpus_is_split_by_its_list_of_dev_pairs() {
        let corpus = "\u{feff}Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n\
                      1\t1\t2\ta\tb\n0\t3\t4\tc\td\n1\t5\t6\te\tf\n0\t7\t8\tg\th\n";
        let files = [("msr_paraphrase_train.txt", corpus), ("dev_ids.tsv", "7\t8\r\n3\t4\r\n")];
        let dir = folder_with("MRPC", &files);
        let data = load(dir.path(), Task::Mrpc, None).unwrap();
        let ids = |split: &Split| split.examples.iter().map(|e| e.id.clone()).collect::<Vec<_>>();
        assert_eq!(ids(&data.train), ["1-2", "5-6"]);
        assert_eq!(ids(&data.validation), ["3-4", "7-8"]);
        assert_eq!(data.train.files.len(), 2);
        fs::write(dir.path().join("MRPC/dev_ids.tsv"), "7\t8\n3\t9\n").unwrap();
        let error = load(dir.path(), Task::Mrpc, None).unwrap_err().to_string();
        assert!(error.contains("names 2 pairs, of which the corpus has 1"), "{error}");
    }

    #[test]
    fn shards_are_read_in_order() {
        let dir = folder_with("cola", &[("validation.jsonl", r#"{"sentence":"A","label":0}"#)]);
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/data");
        for shard in ["train-00000-of-00002.parquet", "train-00001-of-00002.parquet"] {
            let to = dir.path().join("cola").join(shard);
            fs::copy(golden.join(format!("cola-{shard}")), to).unwrap();
        }
        let data = load(dir.path(), Task::Cola, None).unwrap();
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
        let [t, a, b] = ["t", "a", "b"].map(str::to_owned);
        let notes = read().unwrap().unwrap().notes(Task::ArcC, &[t], &[a, b], Some(6));
        assert_eq!(notes[0], "generated by a grammar from seed 7, not real ARC-C");
        let start = "label noise: 0 of 9 train and 2 of 6 validation answers are changed";
        assert!(notes[1].starts_with(start) && notes[1].ends_with("accuracy 0.667"), "{notes:?}");
        write("{}");
        let error = read().unwrap_err().to_string();
        assert!(error.ends_with("does not describe a generated data set"), "{error}");
    }
}
