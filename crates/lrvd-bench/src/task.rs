//! The tasks: one table of the nine of GLUE and of six sets of multiple-choice questions.
//!
//! A task is one row of the table: its files, columns, classes, metrics, prompt and published sizes. [`Goal`] is the part
//! that a user's own data has as well.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::record::Metrics;
use crate::text::UnknownName;

/// Classes, scores or texts, and the numbers that sum up predictions of them.
///
/// A benchmark task has one, and so has a user's own data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Goal {
    pub name: String,
    /// Class names in id order; empty for regression and for texts.
    pub classes: Vec<String>,
    pub standard_metrics: Vec<Metric>,
    pub selection: Metric,
}

impl Goal {
    /// The metric by which models are compared, in `metrics`, larger for the better one; minus infinity where it is absent.
    pub fn score(&self, metrics: &Metrics) -> f64 {
        let found = match self.selection {
            Metric::Accuracy => metrics.accuracy,
            Metric::Nll => metrics.nll.map(|nll| -nll),
            other => metrics.standard.get(other.name()).copied(),
        };
        found.unwrap_or(f64::NEG_INFINITY)
    }

    /// Classification: F1 and the Matthews coefficient (of class 1) where there are two classes.
    pub fn classification(name: &str, classes: Vec<String>) -> Self {
        let standard_metrics =
            if classes.len() == 2 { vec![Metric::F1, Metric::Matthews] } else { Vec::new() };
        Self { name: name.to_owned(), classes, standard_metrics, selection: Metric::Accuracy }
    }

    /// Questions whose classes are letters or other `labels`: metrics of the second class mean nothing there.
    pub fn questions(name: &str, labels: &[&str]) -> Self {
        let classes = labels.iter().map(ToString::to_string).collect();
        Self { standard_metrics: Vec::new(), ..Self::classification(name, classes) }
    }

    pub fn regression(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            classes: Vec::new(),
            standard_metrics: vec![Metric::Pearson, Metric::Spearman],
            selection: Metric::Pearson,
        }
    }

    /// Texts, of which the next tokens are predicted.
    pub fn texts(name: &str) -> Self {
        let (name, classes, standard_metrics) = (name.to_owned(), Vec::new(), Vec::new());
        Self { name, classes, standard_metrics, selection: Metric::Nll }
    }

    pub fn is_texts(&self) -> bool {
        self.selection == Metric::Nll
    }

    pub fn is_regression(&self) -> bool {
        self.classes.is_empty() && !self.is_texts()
    }

    pub fn n_labels(&self) -> usize {
        self.classes.len().max(1)
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
            Self::Nll => "nll",
        }
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A row of the table of tasks.
#[derive(Debug)]
pub struct TaskRow {
    /// Name on the command line and in records, such as `sst2`.
    pub name: &'static str,
    /// Name in the paper's tables and in the original folder layout, such as `SST-2`.
    pub display_name: &'static str,
    /// Layouts of its files, in order of preference.
    pub files: &'static [Files],
    /// Whether a file `localdev*` has rows of a larger train file, none of which are in the train file.
    pub larger_dev: bool,
    pub shape: Shape,
    pub target: Target,
    /// The metric of the paper's table; `None` where the paper has no such task.
    pub paper_metric: Option<Metric>,
    /// The metrics that the benchmark itself reports, the principal one first; none for questions.
    pub standard_metrics: &'static [Metric],
    /// Published number of training examples.
    pub n_train: usize,
    /// Published number of validation examples; the validation split serves as the test set.
    pub n_validation: usize,
}

/// Names of the files of a task, without format and folder.
#[derive(Debug)]
pub struct Files {
    /// Folders below the data directory, in order of preference; spellings of the task's names if there are none.
    pub folders: &'static [&'static str],
    pub train: &'static str,
    /// Stems of the validation files, in order of preference.
    pub validation: &'static [&'static str],
    /// An undivided corpus, and the list of those of its pairs that are the validation split.
    pub pair_list: Option<(&'static str, &'static str)>,
}

/// What is in a row of a task's files.
#[derive(Debug, Clone, Copy)]
pub enum Shape {
    /// One text or two, and a label. Each has names of columns, those of the original files first.
    Texts {
        text: &'static [&'static str],
        pair: &'static [&'static str],
        label: &'static [&'static str],
        /// Columns of files without a header.
        unnamed: Option<&'static [&'static str]>,
        /// The prompt of a language model; `{text}` and `{pair}` stand for the texts.
        template: &'static str,
        /// The words that answer it, in class order; none for a score.
        words: &'static [&'static str],
    },
    /// A sentence with a blank, and two texts of which one fills it.
    Blank,
    Choices {
        fewest: usize,
        most: usize,
        /// The header of the choices in the prompts of the `BLoB` code, which misspells one.
        blob_header: &'static str,
    },
    /// A question on a passage, answered by true or false.
    Passage,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Target {
    /// One of these classes; the index is the class id in files and in logits.
    Classes(&'static [&'static str]),
    /// A real number within `low..=high`, learnt by regression with a single output.
    Score { low: f64, high: f64 },
    /// One of so many choices; some rows of the two ARC sets have fewer.
    Choice(usize),
}

macro_rules! tasks {
    ($($(#[$about:meta])* $task:ident: $row:expr,)*) => {
        /// A task of the table. Class order and sizes of GLUE are those of the benchmark's public distribution; those of
        /// the questions are of the protocol that the baselines were published under (`BLoB`, arXiv:2406.11675).
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(into = "&'static str", try_from = "String")]
        pub enum Task {
            $($(#[$about])* $task,)*
        }

        impl Task {
            pub const ALL: &'static [Self] = &[$(Self::$task),*];

            pub const fn row(self) -> &'static TaskRow {
                match self {
                    $(Self::$task => const { &$row },)*
                }
            }
        }
    };
}

tasks! {
    /// Corpus of Linguistic Acceptability: is the sentence grammatical?
    Cola: TaskRow {
        name: "cola",
        display_name: "CoLA",
        shape: Shape::Texts {
            text: &["sentence"],
            pair: &[],
            label: LABEL,
            unnamed: Some(&["source", "label", "author mark", "sentence"]),
            template: "Sentence: {text}\nIs this sentence grammatical? Answer:",
            words: &["no", "yes"],
        },
        target: Target::Classes(&["unacceptable", "acceptable"]),
        standard_metrics: &[Metric::Matthews],
        n_train: 8_551,
        n_validation: 1_043,
        ..GLUE
    },
    /// Stanford Sentiment Treebank, two classes.
    Sst2: TaskRow {
        name: "sst2",
        display_name: "SST-2",
        shape: Shape::Texts {
            text: &["sentence"],
            pair: &[],
            label: LABEL,
            unnamed: None,
            template: "Review: {text}\nSentiment:",
            words: &["negative", "positive"],
        },
        target: Target::Classes(&["negative", "positive"]),
        n_train: 67_349,
        n_validation: 872,
        ..GLUE
    },
    /// Microsoft Research Paraphrase Corpus.
    Mrpc: TaskRow {
        name: "mrpc",
        display_name: "MRPC",
        files: &[Files {
            pair_list: Some(("msr_paraphrase_train.txt", "dev_ids.tsv")),
            ..GLUE_FILES
        }],
        shape: Shape::Texts {
            text: &["#1 String", "sentence1"],
            pair: &["#2 String", "sentence2"],
            label: &["Quality", "label"],
            unnamed: None,
            template: "Sentence 1: {text}\nSentence 2: {pair}\nDo both sentences mean the same? Answer:",
            words: &["no", "yes"],
        },
        target: Target::Classes(&["not_equivalent", "equivalent"]),
        standard_metrics: &[Metric::F1, Metric::Accuracy],
        n_train: 3_668,
        n_validation: 408,
        ..GLUE
    },
    /// Quora Question Pairs: do two questions ask the same?
    Qqp: TaskRow {
        name: "qqp",
        display_name: "QQP",
        shape: Shape::Texts {
            text: &["question1"],
            pair: &["question2"],
            label: &["is_duplicate", "label"],
            unnamed: None,
            template: "Question 1: {text}\nQuestion 2: {pair}\nDo both questions ask the same? Answer:",
            words: &["no", "yes"],
        },
        target: Target::Classes(&["not_duplicate", "duplicate"]),
        standard_metrics: &[Metric::F1, Metric::Accuracy],
        n_train: 363_846,
        n_validation: 40_430,
        ..GLUE
    },
    /// Multi-genre natural language inference, three classes.
    Mnli: TaskRow {
        name: "mnli",
        display_name: "MNLI",
        files: &[Files {
            validation: &["dev_matched", "validation_matched", "dev", "validation", "val"],
            ..GLUE_FILES
        }],
        shape: Shape::Texts {
            text: INFERENCE[0],
            pair: INFERENCE[1],
            label: &["gold_label", "label"],
            unnamed: None,
            template: "Premise: {text}\nHypothesis: {pair}\nDoes the premise entail the hypothesis (yes, maybe, no)? Answer:",
            words: &["yes", "maybe", "no"],
        },
        target: Target::Classes(&["entailment", "neutral", "contradiction"]),
        n_train: 392_702,
        n_validation: 9_815,
        ..GLUE
    },
    /// Question-answering inference: does the sentence answer the question?
    Qnli: TaskRow {
        name: "qnli",
        display_name: "QNLI",
        shape: Shape::Texts {
            text: &["question"],
            pair: &["sentence"],
            label: LABEL,
            unnamed: None,
            template: "Question: {text}\nSentence: {pair}\nDoes the sentence answer the question? Answer:",
            words: &["yes", "no"],
        },
        n_train: 104_743,
        n_validation: 5_463,
        ..GLUE
    },
    /// Recognising Textual Entailment.
    Rte: TaskRow {
        name: "rte",
        display_name: "RTE",
        n_train: 2_490,
        n_validation: 277,
        ..GLUE
    },
    /// Semantic Textual Similarity Benchmark: regression on a score from 0 to 5.
    Stsb: TaskRow {
        name: "stsb",
        display_name: "STS-B",
        shape: Shape::Texts {
            text: &["sentence1"],
            pair: &["sentence2"],
            label: &["score", "label"],
            unnamed: None,
            template: "Sentence 1: {text}\nSentence 2: {pair}\nHow much alike are they, from 0 to 5? Score:",
            words: &[],
        },
        target: Target::Score { low: 0.0, high: 5.0 },
        paper_metric: None,
        standard_metrics: &[Metric::Pearson, Metric::Spearman],
        n_train: 5_749,
        n_validation: 1_500,
        ..GLUE
    },
    /// Winograd schemas as inference: does the sentence entail that with the pronoun replaced? Many validation rows contradict
    /// training rows that have the same text but for a word, so 56 % (the majority class) are hard to exceed.
    Wnli: TaskRow {
        name: "wnli",
        display_name: "WNLI",
        target: Target::Classes(&["not_entailment", "entailment"]),
        shape: entailment(&["no", "yes"]),
        paper_metric: None,
        n_train: 635,
        n_validation: 71,
        ..GLUE
    },
    /// `WinoGrande`, the train split of 640 rows.
    WgS: TaskRow {
        name: "wg-s",
        display_name: "WG-S",
        files: &[
            Files { folders: WINOGRANDE, train: "train_s", validation: &["dev"], ..HUB },
            Files {
                folders: &["winogrande_s", "winogrande/winogrande_s", "WinoGrande/winogrande_s"],
                ..HUB
            },
        ],
        larger_dev: true,
        shape: Shape::Blank,
        target: Target::Choice(2),
        n_train: 640,
        n_validation: 1_267,
        ..QUESTIONS
    },
    /// AI2 Reasoning Challenge, the questions that retrieval gets wrong.
    ArcC: TaskRow {
        name: "arc-c",
        display_name: "ARC-C",
        files: &[
            Files {
                folders: &[
                    "ARC-Challenge",
                    "ARC-V1-Feb2018-2/ARC-Challenge",
                    "ARC-V1-Feb2018/ARC-Challenge",
                ],
                train: "ARC-Challenge-Train",
                validation: &["ARC-Challenge-Dev"],
                ..HUB
            },
            Files { folders: &["ai2_arc/ARC-Challenge", "ARC-Challenge"], ..HUB },
        ],
        n_train: 1_119,
        n_validation: 299,
        ..QUESTIONS
    },
    /// AI2 Reasoning Challenge, the other questions.
    ArcE: TaskRow {
        name: "arc-e",
        display_name: "ARC-E",
        files: &[
            Files {
                folders: &["ARC-Easy", "ARC-V1-Feb2018-2/ARC-Easy", "ARC-V1-Feb2018/ARC-Easy"],
                train: "ARC-Easy-Train",
                validation: &["ARC-Easy-Dev"],
                ..HUB
            },
            Files { folders: &["ai2_arc/ARC-Easy", "ARC-Easy"], ..HUB },
        ],
        n_train: 2_251,
        n_validation: 570,
        ..QUESTIONS
    },
    /// `WinoGrande`, the train split of 2,558 rows.
    WgM: TaskRow {
        name: "wg-m",
        display_name: "WG-M",
        files: &[
            Files { folders: WINOGRANDE, train: "train_m", validation: &["dev"], ..HUB },
            Files {
                folders: &["winogrande_m", "winogrande/winogrande_m", "WinoGrande/winogrande_m"],
                ..HUB
            },
        ],
        larger_dev: true,
        shape: Shape::Blank,
        target: Target::Choice(2),
        n_train: 2_558,
        n_validation: 1_267,
        ..QUESTIONS
    },
    /// `OpenBookQA`, without its book.
    Obqa: TaskRow {
        name: "obqa",
        display_name: "OBQA",
        files: &[
            Files {
                folders: &["OpenBookQA", "OpenBookQA-V1-Sep2018/Data/Main", "openbookqa"],
                validation: &["dev"],
                ..HUB
            },
            Files { folders: &["openbookqa/main", "OpenBookQA/main", "openbookqa"], ..HUB },
        ],
        shape: Shape::Choices { fewest: 4, most: 4, blob_header: "Chioces" },
        target: Target::Choice(4),
        n_train: 4_957,
        n_validation: 500,
        ..QUESTIONS
    },
    /// Yes/no questions on a passage.
    BoolQ: TaskRow {
        name: "boolq",
        display_name: "BoolQ",
        files: &[
            Files { folders: &["BoolQ", "boolq"], validation: &["dev"], ..HUB },
            Files {
                folders: &["boolq", "boolq/data", "BoolQ", "BoolQ/data"],
                validation: &["validation", "val"],
                ..HUB
            },
        ],
        shape: Shape::Passage,
        target: Target::Choice(2),
        n_train: 9_427,
        n_validation: 3_270,
        ..QUESTIONS
    },
}

const LABEL: &[&str] = &["label"];
const INFERENCE: [&[&str]; 2] = [&["sentence1", "premise"], &["sentence2", "hypothesis"]];
const WINOGRANDE: &[&str] = &["WinoGrande", "winogrande", "winogrande_1.1"];

const GLUE_FILES: Files = Files {
    folders: &[],
    train: "train",
    validation: &["dev", "validation", "val"],
    pair_list: None,
};

/// Files of the public data hub: parquet shards, or JSONL of the same columns.
const HUB: Files =
    Files { folders: &[], train: "train", validation: &["validation"], pair_list: None };

/// Whether one text entails another, answered by `words` in class order.
const fn entailment(words: &'static [&'static str]) -> Shape {
    Shape::Texts {
        text: INFERENCE[0],
        pair: INFERENCE[1],
        label: LABEL,
        unnamed: None,
        template: "Premise: {text}\nHypothesis: {pair}\nDoes the premise entail the hypothesis? Answer:",
        words,
    }
}

/// What the tasks of GLUE share, most of it as in those of inference.
const GLUE: TaskRow = TaskRow {
    name: "",
    display_name: "",
    files: &[GLUE_FILES],
    larger_dev: false,
    shape: entailment(&["yes", "no"]),
    target: Target::Classes(&["entailment", "not_entailment"]),
    paper_metric: Some(Metric::Accuracy),
    standard_metrics: &[Metric::Accuracy],
    n_train: 0,
    n_validation: 0,
};

/// What the sets of questions share.
const QUESTIONS: TaskRow = TaskRow {
    files: &[],
    shape: Shape::Choices { fewest: 2, most: 5, blob_header: "Choices" },
    target: Target::Choice(5),
    standard_metrics: &[],
    ..GLUE
};

impl Task {
    /// The nine tasks of GLUE.
    pub fn glue() -> impl Iterator<Item = Self> + Clone {
        Self::ALL.iter().copied().filter(|task| !task.is_question())
    }

    /// The six sets of questions.
    pub fn reasoning() -> impl Iterator<Item = Self> + Clone {
        Self::ALL.iter().copied().filter(|task| task.is_question())
    }

    /// Whether its rows are questions with choices.
    pub const fn is_question(self) -> bool {
        !matches!(self.row().shape, Shape::Texts { .. })
    }

    pub const fn name(self) -> &'static str {
        self.row().name
    }

    pub const fn display_name(self) -> &'static str {
        self.row().display_name
    }

    /// Whether a row has two texts.
    pub const fn is_pair(self) -> bool {
        matches!(self.row().shape, Shape::Texts { pair: [_, ..], .. })
    }

    /// What is learnt of it; the classes of questions follow from the prompt.
    pub fn goal(self) -> Goal {
        let row = self.row();
        let classes: &[&str] = match row.target {
            Target::Classes(names) => names,
            Target::Score { .. } | Target::Choice(_) => &[],
        };
        Goal {
            name: row.name.to_owned(),
            classes: classes.iter().map(ToString::to_string).collect(),
            standard_metrics: row.standard_metrics.to_vec(),
            // The paper's, or else the principal standard one.
            selection: row
                .paper_metric
                .or(row.standard_metrics.first().copied())
                .unwrap_or(Metric::Accuracy),
        }
    }

    /// The task of GLUE with this command-line name (`sst2`) or table name (`SST-2`), in any case.
    pub fn named_glue(name: &str) -> Result<Self, UnknownName> {
        Self::named("task", name, Self::glue())
    }

    /// The set of questions with this name.
    pub fn named_reasoning(name: &str) -> Result<Self, UnknownName> {
        Self::named("reasoning set", name, Self::reasoning())
    }

    fn named(
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

impl From<Task> for &'static str {
    fn from(task: Task) -> Self {
        task.name()
    }
}

impl TryFrom<String> for Task {
    type Error = UnknownName;

    fn try_from(name: String) -> Result<Self, Self::Error> {
        Self::named("task", &name, Self::ALL.iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_compared_by_correlation_and_classes_by_accuracy() {
        for task in Task::glue() {
            let goal = task.goal();
            assert_eq!(goal.is_regression(), task == Task::Stsb);
            let is_published = ![Task::Stsb, Task::Wnli].contains(&task);
            assert_eq!(task.row().paper_metric.is_some(), is_published);
            let selection = if task == Task::Stsb { Metric::Pearson } else { Metric::Accuracy };
            assert_eq!(goal.selection, selection);
        }
    }

    #[test]
    fn binary_metrics_need_two_classes() {
        let names = |n: usize| (0..n).map(|i| format!("c{i}")).collect::<Vec<_>>();
        let two = Goal::classification("own", names(2));
        assert_eq!(two.standard_metrics, [Metric::F1, Metric::Matthews]);
        assert_eq!(Goal::classification("own", names(3)).standard_metrics, []);
        assert_eq!(Goal::regression("own").n_labels(), 1);
    }

    #[test]
    fn both_spellings_of_every_name_parse_back() {
        for &task in Task::ALL {
            let named = if task.is_question() { Task::named_reasoning } else { Task::named_glue };
            for text in [task.name(), task.display_name(), &task.name().to_uppercase()] {
                assert_eq!(named(text).unwrap(), task, "{text}");
            }
            let json = serde_json::to_string(&task).unwrap();
            assert_eq!(json, format!("\"{}\"", task.name()));
            assert_eq!(serde_json::from_str::<Task>(&json).unwrap(), task);
        }
    }
}
