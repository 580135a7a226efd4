//! The files of a data directory that serve a set.
//!
//! The order of preference is fixed, so the same directory always gives the same files:
//!
//! 1. the authors' layout before the public hub's, and within each its folders in the order of the table;
//! 2. the validation split: published names before subsets before a local dev set cut from train;
//! 3. the format: JSONL before parquet, for both are the original of one layout;
//! 4. the train split, by the same rules. A local dev set that was cut from the train file goes only with the rest of
//!    that file, never with the whole.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::set::{FileNames, LocalDev};
use super::{ReasoningError, ReasoningSet};
use crate::data::folder::{file_names, shards};
use crate::data::{DataError, FileSet, Format, Origin, SplitName};

/// The files of one set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocatedSet {
    /// The set.
    pub set: ReasoningSet,
    /// The folder that holds the files.
    pub folder: PathBuf,
    /// Train split.
    pub train: FileSet,
    /// Validation split.
    pub validation: FileSet,
}

/// Finds the files of `set` below `data_dir`; reads none of them.
///
/// # Errors
///
/// [`DataError::NoDirectory`]; [`DataError::NotFound`] with every name that was looked for;
/// [`DataError::Shards`] for an incomplete parquet split; [`DataError::Read`] for an unreadable folder.
pub fn locate(data_dir: &Path, set: ReasoningSet) -> Result<LocatedSet, ReasoningError> {
    if !data_dir.is_dir() {
        return Err(DataError::NoDirectory { dir: data_dir.into() }.into());
    }
    let spec = set.spec();
    let mut has_validation = false;
    for names in [&spec.original, &spec.hub] {
        for folder in names.folders.iter().map(|folder| data_dir.join(folder)) {
            if !folder.is_dir() {
                continue;
            }
            let files = file_names(&folder)?;
            for validation in candidates(names, SplitName::Validation) {
                let Some(validation) = validation.find(&folder, &files)? else { continue };
                has_validation = true;
                for train in candidates(names, SplitName::Train) {
                    if !goes_with(train.origin, &validation, spec.local_dev) {
                        continue;
                    }
                    if let Some(train) = train.find(&folder, &files)? {
                        return Ok(LocatedSet { set, folder, train, validation });
                    }
                }
            }
        }
    }
    let split = if has_validation { SplitName::Train } else { SplitName::Validation };
    let looked_for = [&spec.original, &spec.hub]
        .into_iter()
        .flat_map(|names| {
            let folders = names.folders.join("|");
            let wanted = candidates(names, split).into_iter();
            wanted.map(move |candidate| format!("{folders}/{}", candidate.names()))
        })
        .collect();
    Err(DataError::NotFound { task: set.name(), split, dir: data_dir.into(), looked_for }.into())
}

/// Whether a train split of this origin shares no row with `validation` by the way the files are made.
fn goes_with(train: Origin, validation: &FileSet, local_dev: LocalDev) -> bool {
    let cut_from_train =
        validation.origin == Origin::LocalSplit && local_dev == LocalDev::FromTrain;
    !cut_from_train || train == Origin::LocalSplit
}

/// How a split might be stored.
#[derive(Debug)]
struct Candidate {
    split: SplitName,
    origin: Origin,
    pattern: Pattern,
}

#[derive(Debug)]
enum Pattern {
    /// `STEM.jsonl`
    Lines(String),
    /// `STEM-00000-of-00002*.parquet`, or one `STEM.parquet`.
    Columns(String),
    /// `START*.jsonl`; the last by name if there are more.
    LinesFrom(String),
}

/// Every way to store a split, in order of preference.
fn candidates(names: &FileNames, split: SplitName) -> Vec<Candidate> {
    let (stems, local) = match split {
        SplitName::Train => (&[names.train][..], "train_split"),
        SplitName::Validation => (names.validation, "localdev"),
    };
    let mut all = Vec::new();
    let mut add = |origin, pattern| all.push(Candidate { split, origin, pattern });
    for stem in stems {
        add(Origin::Official, Pattern::Lines((*stem).to_owned()));
        add(Origin::Official, Pattern::Columns((*stem).to_owned()));
    }
    for stem in stems {
        add(Origin::Subset, Pattern::LinesFrom(format!("{stem}_subset")));
    }
    add(Origin::LocalSplit, Pattern::LinesFrom(local.to_owned()));
    all
}

impl Candidate {
    fn find(&self, folder: &Path, names: &BTreeSet<String>) -> Result<Option<FileSet>, DataError> {
        let (format, found): (Format, Vec<&str>) = match &self.pattern {
            Pattern::Lines(stem) => {
                (Format::Jsonl, one(names.get(&format!("{stem}.jsonl")).map(String::as_str)))
            }
            Pattern::LinesFrom(start) => {
                let matches = |name: &&String| {
                    name.starts_with(start)
                        && name.strip_suffix("jsonl").is_some_and(|stem| stem.ends_with('.'))
                };
                let last = names.iter().rev().find(matches);
                (Format::Jsonl, one(last.map(String::as_str)))
            }
            Pattern::Columns(stem) => {
                let mut found = shards(stem, folder, names)?;
                if found.is_empty() {
                    found = one(names.get(&format!("{stem}.parquet")).map(String::as_str));
                }
                (Format::Parquet, found)
            }
        };
        let (split, origin) = (self.split, self.origin);
        let files: Vec<_> = found.into_iter().map(|name| folder.join(name)).collect();
        let set = FileSet { split, origin, format, files, dev_pairs: None };
        Ok((!set.files.is_empty()).then_some(set))
    }

    /// The names that this candidate matches.
    fn names(&self) -> String {
        match &self.pattern {
            Pattern::Lines(stem) => format!("{stem}.jsonl"),
            Pattern::Columns(stem) => format!("{stem}-*-of-*.parquet"),
            Pattern::LinesFrom(start) => format!("{start}*.jsonl"),
        }
    }
}

fn one(name: Option<&str>) -> Vec<&str> {
    name.into_iter().collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use Origin::{LocalSplit, Official, Subset};

    /// Names of train and validation files, with the origin of each.
    fn found(files: &[&str], set: ReasoningSet) -> Result<[(String, Origin); 2], ReasoningError> {
        let dir = tempfile::tempdir().unwrap();
        for file in files {
            let file = dir.path().join(file);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, "").unwrap();
        }
        let located = locate(dir.path(), set)?;
        Ok([located.train, located.validation].map(|found| {
            let names = found.files.iter();
            let names =
                names.map(|file| file.strip_prefix(dir.path()).unwrap().display().to_string());
            (names.collect::<Vec<_>>().join(" "), found.origin)
        }))
    }

    fn check(set: ReasoningSet, files: &[&str], train: (&str, Origin), validation: (&str, Origin)) {
        let wanted = [(train.0.to_owned(), train.1), (validation.0.to_owned(), validation.1)];
        assert_eq!(found(files, set).unwrap(), wanted, "{files:?}");
    }

    #[test]
    fn the_better_file_wins_whatever_else_is_there() {
        let winogrande = [
            "WinoGrande/train_s.jsonl",
            "WinoGrande/train_m.jsonl",
            "WinoGrande/localdev_from_train_l.jsonl",
        ];
        let local = ("WinoGrande/localdev_from_train_l.jsonl", LocalSplit);
        check(ReasoningSet::WgS, &winogrande, ("WinoGrande/train_s.jsonl", Official), local);
        check(ReasoningSet::WgM, &winogrande, ("WinoGrande/train_m.jsonl", Official), local);
        check(
            ReasoningSet::ArcC,
            &[
                "ARC-Challenge/ARC-Challenge-Train.jsonl",
                "ARC-Challenge/ARC-Challenge-Dev.jsonl",
                "ARC-Challenge/ARC-Challenge-Test.jsonl",
                "ARC-Challenge/train-00000-of-00001.parquet",
            ],
            ("ARC-Challenge/ARC-Challenge-Train.jsonl", Official),
            ("ARC-Challenge/ARC-Challenge-Dev.jsonl", Official),
        );
        check(
            ReasoningSet::Obqa,
            &[
                "OpenBookQA/train.jsonl",
                "OpenBookQA/train_split80.jsonl",
                "OpenBookQA/localdev_split20.jsonl",
            ],
            ("OpenBookQA/train_split80.jsonl", LocalSplit),
            ("OpenBookQA/localdev_split20.jsonl", LocalSplit),
        );
        check(
            ReasoningSet::BoolQ,
            &[
                "BoolQ/dev.jsonl",
                "BoolQ/train_questions_only.jsonl",
                "BoolQ/train_subset2000.jsonl",
            ],
            ("BoolQ/train_subset2000.jsonl", Subset),
            ("BoolQ/dev.jsonl", Official),
        );
    }

    #[test]
    fn the_folders_of_the_hub_are_found() {
        for (set, folder) in [
            (ReasoningSet::WgS, "winogrande_s"),
            (ReasoningSet::WgM, "winogrande/winogrande_m"),
            (ReasoningSet::ArcC, "ai2_arc/ARC-Challenge"),
            (ReasoningSet::ArcE, "ARC-Easy"),
            (ReasoningSet::Obqa, "openbookqa/main"),
            (ReasoningSet::BoolQ, "boolq/data"),
        ] {
            let train = format!("{folder}/train-00000-of-00001.parquet");
            let validation = format!("{folder}/validation-00000-of-00001.parquet");
            check(set, &[&train, &validation], (&train, Official), (&validation, Official));
        }
    }

    #[test]
    fn a_local_dev_set_never_goes_with_the_train_file_it_was_cut_from() {
        let files = ["OpenBookQA/train.jsonl", "OpenBookQA/localdev_split20.jsonl"];
        let error = found(&files, ReasoningSet::Obqa).unwrap_err().to_string();
        assert!(error.starts_with("no train files of task `obqa`"), "{error}");
        assert!(error.contains("/train_split*.jsonl`"), "{error}");
    }

    #[test]
    fn everything_looked_for_is_listed() {
        let error = found(&["WinoGrande/x"], ReasoningSet::WgS).unwrap_err().to_string();
        for name in ["dev.jsonl", "localdev*.jsonl", "validation-*-of-*.parquet"] {
            assert!(error.contains(name), "{name}: {error}");
        }
        let error = locate(Path::new("no/such/place"), ReasoningSet::WgS).unwrap_err();
        assert!(matches!(error, ReasoningError::Data(DataError::NoDirectory { .. })));
        let files = ["boolq/train-00000-of-00002.parquet", "boolq/validation.parquet"];
        let error = found(&files, ReasoningSet::BoolQ).unwrap_err().to_string();
        assert!(error.contains("has 1 of the 2 shards"), "{error}");
    }
}
