//! The files of a data directory that serve a task.
//!
//! The order of preference is fixed, so the same directory always gives the same files:
//!
//! 1. the folder: the table name (`SST-2`), the command-line name (`sst2`), then other spellings;
//! 2. the validation split: published names before subsets before a local dev set cut from train;
//! 3. the format: tab-separated, then parquet, then JSONL;
//! 4. the train split, by the same two rules. A local dev set goes only with the rest of the train file it was cut
//!    from, never with the whole.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{anyhow, bail};

use super::{Format, Origin, SplitName};
use crate::error::{Kind, Result};
use crate::io::cannot;
use crate::task::GlueTask;
use crate::text::quoted;

const CORPUS: &str = "msr_paraphrase_train.txt";
const DEV_PAIRS: &str = "dev_ids.tsv";

pub(crate) fn locate(data_dir: &Path, task: GlueTask) -> Result<Located> {
    let place = Place {
        folders: spellings(task),
        train: candidates(task, SplitName::Train),
        validation: candidates(task, SplitName::Validation),
    };
    search(data_dir, task.name(), &[place], |train, validation| {
        let local = validation.origin == Origin::LocalSplit;
        let pairs = matches!(train.pattern, Pattern::PairList(..));
        (!local || train.origin == Origin::LocalSplit) && pairs == validation.dev_pairs.is_some()
    })
}

fn spellings(task: GlueTask) -> Vec<String> {
    let (table, name) = (task.display_name(), task.name());
    let mut all = vec![table.to_owned()];
    for other in [name.to_owned(), table.to_uppercase(), name.to_uppercase(), table.to_lowercase()]
    {
        if !all.contains(&other) {
            all.push(other);
        }
    }
    all
}

/// Every way to store a split, in order of preference.
fn candidates(task: GlueTask, split: SplitName) -> Vec<Candidate> {
    let (stems, subsets, local): (&[&'static str], &[&'static str], &'static str) = match split {
        SplitName::Train => (&["train"], &["train_subset"], "train_split"),
        SplitName::Validation if task == GlueTask::Mnli => (
            &["dev_matched", "validation_matched", "dev", "validation", "val"],
            &["dev_matched_subset", "validation_matched_subset", "dev_subset", "validation_subset"],
            "localdev",
        ),
        SplitName::Validation => {
            (&["dev", "validation", "val"], &["dev_subset", "validation_subset"], "localdev")
        }
    };
    let mut all = Vec::new();
    let mut add = |origin, format, pattern| all.push(Candidate { origin, format, pattern });
    for &stem in stems {
        add(Origin::Official, Format::Tsv, Pattern::Exact(stem.to_owned(), "tsv"));
    }
    if task == GlueTask::Mrpc {
        add(Origin::Official, Format::Tsv, Pattern::PairList(CORPUS, DEV_PAIRS));
    }
    for &stem in stems {
        add(Origin::Official, Format::Parquet, Pattern::Shards(stem.to_owned()));
        add(Origin::Official, Format::Parquet, Pattern::Exact(stem.to_owned(), "parquet"));
    }
    for &stem in stems {
        add(Origin::Official, Format::Jsonl, Pattern::Exact(stem.to_owned(), "jsonl"));
    }
    for (origin, stems) in [(Origin::Subset, subsets), (Origin::LocalSplit, &[local][..])] {
        for &stem in stems {
            add(origin, Format::Tsv, Pattern::Starting(stem.to_owned(), "tsv"));
            add(origin, Format::Parquet, Pattern::Starting(stem.to_owned(), "parquet"));
            add(origin, Format::Jsonl, Pattern::Starting(stem.to_owned(), "jsonl"));
        }
    }
    all
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileSet {
    pub split: SplitName,
    pub origin: Origin,
    pub format: Format,
    pub files: Vec<PathBuf>,
    /// For the original paraphrase corpus, which is not split: the list of the pairs that make up the dev split.
    pub dev_pairs: Option<PathBuf>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Located {
    pub folder: PathBuf,
    pub train: FileSet,
    pub validation: FileSet,
}

#[derive(Debug, Clone)]
pub(crate) struct Candidate {
    pub(crate) origin: Origin,
    pub(crate) format: Format,
    pub(crate) pattern: Pattern,
}

#[derive(Debug, Clone)]
pub(crate) enum Pattern {
    Exact(String, &'static str),
    /// `STEM-00000-of-00002*.parquet`
    Shards(String),
    /// `START*.EXTENSION`; the last by name if there are more. Files held out are not meant.
    Starting(String, &'static str),
    PairList(&'static str, &'static str),
}

/// Folders, and the ways in which either split may be stored in any of them; all in order of preference.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) folders: Vec<String>,
    pub(crate) train: Vec<Candidate>,
    pub(crate) validation: Vec<Candidate>,
}

/// Finds both splits below `data_dir`; reads no file. `goes_with` says whether a train split shares no row with a
/// validation split by the way the files are made.
pub(crate) fn search(
    data_dir: &Path,
    task: &'static str,
    places: &[Place],
    goes_with: impl Fn(&Candidate, &FileSet) -> bool,
) -> Result<Located> {
    if !data_dir.is_dir() {
        bail!("data directory `{}` does not exist or is not a directory", data_dir.display());
    }
    let mut has_validation = false;
    for place in places {
        for folder in place.folders.iter().map(|folder| data_dir.join(folder)) {
            if !folder.is_dir() {
                continue;
            }
            let names = file_names(&folder)?;
            for validation in &place.validation {
                let split = SplitName::Validation;
                let Some(validation) = validation.find(split, &folder, &names)? else { continue };
                has_validation = true;
                for train in place.train.iter().filter(|train| goes_with(train, &validation)) {
                    if let Some(train) = train.find(SplitName::Train, &folder, &names)? {
                        return Ok(Located { folder, train, validation });
                    }
                }
            }
        }
    }
    let split = if has_validation { SplitName::Train } else { SplitName::Validation };
    let looked_for = places.iter().flat_map(|place| {
        let expected = if has_validation { &place.train } else { &place.validation };
        let folders = place.folders.join("|");
        expected.iter().map(move |candidate| format!("{folders}/{}", candidate.pattern.names()))
    });
    Err(Kind::NotFound.mark(anyhow!(
        "no {split} files of task `{task}` in `{}`; looked for {}",
        data_dir.display(),
        quoted(looked_for)
    )))
}

impl Candidate {
    fn find(
        &self,
        split: SplitName,
        folder: &Path,
        names: &BTreeSet<String>,
    ) -> Result<Option<FileSet>> {
        let mut dev_pairs = None;
        let found: Vec<&str> = match &self.pattern {
            Pattern::Exact(stem, extension) => one(names.get(&format!("{stem}.{extension}"))),
            Pattern::Starting(start, extension) => one(names.iter().rev().find(|name| {
                let stem = name.strip_suffix(*extension);
                name.starts_with(start.as_str())
                    && stem.is_some_and(|stem| stem.ends_with('.') && !stem.contains("heldout"))
            })),
            Pattern::Shards(stem) => shards(stem, folder, names)?,
            Pattern::PairList(corpus, list) => {
                dev_pairs = names.contains(*list).then(|| folder.join(list));
                one(names.get(*corpus).filter(|_| dev_pairs.is_some()))
            }
        };
        let files: Vec<_> = found.into_iter().map(|name| folder.join(name)).collect();
        let (origin, format) = (self.origin, self.format);
        Ok((!files.is_empty()).then_some(FileSet { split, origin, format, files, dev_pairs }))
    }
}

fn one(name: Option<&String>) -> Vec<&str> {
    name.map(String::as_str).into_iter().collect()
}

impl Pattern {
    fn names(&self) -> String {
        match self {
            Self::Exact(stem, extension) => format!("{stem}.{extension}"),
            Self::Starting(start, extension) => format!("{start}*.{extension}"),
            Self::Shards(stem) => format!("{stem}-*-of-*.parquet"),
            Self::PairList(corpus, list) => format!("{corpus} with {list}"),
        }
    }
}

pub(crate) fn file_names(folder: &Path) -> Result<BTreeSet<String>> {
    let failed = |source| cannot("read", folder)(source);
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        // Names that are not UTF-8 cannot be among the expected ones.
        if let Ok(name) = entry.file_name().into_string()
            && entry.path().is_file()
        {
            names.insert(name);
        }
    }
    Ok(names)
}

/// All shards of a split among `names`, or none.
pub(crate) fn shards<'a>(
    stem: &str,
    folder: &Path,
    names: &'a BTreeSet<String>,
) -> Result<Vec<&'a str>> {
    let mut found: Vec<(&str, usize, usize)> = Vec::new();
    for name in names {
        let numbers = name.strip_prefix(stem).and_then(|rest| rest.strip_prefix('-'));
        if let Some((index, total)) = numbers.and_then(shard_numbers) {
            found.push((name, index, total));
        }
    }
    let Some(&(first, _, expected)) = found.first() else { return Ok(Vec::new()) };
    let whole = found.len() == expected
        && found.iter().enumerate().all(|(i, &(_, index, total))| i == index && total == expected);
    if !whole {
        bail!(
            "`{}` has {found} of the {expected} shards that its file names announce",
            folder.join(first).display(),
            found = found.len()
        );
    }
    Ok(found.into_iter().map(|(name, ..)| name).collect())
}

/// `(i, n)` of `0000i-of-0000n.parquet`; a hash may follow the digits.
fn shard_numbers(name: &str) -> Option<(usize, usize)> {
    let (index, rest) = name.strip_suffix(".parquet")?.split_once("-of-")?;
    let total = rest.split('-').next()?;
    Some((index.parse().ok()?, total.parse().ok()?))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn directory(files: &[&str]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for file in files {
            let file = dir.path().join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, "").unwrap();
        }
        dir
    }

    /// Names of train and validation files, with the origin of each.
    fn found(files: &[&str], task: GlueTask) -> Result<[(String, Origin); 2]> {
        let dir = directory(files);
        let located = locate(dir.path(), task)?;
        Ok([located.train, located.validation].map(|set| {
            let files = set.files.iter().chain(&set.dev_pairs);
            let names =
                files.map(|file| file.strip_prefix(dir.path()).unwrap().display().to_string());
            (names.collect::<Vec<_>>().join(" "), set.origin)
        }))
    }

    fn check(task: GlueTask, files: &[&str], train: (&str, Origin), validation: (&str, Origin)) {
        let expected = [(train.0.to_owned(), train.1), (validation.0.to_owned(), validation.1)];
        assert_eq!(found(files, task).unwrap(), expected, "{files:?}");
    }

    #[test]
    fn the_better_file_wins_whatever_else_is_there() {
        use Origin::{LocalSplit, Official, Subset};
        let folders = ["sst2/train.tsv", "sst2/dev.tsv", "SST-2/train.tsv", "SST-2/dev.tsv"];
        check(GlueTask::Sst2, &folders, ("SST-2/train.tsv", Official), ("SST-2/dev.tsv", Official));
        check(
            GlueTask::Sst2,
            &folders[..3],
            ("sst2/train.tsv", Official),
            ("sst2/dev.tsv", Official),
        );
        check(
            GlueTask::Qnli,
            &["QNLI/dev.tsv", "QNLI/train_subset9k.tsv", "QNLI/train_subset_heldout1k.tsv"],
            ("QNLI/train_subset9k.tsv", Subset),
            ("QNLI/dev.tsv", Official),
        );
        check(
            GlueTask::Mnli,
            &["mnli/dev_matched_subset.tsv", "mnli/dev_mismatched.tsv", "mnli/train_subset9k.tsv"],
            ("mnli/train_subset9k.tsv", Subset),
            ("mnli/dev_matched_subset.tsv", Subset),
        );
        check(
            GlueTask::Rte,
            &["RTE/train.tsv", "RTE/train_split80.tsv", "RTE/localdev_split20.tsv"],
            ("RTE/train_split80.tsv", LocalSplit),
            ("RTE/localdev_split20.tsv", LocalSplit),
        );
        check(
            GlueTask::Mrpc,
            &["MRPC/msr_paraphrase_train.txt", "MRPC/dev_ids.tsv", "MRPC/train.tsv"],
            ("MRPC/msr_paraphrase_train.txt MRPC/dev_ids.tsv", Official),
            ("MRPC/msr_paraphrase_train.txt MRPC/dev_ids.tsv", Official),
        );
        check(
            GlueTask::Mnli,
            &[
                "mnli/train-00001-of-00002.parquet",
                "mnli/train-00000-of-00002-a1b2.parquet",
                "mnli/validation_matched-00000-of-00001.parquet",
                "mnli/validation_mismatched-00000-of-00001.parquet",
                "mnli/train.jsonl",
            ],
            ("mnli/train-00000-of-00002-a1b2.parquet mnli/train-00001-of-00002.parquet", Official),
            ("mnli/validation_matched-00000-of-00001.parquet", Official),
        );
        check(
            GlueTask::Rte,
            &["RTE/train.jsonl", "RTE/val.jsonl"],
            ("RTE/train.jsonl", Official),
            ("RTE/val.jsonl", Official),
        );
    }

    #[test]
    fn a_local_dev_set_never_goes_with_the_train_file_it_was_cut_from() {
        let error = found(&["RTE/train.tsv", "RTE/localdev_split20.tsv"], GlueTask::Rte);
        let error = error.unwrap_err().to_string();
        assert!(error.starts_with("no train files of task `rte`"), "{error}");
        assert!(error.contains("`RTE|rte/train_split*.tsv`"), "{error}");
    }

    #[test]
    fn everything_looked_for_is_listed() {
        let error = found(&["RTE/test.tsv"], GlueTask::Mrpc).unwrap_err().to_string();
        for name in [
            "dev.tsv",
            "msr_paraphrase_train.txt with dev_ids.tsv",
            "validation-*-of-*.parquet",
            "val.jsonl",
            "localdev*.tsv",
        ] {
            assert!(error.contains(&format!("`MRPC|mrpc/{name}`")), "{name}: {error}");
        }
        let error = locate(Path::new("no/such/place"), GlueTask::Cola).unwrap_err();
        assert!(error.to_string().contains("does not exist or is not a directory"), "{error}");
    }

    #[test]
    fn a_missing_shard_is_an_error() {
        let files = [
            "cola/train-00000-of-00003.parquet",
            "cola/train-00002-of-00003.parquet",
            "cola/dev.tsv",
        ];
        let error = found(&files, GlueTask::Cola).unwrap_err().to_string();
        assert!(error.contains("has 2 of the 3 shards"), "{error}");
    }
}
