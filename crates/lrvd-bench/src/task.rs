//! The tasks: nine of GLUE and six sets of multiple-choice questions.
//!
//! A task is one row of `tasks.toml`: its files, columns, classes, metrics, prompt and published sizes. [`Goal`] is the part
//! that a user's own data has as well.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use crate::answers::AnswerSpace;
use crate::record::Metrics;
use crate::text::UnknownName;

/// Answers that are learnt, and the numbers that sum up predictions of them.
///
/// A benchmark task has one, and so has a user's own data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Goal {
    pub name: String,
    pub answers: AnswerSpace,
    pub standard_metrics: Vec<Metric>,
    pub selection: Metric,
}

impl Goal {
    /// The metric by which models are compared, in `metrics`, larger for the better one; minus infinity where it is absent.
    pub fn score(&self, metrics: &Metrics) -> f64 {
        let found = match self.selection {
            Metric::Accuracy => metrics.accuracy,
            Metric::Nll => metrics.nll.map(|nll| -nll),
            other => metrics.standard.get(other.name()).copied().flatten(),
        };
        found.unwrap_or(f64::NEG_INFINITY)
    }

    /// A goal with the usual metrics of `answers`: F1 and the Matthews coefficient (of class 1) where there are two classes.
    pub fn new(name: &str, answers: AnswerSpace) -> Self {
        let (standard_metrics, selection) = match &answers {
            AnswerSpace::Classes { names } if names.len() == 2 => {
                (vec![Metric::F1, Metric::Matthews], Metric::Accuracy)
            }
            AnswerSpace::Score => (vec![Metric::Pearson, Metric::Spearman], Metric::Pearson),
            AnswerSpace::Labels { .. } => (vec![Metric::MicroF1], Metric::MicroF1),
            AnswerSpace::Tokens => (Vec::new(), Metric::Nll),
            // Metrics of the second class mean nothing where classes are letters.
            _ => (Vec::new(), Metric::Accuracy),
        };
        Self { name: name.to_owned(), answers, standard_metrics, selection }
    }

    pub fn classification(name: &str, names: Vec<String>) -> Self {
        Self::new(name, AnswerSpace::Classes { names })
    }
}

/// A number that sums up predictions on a validation split; larger is better, but for `Nll`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Fraction of examples whose most probable class is the label.
    Accuracy,
    /// Harmonic mean of precision and recall of class 1.
    F1,
    Matthews,
    /// Linear correlation of predicted and labelled scores.
    Pearson,
    /// Rank correlation of predicted and labelled scores.
    Spearman,
    /// F1 over all labels of all rows.
    MicroF1,
    /// Mean negative log-likelihood of a token of a text, nats.
    Nll,
}

impl Metric {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Accuracy => "accuracy",
            Self::F1 => "f1",
            Self::Matthews => "matthews",
            Self::Pearson => "pearson",
            Self::Spearman => "spearman",
            Self::MicroF1 => "micro_f1",
            Self::Nll => "nll",
        }
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A row of `tasks.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskRow {
    /// Name on the command line and in records, such as `sst2`.
    pub name: &'static str,
    /// Name in the paper's tables and in the original folder layout, such as `SST-2`.
    pub display_name: &'static str,
    /// Layouts of its files, in order of preference.
    pub files: Vec<Files>,
    /// `true` if a file `localdev*` has rows of a larger train file, none of which are in the train file.
    #[serde(default)]
    pub larger_dev: bool,
    pub shape: Shape,
    pub target: Target,
    /// The metric of the paper's table, or the principal standard one.
    #[serde(default = "accuracy")]
    pub selection: Metric,
    /// The metrics that the benchmark itself reports, the principal one first; none for questions.
    #[serde(default)]
    pub standard_metrics: Vec<Metric>,
    pub n_train: usize,
    /// Published number of validation examples; the validation split serves as the test set.
    pub n_validation: usize,
}

fn accuracy() -> Metric {
    Metric::Accuracy
}

/// Names of the files of a task, without format and folder.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Files {
    /// Folders below the data directory, in order of preference: of GLUE the table name, the command-line name, then other
    /// spellings.
    pub folders: Vec<&'static str>,
    #[serde(default = "train")]
    pub train: &'static str,
    /// Stems of the validation files, in order of preference.
    pub validation: Vec<&'static str>,
    /// An undivided corpus, and the list of those of its pairs that are the validation split.
    pub pair_list: Option<(&'static str, &'static str)>,
}

fn train() -> &'static str {
    "train"
}

/// Columns of a task's files.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields, bound(deserialize = "'de: 'static"))]
pub enum Shape {
    /// One text or two, and a label. Each has names of columns, those of the original files first.
    Texts {
        text: Vec<&'static str>,
        #[serde(default)]
        pair: Vec<&'static str>,
        label: Vec<&'static str>,
        /// Columns of files without a header.
        unnamed: Option<Vec<&'static str>>,
        /// The prompt of a language model; `{text}` and `{pair}` stand for the texts.
        template: String,
        /// The words that answer it, in class order; none for a score.
        #[serde(default)]
        words: Vec<String>,
    },
    /// A sentence with a blank, and two texts of which one fills it.
    Blank,
    Choices {
        fewest: usize,
        most: usize,
    },
    /// A question on a passage, answered by true or false.
    Passage,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// One of these classes; the index is the class id in files and in logits.
    Classes(Vec<String>),
    /// A real number within `low..=high`, learnt by regression with a single output.
    Score { low: f64, high: f64 },
    /// One of so many choices; some rows of the two ARC sets have fewer.
    Choice(usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Task {
    Cola,
    Sst2,
    Mrpc,
    Qqp,
    Mnli,
    Qnli,
    Rte,
    Stsb,
    Wnli,
    WgS,
    ArcC,
    ArcE,
    WgM,
    Obqa,
    #[serde(rename = "boolq")]
    BoolQ,
}

impl TaskRow {
    /// The table, in the order of [`Task`].
    fn all() -> &'static [Self] {
        static TABLE: LazyLock<BTreeMap<String, Vec<TaskRow>>> = LazyLock::new(|| {
            toml::from_str(include_str!("tasks.toml"))
                .unwrap_or_else(|error| unreachable!("tasks.toml: {error}"))
        });
        &TABLE["task"]
    }
}

impl Task {
    pub const ALL: [Self; 15] = {
        use Task::{
            ArcC, ArcE, BoolQ, Cola, Mnli, Mrpc, Obqa, Qnli, Qqp, Rte, Sst2, Stsb, WgM, WgS, Wnli,
        };
        [Cola, Sst2, Mrpc, Qqp, Mnli, Qnli, Rte, Stsb, Wnli, WgS, ArcC, ArcE, WgM, Obqa, BoolQ]
    };

    pub fn row(self) -> &'static TaskRow {
        &TaskRow::all()[self as usize]
    }

    pub fn glue() -> impl Iterator<Item = Self> + Clone {
        Self::ALL.into_iter().filter(|task| !task.is_question())
    }

    pub fn reasoning() -> impl Iterator<Item = Self> + Clone {
        Self::ALL.into_iter().filter(|task| task.is_question())
    }

    pub fn is_question(self) -> bool {
        !matches!(self.row().shape, Shape::Texts { .. })
    }

    pub fn name(self) -> &'static str {
        self.row().name
    }

    pub fn display_name(self) -> &'static str {
        self.row().display_name
    }

    pub fn is_pair(self) -> bool {
        matches!(&self.row().shape, Shape::Texts { pair, .. } if !pair.is_empty())
    }

    /// Answers, metrics and names; the number of options of questions follows from the prompt.
    pub fn goal(self) -> Goal {
        let row = self.row();
        let answers = match &row.target {
            Target::Classes(names) => AnswerSpace::Classes { names: names.clone() },
            Target::Score { .. } => AnswerSpace::Score,
            Target::Choice(max_options) => AnswerSpace::Choice { max_options: *max_options },
        };
        let standard_metrics = row.standard_metrics.clone();
        Goal { name: row.name.to_owned(), answers, standard_metrics, selection: row.selection }
    }

    /// The task of GLUE with this command-line name (`sst2`) or table name (`SST-2`), in any case.
    pub fn named_glue(name: &str) -> Result<Self, UnknownName> {
        Self::named("task", name, Self::glue())
    }

    pub(crate) fn named(
        what: &'static str,
        name: &str,
        among: impl Iterator<Item = Self> + Clone,
    ) -> Result<Self, UnknownName> {
        let name = name.trim();
        let is = |own: &str| name.eq_ignore_ascii_case(own);
        let found = among.clone().find(|task| is(task.name()) || is(task.display_name()));
        found.ok_or_else(|| UnknownName::new(what, name, among.map(Self::name)))
    }
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_spellings_of_every_name_parse_back() {
        for task in Task::ALL {
            assert_eq!(format!("{task:?}").to_lowercase(), task.name().replace('-', ""));
            for text in [task.name(), task.display_name(), &task.name().to_uppercase()] {
                let found = Task::named("task", text, Task::ALL.into_iter());
                assert_eq!(found.unwrap(), task, "{text}");
            }
            let json = serde_json::to_string(&task).unwrap();
            assert_eq!(json, format!("\"{}\"", task.name()));
            assert_eq!(serde_json::from_str::<Task>(&json).unwrap(), task);
        }
    }
}
