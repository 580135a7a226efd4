//! The files of a data directory that serve a task.
//!
//! The order of preference is fixed, so the same directory always gives the same files:
//!
//! 1. the layouts of the task's row in their order, and within each its folders;
//! 2. the validation split: published names before subsets before a local dev set cut from train;
//! 3. the format: that of the originals first, which is tab-separated for GLUE and JSONL for questions;
//! 4. the train split, by the same rules. A local dev set that was cut from the train file goes only with the rest of
//!    that file, never with the whole.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{anyhow, ensure};
use lrvd_burn::files::is_dir;

use super::super::{Format, Origin, SplitName};
use crate::error::{Kind, Result};
use crate::io::cannot;
use crate::task::{Files, Task};

/// Every way to store a split, in order of preference.
fn candidates(task: Task, files: &Files, split: SplitName) -> Vec<FileSet> {
    let (stems, local) = match split {
        SplitName::Train => (&[files.train][..], "train_split"),
        SplitName::Validation => (&files.validation[..], "localdev"),
    };
    let formats: &[Format] = if task.is_question() {
        &[Format::Jsonl, Format::Parquet]
    } else {
        &[Format::Tsv, Format::Parquet, Format::Jsonl]
    };
    let mut all = Vec::new();
    let mut add = |origin, format, pattern, pair_list| {
        all.push(FileSet { origin, format, pattern, pair_list, files: Vec::new() });
    };
    for &format in formats {
        for &stem in stems {
            if format == Format::Parquet {
                add(Origin::Official, format, format!("{stem}{SHARDS}"), None);
            }
            add(Origin::Official, format, format!("{stem}.{}", format.extension()), None);
        }
        if let (Format::Tsv, Some((corpus, list))) = (format, files.pair_list) {
            add(Origin::Official, format, corpus.to_owned(), Some(list));
        }
    }
    let subsets = stems.iter().map(|stem| (Origin::Subset, format!("{stem}_subset")));
    for (origin, start) in subsets.chain([(Origin::LocalSplit, local.to_owned())]) {
        for &format in formats {
            add(origin, format, format!("{start}*.{}", format.extension()), None);
        }
    }
    all
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Located {
    pub folder: PathBuf,
    pub train: FileSet,
    pub validation: FileSet,
}

/// The files of a split, or one way to store them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FileSet {
    pub origin: Origin,
    pub format: Format,
    /// A name, `START*.EXTENSION`, or a stem before [`SHARDS`].
    pattern: String,
    /// Of the original paraphrase corpus, which is not split: the list of the pairs that make up the dev split.
    pub pair_list: Option<&'static str>,
    /// Fitting files of the folder; empty before the search.
    pub files: Vec<PathBuf>,
}

/// Ending of all shards of a split after the stem, such as `train-00000-of-00002.parquet`.
const SHARDS: &str = "-*-of-*.parquet";

/// Finds both splits of `task` below `data_dir`; reads no file.
pub(super) fn locate(data_dir: &Path, task: Task) -> Result<Located> {
    ensure!(
        is_dir(data_dir)?,
        "data directory `{}` does not exist or is not a directory",
        data_dir.display()
    );
    let mut has_validation = false;
    for files in &task.row().files {
        for folder in files.folders.iter().map(|folder| data_dir.join(folder)) {
            if !is_dir(&folder)? {
                continue;
            }
            let names = file_names(&folder)?;
            for validation in candidates(task, files, SplitName::Validation) {
                let Some(validation) = validation.find(&folder, &names)? else { continue };
                has_validation = true;
                for train in candidates(task, files, SplitName::Train) {
                    if train.goes_with(&validation, task)
                        && let Some(train) = train.find(&folder, &names)?
                    {
                        return Ok(Located { folder, train, validation });
                    }
                }
            }
        }
    }
    let split = if has_validation { SplitName::Train } else { SplitName::Validation };
    let looked_for = task.row().files.iter().flat_map(|files| {
        let folders = files.folders.join("|");
        let candidates = candidates(task, files, split).into_iter();
        candidates.map(move |candidate| format!("`{folders}/{}`", candidate.names()))
    });
    // The table of tasks limits them, so all are named.
    let looked_for: Vec<String> = looked_for.collect();
    Err(Kind::NotFound.mark(anyhow!(
        "no {split} files of task `{task}` in `{}`; looked for {}",
        data_dir.display(),
        looked_for.join(", ")
    )))
}

impl FileSet {
    /// `true` if it shares no row with a validation split by the way the files are made.
    fn goes_with(&self, validation: &Self, task: Task) -> bool {
        let is_cut = validation.origin == Origin::LocalSplit && !task.row().larger_dev;
        let is_of_pairs = self.pair_list.is_some() == validation.pair_list.is_some();
        (!is_cut || self.origin == Origin::LocalSplit) && is_of_pairs
    }

    fn names(&self) -> String {
        let list = self.pair_list.map(|list| format!(" with {list}"));
        format!("{}{}", self.pattern, list.unwrap_or_default())
    }

    fn find(self, folder: &Path, names: &BTreeSet<String>) -> Result<Option<Self>> {
        let found = match (self.pattern.strip_suffix(SHARDS), self.pattern.split_once('*')) {
            _ if self.pair_list.is_some_and(|list| !names.contains(list)) => Vec::new(),
            (Some(stem), _) => shards(stem, folder, names)?,
            // The last by name. Files held out are not meant.
            (None, Some((start, end))) => {
                let is_meant = |name: &&String| {
                    name.starts_with(start) && name.ends_with(end) && !name.contains("heldout")
                };
                names.iter().rev().find(is_meant).map(String::as_str).into_iter().collect()
            }
            (None, None) => names.get(&self.pattern).map(String::as_str).into_iter().collect(),
        };
        let files: Vec<_> = found.into_iter().map(|name| folder.join(name)).collect();
        Ok((!files.is_empty()).then_some(Self { files, ..self }))
    }
}

fn file_names(folder: &Path) -> Result<BTreeSet<String>> {
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
fn shards<'a>(stem: &str, folder: &Path, names: &'a BTreeSet<String>) -> Result<Vec<&'a str>> {
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
    ensure!(
        whole,
        "`{}` has {found} of the {expected} shards that its file names announce",
        folder.join(first).display(),
        found = found.len()
    );
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
    use serde_json::from_str;

    use super::*;

    /// The files that are found among `files`, with the origin of each split, or the error.
    fn found(task: Task, files: &str) -> String {
        let dir = tempfile::tempdir().unwrap();
        for file in files.split_whitespace() {
            let file = dir.path().join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, "").unwrap();
        }
        let shown = |split: &str, set: FileSet, folder: &Path| {
            let list = set.pair_list.map(|list| folder.join(list));
            let files = set.files.iter().chain(&list).map(|file| file.display().to_string());
            format!("{split}: {:?} {}", set.origin, files.collect::<Vec<_>>().join(" "))
        };
        let found = match locate(dir.path(), task) {
            Ok(Located { folder, train, validation }) => {
                let train = shown("train", train, &folder);
                format!("{train}\n    {}", shown("validation", validation, &folder))
            }
            Err(error) => error.to_string(),
        };
        let found = found.replace(&format!("{}/", dir.path().display()), "");
        format!("{task} of {files}\n    {}\n", found.replace(dir.path().to_str().unwrap(), "DIR"))
    }

    #[test]
    fn the_best_files_are_found_or_what_is_missing_is_listed() {
        let cases = include_str!("../cases/files.txt").lines();
        let cases = cases.filter_map(|line| line.split_once(' '));
        let found: String = cases
            .map(|(task, files)| found(from_str(&format!("{task:?}")).unwrap(), files))
            .collect();
        insta::assert_snapshot!(found);
        let error = locate(Path::new("no/such/place"), Task::Cola).unwrap_err();
        assert!(error.to_string().contains("does not exist or is not a directory"), "{error}");
    }
}
