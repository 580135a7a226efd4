//! Examples, splits and data sets: what readers return, and which rows take part.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;

use lrvd_core::metrics::argmax_rows;
use lrvd_core::noise::{NoiseKey, Stream, permutation};
use serde::{Deserialize, Serialize};

use super::{Place, SourceFile, TextColumns};
use crate::answers::{AnswerSpace, Question, QuestionKind, QuestionOption};
use crate::task::{Goal, Task};
use crate::text::quoted;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Label {
    Class(usize),
    /// The share of every class, such as of votes; they sum to 1.
    Shares(Vec<f64>),
    /// Any number of labels, by their ids in order.
    Set(Vec<usize>),
    Score(f64),
}

impl Label {
    /// The class that has all, or the shares.
    pub(super) fn of_shares(shares: Vec<f64>) -> Self {
        match shares.iter().position(|&share| share == 1.0) {
            Some(class) => Self::Class(class),
            None => Self::Shares(shares),
        }
    }

    /// The share of every one of `classes`; `None` of a score and of a set.
    pub(crate) fn shares(&self, classes: usize) -> Option<Vec<f64>> {
        match self {
            Self::Class(id) => Some((0..classes).map(|i| f64::from(i == *id)).collect()),
            Self::Shares(shares) => {
                Some((0..classes).map(|i| shares.get(i).copied().unwrap_or(0.0)).collect())
            }
            Self::Set(_) | Self::Score(_) => None,
        }
    }

    /// The class of the largest share, the first of equals.
    pub fn class(&self) -> Option<usize> {
        match self {
            Self::Class(id) => Some(*id),
            Self::Shares(shares) => argmax_rows(shares, shares.len()).ok()?.first().copied(),
            Self::Set(_) | Self::Score(_) => None,
        }
    }

    /// The label once class `order[i]` has become class `i`.
    pub(super) fn reorder(&mut self, order: &[usize]) {
        match self {
            Self::Class(id) => *id = order.iter().position(|old| old == id).unwrap_or(*id),
            Self::Shares(shares) => *shares = order.iter().map(|&old| shares[old]).collect(),
            Self::Set(_) | Self::Score(_) => {}
        }
    }

    pub const fn score(&self) -> Option<f64> {
        match self {
            Self::Class(_) | Self::Shares(_) | Self::Set(_) => None,
            Self::Score(score) => Some(*score),
        }
    }
}

/// Input of a classifier: a text, a pair of texts, or a question with its choices. Texts are as in the file.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Input {
    pub text: String,
    /// The second text of a pair, or the passage that a question is about.
    pub pair: Option<String>,
    /// Possible answers to a question, of which the label is one; empty for a text, and for a question that is answered by
    /// true or false.
    pub choices: Vec<String>,
    /// `true` if the file numbers the choices, rather than to letter them.
    pub numbered: bool,
    /// Of a typed question, its type.
    pub kind: Option<QuestionKind>,
}

impl Input {
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// A question about a state: the question, the state as its passage, and the options in words. An encoder that answers one
    /// question reads the state alone.
    pub fn asking(question: &Question, state: &str) -> Self {
        let option = |QuestionOption { name, description }: &QuestionOption| match description {
            Some(description) if question.kind == QuestionKind::Score => description.clone(),
            Some(description) => format!("{name}: {description}"),
            None => name.clone(),
        };
        let text = match &*question.instructions {
            "" => "Is it true?",
            instructions => instructions,
        };
        Self {
            kind: Some(question.kind),
            pair: Some(state.to_owned()),
            choices: question.options.iter().map(option).collect(),
            ..Self::text(text)
        }
    }
}

/// One row of a data file: what is read, what is to be learnt, and where it was. Of a language model's texts the
/// [`Content`](super::Content) has both.
#[derive(Debug, Clone, PartialEq)]
pub struct Example<C = Input, L = Label> {
    /// The file's own id, or the row number counted from 0.
    pub id: String,
    pub place: Place,
    pub input: C,
    pub label: L,
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

/// Limits of a comparison of a split with published results.
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

#[derive(Debug, Clone, PartialEq)]
pub struct Split<T = Example> {
    pub name: SplitName,
    /// Limits of a comparison with published results.
    pub origin: Origin,
    pub files: Vec<SourceFile>,
    pub examples: Vec<T>,
}

impl<T> Split<T> {
    pub(super) fn own(name: SplitName, file: SourceFile, examples: Vec<T>) -> Self {
        Self { name, origin: Origin::Unverified, files: vec![file], examples }
    }

    pub fn rows(&self) -> usize {
        self.examples.len()
    }

    /// The examples of all rows.
    pub(super) fn flat<U>(self, examples: impl FnMut(T) -> Vec<U>) -> Split<U> {
        let Self { name, origin, files, examples: rows } = self;
        Split { name, origin, files, examples: rows.into_iter().flat_map(examples).collect() }
    }

    pub(super) fn file_names(&self) -> Vec<String> {
        let names = self.files.iter().filter_map(|file| file.path.file_name());
        names.map(|name| name.to_string_lossy().into_owned()).collect()
    }

    /// SHA-256 of every file, by path.
    pub fn hashes(&self) -> BTreeMap<String, String> {
        let hash = |file: &SourceFile| (file.path.display().to_string(), file.sha256.clone());
        self.files.iter().map(hash).collect()
    }

    /// A part of a published split is none.
    fn is_cut(&mut self) {
        if self.origin == Origin::Official {
            self.origin = Origin::Subset;
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Labelled {
    pub goal: Goal,
    /// The benchmark's task; `None` for a user's own files.
    pub task: Option<Task>,
    /// The columns, for files that have columns of the user's own.
    pub columns: Option<TextColumns>,
}

pub(crate) type SplitFiles = BTreeMap<String, BTreeMap<String, String>>;

/// Subject of a run: a task of the table, or a user's own files.
#[derive(Debug, Clone, PartialEq)]
pub struct Dataset<T = Example, K = Labelled> {
    /// The task's, or that of the training file.
    pub name: String,
    pub kind: K,
    pub train: Split<T>,
    pub validation: Split<T>,
    /// Share of the rows of a user's file that is the validation split.
    pub validation_split: Option<f64>,
    /// Remarks on the data for a reader of the results, one sentence each.
    pub notes: Vec<String>,
}

impl<T, K> Dataset<T, K> {
    /// SHA-256 of every file, by path.
    pub fn files(&self) -> BTreeMap<String, String> {
        let mut files = self.train.hashes();
        files.extend(self.validation.hashes());
        files
    }

    /// SHA-256 of every file, by split and path.
    pub(crate) fn split_files(&self) -> SplitFiles {
        let of = |split: SplitName, files| (split.to_string(), files);
        [
            of(SplitName::Train, self.train.hashes()),
            of(SplitName::Validation, self.validation.hashes()),
        ]
        .into()
    }

    /// Cuts the validation rows to the first `most` and says so.
    pub(crate) fn limit(&mut self, most: Option<usize>) -> Option<String> {
        let all = self.validation.rows();
        let most = most.filter(|&most| most < all)?;
        self.validation.examples.truncate(most);
        self.validation.is_cut();
        Some(format!("evaluated on the first {most} of {all} validation rows"))
    }

    /// Cuts the training rows to `most` drawn without replacement, in their order, and says so. The same rows
    /// whatever the seed of the run: seeds then differ in nothing but training.
    pub(crate) fn sample(&mut self, most: Option<usize>) -> Option<String> {
        let all = self.train.rows();
        let most = most.filter(|&most| most < all)?;
        self.train.examples = drawn(std::mem::take(&mut self.train.examples), most, 0).0;
        self.train.is_cut();
        Some(format!("trained on {most} of {all} rows, drawn at random"))
    }
}

impl Dataset {
    /// `true` if pairs of texts are read, or questions about a passage.
    pub fn pairs(&self) -> bool {
        !matches!(self.kind.goal.answers, AnswerSpace::Question { .. })
            && self.train.examples.iter().any(|example| example.input.pair.is_some())
    }

    /// A note on classes without a training row; none for questions, whose classes are letters.
    pub(crate) fn untrained(&self) -> Option<String> {
        let (AnswerSpace::Classes { names } | AnswerSpace::Labels { names }) =
            &self.kind.goal.answers
        else {
            return None;
        };
        let mut trained = BTreeSet::new();
        for row in &self.train.examples {
            match &row.label {
                Label::Set(labels) => trained.extend(labels),
                label => trained.extend(label.class()),
            }
        }
        let absent = names
            .iter()
            .enumerate()
            .filter(|(id, _)| !trained.contains(id))
            .map(|(_, class)| class);
        let absent: Vec<&String> = absent.collect();
        (!absent.is_empty()).then(|| {
            format!(
                "no training row has one of these labels, which are not learnt: {}",
                quoted(absent)
            )
        })
    }

    /// The options of typed questions in an order drawn by `seed` for each training row, so that the place of an option says
    /// nothing; those of a score keep the order of its levels.
    pub(crate) fn permute_options(&mut self, seed: u64) {
        if !matches!(self.kind.goal.answers, AnswerSpace::Questions { .. }) {
            return;
        }
        let key = NoiseKey::new(seed ^ OPTIONS_SALT).on_stream(Stream::DATA);
        for (row, Example { input, label, .. }) in self.train.examples.iter_mut().enumerate() {
            let is_ordered = matches!(input.kind, None | Some(QuestionKind::Score));
            if is_ordered {
                continue;
            }
            let row = u32::try_from(row).unwrap_or(u32::MAX);
            let order = permutation(key.at_step(row), input.choices.len());
            let choices = order.iter().map(|&old| std::mem::take(&mut input.choices[old]));
            input.choices = choices.collect();
            label.reorder(&order);
        }
    }
}

/// Mixed into the run's seed, so that the order of options has nothing of that of rows.
const OPTIONS_SALT: u64 = 0x4f50_5449_4f4e_5321;
/// Mixed into the run's seed, so that the rows held out are no order of an epoch.
const HOLDOUT_SALT: u64 = 0x484f_4c44_4f55_5421;

/// `count` of the `rows`, and the others, drawn by `seed`; both in their order. Seed 0 is for what is drawn once and for
/// all runs.
pub(super) fn drawn<T>(rows: Vec<T>, count: usize, seed: u64) -> (Vec<T>, Vec<T>) {
    drawn_by_class(rows, count, seed, |_| None)
}

/// As [`drawn`], of each `class` about its share of the rows, and not all rows of it. Of classes with one row each there may
/// thus be fewer than `count`. Rows without a class are drawn as if they were one class, which may be drawn whole.
///
/// Shares are rounded by the largest remainder, of equal ones that of the class whose row comes first in the drawn order.
pub(super) fn drawn_by_class<T>(
    rows: Vec<T>,
    count: usize,
    seed: u64,
    class: impl Fn(&T) -> Option<usize>,
) -> (Vec<T>, Vec<T>) {
    struct Share {
        rows: usize,
        most: usize,
        drawn: usize,
        remainder: usize,
        first: usize,
    }
    let order = permutation(NoiseKey::new(seed).on_stream(Stream::DATA), rows.len());
    let all = rows.len().max(1);
    let count = count.min(rows.len());
    let mut shares: BTreeMap<Option<usize>, Share> = BTreeMap::new();
    for (first, &row) in order.iter().enumerate() {
        let new = || Share { rows: 0, most: 0, drawn: 0, remainder: 0, first };
        shares.entry(class(&rows[row])).or_insert_with(new).rows += 1;
    }
    for (class, share) in &mut shares {
        share.most = share.rows - usize::from(class.is_some());
        share.drawn = (count * share.rows / all).min(share.most);
        share.remainder = count * share.rows % all;
    }
    let mut left = count - shares.values().map(|share| share.drawn).sum::<usize>();
    let mut by_remainder: Vec<&mut Share> = shares.values_mut().collect();
    by_remainder.sort_by_key(|share| (Reverse(share.remainder), share.first));
    while left > 0 {
        let before = left;
        for share in by_remainder.iter_mut().filter(|share| share.drawn < share.most).take(left) {
            share.drawn += 1;
            left -= 1;
        }
        if left == before {
            break;
        }
    }
    let mut is_drawn = vec![false; rows.len()];
    for &row in &order {
        if let Some(share) = shares.get_mut(&class(&rows[row])).filter(|share| share.drawn > 0) {
            share.drawn -= 1;
            is_drawn[row] = true;
        }
    }
    let mut is_drawn = is_drawn.into_iter();
    rows.into_iter().partition(|_| is_drawn.next().unwrap_or(false))
}

/// The `rows` less `share` of them, and those, drawn by `class` and by `seed`; both in their order. One row stays at least.
pub(crate) fn held_out<T>(
    rows: Vec<T>,
    share: f64,
    seed: u64,
    class: impl Fn(&T) -> Option<usize>,
) -> (Vec<T>, Vec<T>) {
    let expected = (share * rows.len() as f64).round() as usize;
    let expected = expected.min(rows.len().saturating_sub(1));
    let (held, rest) = drawn_by_class(rows, expected, seed ^ HOLDOUT_SALT, class);
    (rest, held)
}

#[derive(Clone, Debug, PartialEq)]
pub enum Validation {
    File(PathBuf),
    /// This share of the training file's rows, drawn once by class, the same ones for every seed.
    Share(f64),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_keeps_its_order_and_is_always_the_same() {
        let sample = |most: usize| drawn((0..100).collect::<Vec<usize>>(), most, 0);
        let (rows, rest) = sample(30);
        assert_eq!((rows.len(), rest.len(), rows.is_sorted()), (30, 70, true));
        assert_eq!(sample(30).0, rows);
        // Not the first ones, and more rows are these and others.
        assert!(rows[29] > 60 && rows.iter().all(|row| sample(60).0.contains(row)));
        assert_eq!(sample(100).0, (0..100).collect::<Vec<_>>());
        let held = |seed| held_out((0..40).collect::<Vec<_>>(), 0.1, seed, |_| None);
        assert!(held(1).0.len() == 36 && held(1).1 != held(2).1);
        assert_eq!(held(1), held(1));
        let mut both: Vec<_> = [held(1).0, held(1).1].concat();
        both.sort_unstable();
        assert_eq!(both, (0..40).collect::<Vec<_>>());
        assert_eq!(held_out(vec![0, 1], 1.0, 1, |_| None).0.len(), 1);
    }

    /// Rows of each class among 100 and how many of ten drawn ones they are: `10·rows/100`, the rest by the largest remainder.
    #[test]
    fn a_class_gives_its_share_and_keeps_a_row() {
        let rows = |sizes: &[usize]| -> Vec<usize> {
            // Sorted by class, as a file may be.
            sizes.iter().enumerate().flat_map(|(class, &n)| vec![class; n]).collect()
        };
        let drawn = |sizes: &[usize], count: usize, seed: u64| {
            let (held, rest) = drawn_by_class(rows(sizes), count, seed, |&class| Some(class));
            let of = |rows: &[usize], class| rows.iter().filter(|&&row| row == class).count();
            for (class, &size) in sizes.iter().enumerate() {
                assert!(of(&rest, class) > 0, "class {class} has no row left");
                assert_eq!(of(&rest, class) + of(&held, class), size);
            }
            (0..sizes.len()).map(|class| of(&held, class)).collect::<Vec<_>>()
        };
        for seed in 0..20 {
            assert_eq!(drawn(&[50, 30, 20], 10, seed), [5, 3, 2]);
            assert_eq!(drawn(&[56, 24, 19, 1], 10, seed), [6, 2, 2, 0]);
            // Their shares are a half each, and neither gives its only row.
            assert_eq!(drawn(&[1, 1, 2], 2, seed), [0, 0, 1]);
            assert_eq!(drawn(&[1, 1, 1], 1, seed), [0, 0, 0]);
            // Of equal remainders any may come first.
            assert_eq!(drawn(&[5; 10], 5, seed).iter().sum::<usize>(), 5);
        }
        let first = |seed| drawn(&[5; 10], 5, seed);
        assert!((1..20).any(|seed| first(seed) != first(0)));
    }

    #[test]
    fn options_are_permuted_with_their_labels_and_levels_are_not() {
        let place =
            || Place { file: std::path::Path::new("d").into(), at: super::super::At::Line(1) };
        let example = |kind, label| {
            let choices = ["a", "b", "c", "d"].map(str::to_owned).to_vec();
            let input = Input { kind: Some(kind), choices, ..Input::text("t") };
            Example { id: String::new(), place: place(), input, label }
        };
        let shares = Label::Shares(vec![0.1, 0.2, 0.3, 0.4]);
        let one = |i: usize| match i % 3 {
            0 => example(QuestionKind::Choice, Label::Class(i % 4)),
            1 => example(QuestionKind::Choice, shares.clone()),
            _ => example(QuestionKind::Score, Label::Class(i % 4)),
        };
        let split = |name, rows| Split {
            name,
            origin: Origin::Unverified,
            files: Vec::new(),
            examples: (0..rows).map(one).collect(),
        };
        let goal = Goal::new("d", AnswerSpace::Questions { max_options: 4, usual: None });
        let data = Dataset {
            name: "d".to_owned(),
            kind: Labelled { goal, task: None, columns: None },
            train: split(SplitName::Train, 60),
            validation: split(SplitName::Validation, 6),
            validation_split: None,
            notes: Vec::new(),
        };
        let permuted = |seed| {
            let mut data = data.clone();
            data.permute_options(seed);
            data
        };
        let (found, again, other) = (permuted(1), permuted(1), permuted(2));
        assert_eq!(found, again);
        assert!(found.train != other.train && found.validation == data.validation);
        let mut places = [[0; 4]; 4];
        for (old, new) in data.train.examples.iter().zip(&found.train.examples) {
            // What is said of an option stays with it.
            let said = |example: &Example| {
                let shares = example.label.shares(4).unwrap().into_iter();
                let mut said: Vec<_> = example.input.choices.iter().cloned().zip(shares).collect();
                said.sort_by(|a, b| a.0.cmp(&b.0));
                said
            };
            assert_eq!(said(old), said(new));
            if old.input.kind == Some(QuestionKind::Score) {
                assert_eq!(old, new);
            } else {
                for (at, choice) in new.input.choices.iter().enumerate() {
                    places[at]["abcd".find(choice.as_str()).unwrap()] += 1;
                }
            }
        }
        // Each option in each place in 10 of 40 rows on average.
        assert!(places.iter().flatten().all(|count| (3..=20).contains(count)), "{places:?}");
    }
}
