//! Examples, splits and data sets: what readers hand on.

use std::collections::HashSet;
use std::fmt;
use std::hash::Hash;
use std::path::{Path, PathBuf};

use anyhow::{anyhow, bail};
use serde::{Deserialize, Serialize};

use super::Place;
use super::load::drawn;
use crate::error::{Error, Result};
use crate::task::{GlueTask, Target, TaskSpec};

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Label {
    Class(usize),
    Score(f64),
}

impl Label {
    pub const fn class(self) -> Option<usize> {
        match self {
            Self::Class(id) => Some(id),
            Self::Score(_) => None,
        }
    }

    pub const fn score(self) -> Option<f64> {
        match self {
            Self::Class(_) => None,
            Self::Score(score) => Some(score),
        }
    }
}

/// One labelled sentence or sentence pair, texts exactly as in the file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Example {
    /// The file's own id, or the row number counted from 0.
    pub id: String,
    pub text_a: String,
    pub text_b: Option<String>,
    /// Possible answers, of which the label is one; empty where the label is a class or a score of the texts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub choices: Vec<String>,
    pub label: Label,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Texts<'a> {
    pub text: &'a str,
    /// The second text of a pair, or the passage that a question is about.
    pub pair: Option<&'a str>,
    /// Possible answers to a question; empty for a text.
    pub choices: &'a [String],
}

impl Example {
    pub fn texts(&self) -> Texts<'_> {
        Texts { text: &self.text_a, pair: self.text_b.as_deref(), choices: &self.choices }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SplitName {
    Train,
    Validation,
}

impl fmt::Display for SplitName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Train => "train",
            Self::Validation => "validation",
        })
    }
}

/// How far a split may be compared with published results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// The published split, by file name and number of rows.
    Official,
    /// A file named as the published split, but with another number of rows.
    Unverified,
    Subset,
    /// Cut from the published train split.
    LocalSplit,
    Generated,
}

impl Origin {
    /// Words for a table or a report, such as `official dev` or `local dev (cut from train)`.
    pub const fn describe(self, split: SplitName) -> &'static str {
        match (self, split) {
            (Self::Official, SplitName::Train) => "official train",
            (Self::Official, SplitName::Validation) => "official dev",
            (Self::Unverified, SplitName::Train) => "train of unknown origin",
            (Self::Unverified, SplitName::Validation) => "dev of unknown origin",
            (Self::Subset, SplitName::Train) => "subset of train",
            (Self::Subset, SplitName::Validation) => "subset of dev",
            (Self::LocalSplit, SplitName::Train) => "part of train",
            (Self::LocalSplit, SplitName::Validation) => "local dev (cut from train)",
            (Self::Generated, SplitName::Train) => "generated train",
            (Self::Generated, SplitName::Validation) => "generated dev",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceFile {
    pub path: PathBuf,
    pub bytes: u64,
    /// SHA-256 of the contents, lower-case hexadecimal.
    pub sha256: String,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Split<T = Example> {
    pub name: SplitName,
    /// How far it may be compared with published results.
    pub origin: Origin,
    pub files: Vec<SourceFile>,
    pub examples: Vec<T>,
}

impl<T> Split<T> {
    pub fn rows(&self) -> usize {
        self.examples.len()
    }

    pub const fn describe(&self) -> &'static str {
        self.origin.describe(self.name)
    }

    pub(crate) fn file_names(&self) -> Vec<String> {
        let names = self.files.iter().filter_map(|file| file.path.file_name());
        names.map(|name| name.to_string_lossy().into_owned()).collect()
    }

    /// What a reader must know if `texts` of these examples, the validation split, occur in `train` too.
    pub(crate) fn note_shared<'a, K: Eq + Hash>(
        &'a self,
        train: &'a Self,
        what: &str,
        texts: impl Fn(&'a T) -> K,
    ) -> Option<String> {
        let known: HashSet<K> = train.examples.iter().map(&texts).collect();
        let shared =
            self.examples.iter().filter(|&example| known.contains(&texts(example))).count();
        let rows = self.rows();
        (shared > 0)
            .then(|| format!("{shared} of {rows} validation {what} occur in the train split too"))
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Dataset {
    pub task: GlueTask,
    pub train: Split,
    pub validation: Split,
    /// What a reader of the results must know of the data, one sentence each.
    pub notes: Vec<String>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Field<'a> {
    pub(super) spec: &'static TaskSpec,
    pub(super) column: &'a str,
    pub(super) place: &'a Place,
}

impl Field<'_> {
    /// A class name, a class id in digits, or a score in digits.
    pub(super) fn of_text(self, text: &str) -> Result<Label> {
        let text = text.trim();
        match self.spec.target {
            Target::Score { .. } => match text.parse() {
                Ok(score) => self.of_score(score),
                Err(_) => Err(self.bad_score(text)),
            },
            Target::Classes(names) => match names.iter().position(|name| *name == text) {
                Some(id) => Ok(Label::Class(id)),
                None => match text.parse() {
                    Ok(id) => self.of_integer(id),
                    Err(_) => Err(self.unknown(text)),
                },
            },
        }
    }

    /// A class id; for regression a whole score.
    pub(super) fn of_integer(self, id: i128) -> Result<Label> {
        match self.spec.target {
            Target::Score { .. } => self.of_score(id as f64),
            Target::Classes(classes) if id == -1 => Err(anyhow!(
                "{}, column `{}`: label -1 marks a hidden test label, expected one of {}",
                self.place,
                self.column,
                allowed(classes)
            )),
            Target::Classes(names) => match usize::try_from(id) {
                Ok(id) if id < names.len() => Ok(Label::Class(id)),
                _ => Err(self.unknown(&id.to_string())),
            },
        }
    }

    pub(super) fn of_score(self, score: f64) -> Result<Label> {
        match self.spec.target {
            Target::Score { low, high } if (low..=high).contains(&score) => Ok(Label::Score(score)),
            Target::Score { .. } => Err(self.bad_score(&score.to_string())),
            Target::Classes(_) => Err(self.unknown(&score.to_string())),
        }
    }

    fn unknown(self, found: &str) -> Error {
        anyhow!(
            "{}, column `{}`: unknown label `{found}`, expected one of {}",
            self.place,
            self.column,
            allowed(self.spec.class_names())
        )
    }

    fn bad_score(self, found: &str) -> Error {
        let Target::Score { low, high } = self.spec.target else {
            return self.unknown(found);
        };
        let (place, column) = (self.place, self.column);
        anyhow!("{place}, column `{column}`: `{found}` is not a score within {low}..={high}")
    }
}

fn allowed(classes: &[&str]) -> String {
    let each = classes.iter().enumerate().map(|(id, name)| format!("`{name}` ({id})"));
    each.collect::<Vec<_>>().join(", ")
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Spread {
    pub least: usize,
    pub median: usize,
    /// The one that 95 % of the rows do not exceed.
    pub most_rows: usize,
    pub most: usize,
}

impl Spread {
    pub(crate) fn of(mut values: Vec<usize>) -> Option<Self> {
        values.sort_unstable();
        let last = values.len().checked_sub(1)?;
        let at = |share: f64| values[(share * last as f64).floor() as usize];
        Some(Self { least: values[0], median: at(0.5), most_rows: at(0.95), most: values[last] })
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum Validation {
    File(PathBuf),
    /// This share of the training file's rows, drawn once, the same ones for every seed.
    Share(f64),
}

impl Validation {
    pub(crate) fn split<T>(file: &Path, rows: Vec<T>, share: f64) -> Result<(Vec<T>, Vec<T>)> {
        let held = (share * rows.len() as f64).round() as usize;
        if held == 0 || held >= rows.len() {
            bail!(
                "`{}`: {share} of its {} rows leaves none to train on or none to measure on; pass another \
                 `--validation-split`, or `--validation FILE`",
                file.display(),
                rows.len()
            );
        }
        let (validation, train) = drawn(rows, held, 0);
        Ok((train, validation))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::data::At;

    fn read(task: GlueTask, text: &str) -> Result<Label> {
        let place = Place { file: "dev.tsv".into(), at: At::Line(7) };
        Field { spec: task.spec(), column: "label", place: &place }.of_text(text)
    }

    #[test]
    fn names_and_ids_are_both_labels() {
        assert_eq!(read(GlueTask::Mnli, "contradiction").unwrap(), Label::Class(2));
        assert_eq!(read(GlueTask::Mnli, " 2 ").unwrap(), Label::Class(2));
        assert_eq!(read(GlueTask::Rte, "not_entailment").unwrap(), Label::Class(1));
        assert_eq!(read(GlueTask::Stsb, "4.750").unwrap(), Label::Score(4.75));
    }

    #[test]
    fn ids_end_where_the_classes_end() {
        let message = |text| read(GlueTask::Cola, text).unwrap_err().to_string();
        assert!(read(GlueTask::Cola, "1").is_ok());
        assert_eq!(
            message("2"),
            "`dev.tsv`, line 7, column `label`: unknown label `2`, expected one of \
             `unacceptable` (0), `acceptable` (1)"
        );
        assert!(message("-1").contains("hidden test label"), "{}", message("-1"));
        assert!(message("-2").contains("unknown label `-2`"));
        assert!(message("Acceptable").contains("unknown label `Acceptable`"));
    }

    #[test]
    fn scores_end_at_their_bounds() {
        for good in ["0", "5.0", "0.000"] {
            assert!(read(GlueTask::Stsb, good).is_ok(), "{good}");
        }
        for bad in ["-0.001", "5.001", "NaN", "inf", "", "four"] {
            let error = read(GlueTask::Stsb, bad).unwrap_err();
            assert!(error.to_string().ends_with("is not a score within 0..=5"), "{error}");
        }
    }
}
