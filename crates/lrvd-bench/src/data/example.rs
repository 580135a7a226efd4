//! Examples, splits and data sets: what readers hand on.

use std::collections::HashSet;
use std::fmt;
use std::hash::Hash;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::task::GlueTask;

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
    /// A subset of the published split.
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
