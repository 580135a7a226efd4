//! The search for the files of two splits, in a fixed order of preference.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{anyhow, bail};

use super::folder::{file_names, shards};
use super::{Format, Origin, SplitName};
use crate::error::{Kind, Result};
use crate::text::quoted;

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
        let wanted = if has_validation { &place.train } else { &place.validation };
        let folders = place.folders.join("|");
        wanted.iter().map(move |candidate| format!("{folders}/{}", candidate.pattern.names()))
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
