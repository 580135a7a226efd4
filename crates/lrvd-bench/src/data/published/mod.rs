//! Data of the table's tasks in their published files: found, parsed, split and described.

mod find;
mod parse;
pub(crate) mod shipped;

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

use anyhow::bail;
use lrvd_burn::files::is_there;
use serde::Deserialize;

use find::{FileSet, locate};
pub use parse::read_examples;

use super::table::{Format, Table};
use super::{Dataset, Example, Labelled, Origin, Pieces as _, SourceFile, Split, SplitName};
use crate::error::{Error, Result};
use crate::io::read_text;
use crate::task::Task;

/// Columns of the list of dev pairs, which has no header.
const PAIR: &[&str] = &["#1 ID", "#2 ID"];

/// Reads both splits of `task`, of which the first `rows` validation rows will be used.
pub fn load(data_dir: &Path, task: Task, rows: Option<usize>) -> Result<Dataset> {
    let located = locate(data_dir, task)?;
    let (examples, mut files) = read_files(&located.train, task)?;
    let (train, validation) = match located.train.pair_list {
        Some(list) => {
            let list = located.folder.join(list);
            let (listed, rest) = by_list(examples, &list, &mut files)?;
            ((rest, files.clone()), (listed, files))
        }
        None => ((examples, files), read_files(&located.validation, task)?),
    };
    let mut train = split(SplitName::Train, located.train.origin, task, train);
    let mut validation = split(SplitName::Validation, located.validation.origin, task, validation);
    let mut notes = Vec::new();
    if let Some(mark) = GeneratedMark::read(&located.folder)? {
        train.origin = Origin::Generated;
        validation.origin = Origin::Generated;
        let train = train.file_names();
        let validation = validation.file_names();
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
fn split(
    name: SplitName,
    origin: Origin,
    task: Task,
    (examples, files): (Vec<Example>, Vec<SourceFile>),
) -> Split {
    let is_other = origin == Origin::Official && examples.len() != published(task, name);
    let origin = if is_other { Origin::Unverified } else { origin };
    Split { name, origin, files, examples }
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
    let mut table = Table::open(list, Format::Tsv, Some(PAIR), false)?;
    let mut listed = HashSet::new();
    for row in &mut table {
        let row = row?;
        listed.insert(format!("{}-{}", row.text(&PAIR[..1])?, row.text(&PAIR[1..])?));
    }
    files.push(table.source()?);
    let expected = listed.len();
    let (chosen, rest): (Vec<_>, Vec<_>) =
        examples.into_iter().partition(|example| listed.contains(&example.id));
    if chosen.len() != expected || chosen.is_empty() {
        let list = list.display();
        let found = chosen.len();
        bail!("`{list}` names {expected} pairs, of which the corpus has {found}");
    }
    Ok((chosen, rest))
}

/// Why metrics on a split cannot stand beside published ones; `None` where they can.
fn note(split: &Split, task: Task) -> Option<String> {
    let name = split.name;
    let rows = split.rows();
    let published = published(task, split.name);
    let mut described = split.origin.describe(name).to_owned();
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

/// A note if texts of the validation split occur in `train`, too.
fn note_shared(train: &Split, validation: &Split, task: Task) -> Option<String> {
    let known: HashSet<_> = train.examples.iter().map(|e| e.input.pieces()).collect();
    let shared = validation.examples.iter().filter(|e| known.contains(&e.input.pieces())).count();
    let rows = validation.rows();
    let what = if task.is_question() { "items" } else { "texts" };
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
        if !is_there(&file)? {
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

    /// Notes on the data, of which the first `rows` validation rows are used or all. Files that the mark does not list add
    /// nothing.
    fn notes(
        &self,
        task: Task,
        train: &[String],
        validation: &[String],
        rows: Option<usize>,
    ) -> Vec<String> {
        let name = task.display_name();
        let labels = if task.is_question() { "answers" } else { "labels" };
        let count = |names: &[String], most: usize| {
            let mut left = most;
            let mut noisy = 0;
            let mut rows = 0;
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
    use std::fmt::Write as _;
    use std::fs;

    use super::*;

    /// Task, files, and how many validation rows are used.
    type Case = (Task, BTreeMap<String, String>, Option<usize>);

    #[test]
    fn splits_are_hashed_counted_and_labelled_honestly() {
        let cases: Vec<Case> = serde_json::from_str(include_str!("../cases/load.json")).unwrap();
        let mut found = String::new();
        for (task, files, rows) in cases {
            let dir = tempfile::tempdir().unwrap();
            for (file, text) in files {
                let file = dir.path().join(file);
                fs::create_dir_all(file.parent().unwrap()).unwrap();
                fs::write(file, text).unwrap();
            }
            writeln!(found, "{task}").unwrap();
            match load(dir.path(), task, rows) {
                Ok(Dataset { train, validation, notes, .. }) => {
                    for Split { name, origin, files, examples } in [train, validation] {
                        let rows = examples.iter().map(|e| format!("{} {:?}", e.id, e.label));
                        let rows = rows.collect::<Vec<_>>().join(", ");
                        writeln!(found, "    {name}, {origin:?}: {rows}").unwrap();
                        for SourceFile { path, bytes, sha256 } in files {
                            let path = path.display();
                            writeln!(found, "        {path} {bytes} {sha256}").unwrap();
                        }
                    }
                    for note in &notes {
                        writeln!(found, "    {note}").unwrap();
                    }
                }
                Err(error) => writeln!(found, "    {error:#}").unwrap(),
            }
            found = found.replace(&format!("{}/", dir.path().display()), "");
        }
        insta::assert_snapshot!(found);
    }

    #[test]
    fn rows_that_are_left_out_are_said() {
        let dir = tempfile::tempdir().unwrap();
        shipped::REASONING.write(dir.path()).unwrap();
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
    fn shards_are_read_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("cola");
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("validation.jsonl"), r#"{"sentence":"A","label":0}"#).unwrap();
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/data");
        for shard in ["train-00000-of-00002.parquet", "train-00001-of-00002.parquet"] {
            fs::copy(golden.join(format!("cola-{shard}")), folder.join(shard)).unwrap();
        }
        let data = load(dir.path(), Task::Cola, None).unwrap();
        let ids: Vec<_> = data.train.examples.iter().map(|e| e.id.as_str()).collect();
        assert_eq!(ids, ["0", "1", "2"]);
    }
}
