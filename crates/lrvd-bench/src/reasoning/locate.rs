//! The files of a data directory that serve a set, and reading them.
//!
//! The order of preference is fixed, so the same directory always gives the same files:
//!
//! 1. the authors' layout before the public hub's, and within each its folders in the order of the table;
//! 2. the validation split: published names before subsets before a local dev set cut from train;
//! 3. the format: JSONL before parquet, for both are the original of one layout;
//! 4. the train split, by the same rules. A local dev set that was cut from the train file goes only with the rest of
//!    that file, never with the whole.

use std::path::Path;

use super::set::{FileNames, LocalDev};
use super::{ChoiceItem, ReasoningData, ReasoningSet, read_items};
use crate::data::load::GeneratedMark;
use crate::data::locate::{Candidate, Located, Pattern, Place, search};
use crate::data::{FileSet, Format, Origin, Split, SplitName, describe, limit};
use crate::error::Result;

pub(crate) fn locate(data_dir: &Path, set: ReasoningSet) -> Result<Located> {
    let spec = set.spec();
    let places = [&spec.original, &spec.hub].map(|names| Place {
        folders: names.folders.iter().map(|&folder| folder.to_owned()).collect(),
        train: candidates(names, SplitName::Train),
        validation: candidates(names, SplitName::Validation),
    });
    search(data_dir, set.name(), &places, |train, validation| {
        let cut_from_train =
            validation.origin == Origin::LocalSplit && spec.local_dev == LocalDev::FromTrain;
        !cut_from_train || train.origin == Origin::LocalSplit
    })
}

fn candidates(names: &FileNames, split: SplitName) -> Vec<Candidate> {
    let (stems, local) = match split {
        SplitName::Train => (&[names.train][..], "train_split"),
        SplitName::Validation => (names.validation, "localdev"),
    };
    let mut all = Vec::new();
    let mut add = |origin, format, pattern| all.push(Candidate { origin, format, pattern });
    for &stem in stems {
        add(Origin::Official, Format::Jsonl, Pattern::Exact(stem.to_owned(), "jsonl"));
        add(Origin::Official, Format::Parquet, Pattern::Shards(stem.to_owned()));
        add(Origin::Official, Format::Parquet, Pattern::Exact(stem.to_owned(), "parquet"));
    }
    for stem in stems {
        add(Origin::Subset, Format::Jsonl, Pattern::Starting(format!("{stem}_subset"), "jsonl"));
    }
    add(Origin::LocalSplit, Format::Jsonl, Pattern::Starting(local.to_owned(), "jsonl"));
    all
}

pub fn load(data_dir: &Path, set: ReasoningSet) -> Result<ReasoningData> {
    load_first(data_dir, set, None)
}

pub(crate) fn load_first(
    data_dir: &Path,
    set: ReasoningSet,
    rows: Option<usize>,
) -> Result<ReasoningData> {
    let located = locate(data_dir, set)?;
    let mut train = read_split(&located.train, set)?;
    let mut validation = read_split(&located.validation, set)?;
    let mut notes = Vec::new();
    if let Some(mark) = GeneratedMark::read(&located.folder)? {
        train.origin = Origin::Generated;
        validation.origin = Origin::Generated;
        let (train, validation) = (train.file_names(), validation.file_names());
        notes.extend(mark.notes(set.display_name(), "answers", &train, &validation, rows));
    }
    notes.extend([&train, &validation].into_iter().filter_map(|split| note(split, set)));
    notes.extend(validation.note_shared(&train, "items", |item| {
        let choices: Vec<&str> = item.choices.iter().map(|choice| choice.text.as_str()).collect();
        (&item.passage, &item.question, choices)
    }));
    if let Some(note) = limit(&mut validation.examples, rows) {
        if validation.origin == Origin::Official {
            validation.origin = Origin::Subset;
        }
        notes.push(note);
    }
    Ok(ReasoningData { set, train, validation, notes })
}

/// Reads one split.
///
/// The origin `Official` is kept only where the number of rows is the published one.
pub(crate) fn read_split(files: &FileSet, set: ReasoningSet) -> Result<Split<ChoiceItem>> {
    let mut items = Vec::new();
    let mut sources = Vec::new();
    for file in &files.files {
        items.extend(read_items(file, files.format, set, items.len())?);
        sources.push(describe(file)?);
    }
    let origin = match files.origin {
        Origin::Official if items.len() != published(set, files.split) => Origin::Unverified,
        origin => origin,
    };
    Ok(Split { name: files.split, origin, files: sources, examples: items })
}

const fn published(set: ReasoningSet, split: SplitName) -> usize {
    match split {
        SplitName::Train => set.spec().n_train,
        SplitName::Validation => set.spec().n_validation,
    }
}

/// Why metrics on a split cannot stand beside published ones; `None` where they can.
fn note(split: &Split<ChoiceItem>, set: ReasoningSet) -> Option<String> {
    let (name, rows, described) = (split.name, split.rows(), split.describe());
    let files = split.file_names().join(", ");
    match split.origin {
        Origin::Official | Origin::Generated => None,
        Origin::Unverified | Origin::Subset => Some(format!(
            "{name}: {described} (`{files}`), {rows} rows; the published split has {}",
            published(set, name)
        )),
        Origin::LocalSplit => Some(format!("{name}: {described} (`{files}`), {rows} rows")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use Origin::{LocalSplit, Official, Subset};

    use super::*;

    fn found(files: &[&str], set: ReasoningSet) -> Result<[(String, Origin); 2]> {
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
        let expected = [(train.0.to_owned(), train.1), (validation.0.to_owned(), validation.1)];
        assert_eq!(found(files, set).unwrap(), expected, "{files:?}");
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
        assert!(error.to_string().contains("does not exist or is not a directory"), "{error}");
        let files = ["boolq/train-00000-of-00002.parquet", "boolq/validation.parquet"];
        let error = found(&files, ReasoningSet::BoolQ).unwrap_err().to_string();
        assert!(error.contains("has 1 of the 2 shards"), "{error}");
    }
}
