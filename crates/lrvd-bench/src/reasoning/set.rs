//! The table of the six sets, and the items that their readers return.
//!
//! Sizes and class numbers are those of the protocol that the baselines were published under (`BLoB`); the
//! validation split serves as the test set.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::data::Split;
use crate::text::UnknownName;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ReasoningSet {
    /// `WinoGrande`, the train split of 640 rows.
    #[serde(rename = "wg-s")]
    WgS,
    /// `WinoGrande`, the train split of 2,558 rows.
    #[serde(rename = "wg-m")]
    WgM,
    /// AI2 Reasoning Challenge, the questions that retrieval gets wrong.
    #[serde(rename = "arc-c")]
    ArcC,
    /// AI2 Reasoning Challenge, the other questions.
    #[serde(rename = "arc-e")]
    ArcE,
    /// `OpenBookQA`, without its book.
    #[serde(rename = "obqa")]
    Obqa,
    /// Yes/no questions on a passage.
    #[serde(rename = "boolq")]
    BoolQ,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// A sentence with a blank, and two texts of which one fills it.
    Blank,
    Choices {
        fewest: usize,
        most: usize,
    },
    /// A question on a passage, answered by true or false.
    Passage,
}

/// Where the validation rows of a local split come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LocalDev {
    /// From the train file itself: only the rest of it may be trained on.
    FromTrain,
    /// From a larger train file, rows that the smaller ones lack.
    FromLarger,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileNames {
    /// Folders below the data directory, in order of preference.
    pub folders: &'static [&'static str],
    pub train: &'static str,
    /// Stems of the validation files, in order of preference.
    pub validation: &'static [&'static str],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SetSpec {
    /// Name on the command line and in records, such as `arc-c`.
    pub name: &'static str,
    pub display_name: &'static str,
    pub layout: Layout,
    /// Number of classes; some rows of the two ARC sets have fewer choices.
    pub n_classes: usize,
    /// Published number of training rows.
    pub n_train: usize,
    /// Published number of validation rows.
    pub n_validation: usize,
    /// Files of the authors' release (JSONL).
    pub original: FileNames,
    /// Files of the public data hub (parquet shards, or JSONL of the same columns).
    pub hub: FileNames,
    /// Where the rows of a file `localdev*` come from.
    pub local_dev: LocalDev,
}

impl ReasoningSet {
    pub const ALL: [Self; 6] =
        [Self::WgS, Self::ArcC, Self::ArcE, Self::WgM, Self::Obqa, Self::BoolQ];

    pub const fn spec(self) -> &'static SetSpec {
        match self {
            Self::WgS => &WG_S,
            Self::WgM => &WG_M,
            Self::ArcC => &ARC_C,
            Self::ArcE => &ARC_E,
            Self::Obqa => &OBQA,
            Self::BoolQ => &BOOLQ,
        }
    }

    pub const fn name(self) -> &'static str {
        self.spec().name
    }

    pub const fn display_name(self) -> &'static str {
        self.spec().display_name
    }
}

impl fmt::Display for ReasoningSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for ReasoningSet {
    type Err = UnknownName;

    /// Reads a command-line name (`arc-c`) or a table name (`ARC-C`), in any case.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let expected = text.trim();
        let found = Self::ALL.into_iter().find(|set| expected.eq_ignore_ascii_case(set.name()));
        found.ok_or_else(|| UnknownName::new("reasoning set", expected, Self::ALL.map(Self::name)))
    }
}

const WINOGRANDE: &[&str] = &["WinoGrande", "winogrande", "winogrande_1.1"];

const WG_S: SetSpec = SetSpec {
    name: "wg-s",
    display_name: "WG-S",
    layout: Layout::Blank,
    n_classes: 2,
    n_train: 640,
    n_validation: 1_267,
    original: FileNames { folders: WINOGRANDE, train: "train_s", validation: &["dev"] },
    hub: FileNames {
        folders: &["winogrande_s", "winogrande/winogrande_s", "WinoGrande/winogrande_s"],
        train: "train",
        validation: &["validation"],
    },
    local_dev: LocalDev::FromLarger,
};

const WG_M: SetSpec = SetSpec {
    name: "wg-m",
    display_name: "WG-M",
    n_train: 2_558,
    original: FileNames { folders: WINOGRANDE, train: "train_m", validation: &["dev"] },
    hub: FileNames {
        folders: &["winogrande_m", "winogrande/winogrande_m", "WinoGrande/winogrande_m"],
        train: "train",
        validation: &["validation"],
    },
    ..WG_S
};

const ARC_C: SetSpec = SetSpec {
    name: "arc-c",
    display_name: "ARC-C",
    layout: Layout::Choices { fewest: 2, most: 5 },
    n_classes: 5,
    n_train: 1_119,
    n_validation: 299,
    original: FileNames {
        folders: &[
            "ARC-Challenge",
            "ARC-V1-Feb2018-2/ARC-Challenge",
            "ARC-V1-Feb2018/ARC-Challenge",
        ],
        train: "ARC-Challenge-Train",
        validation: &["ARC-Challenge-Dev"],
    },
    hub: FileNames {
        folders: &["ai2_arc/ARC-Challenge", "ARC-Challenge"],
        train: "train",
        validation: &["validation"],
    },
    local_dev: LocalDev::FromTrain,
};

const ARC_E: SetSpec = SetSpec {
    name: "arc-e",
    display_name: "ARC-E",
    n_train: 2_251,
    n_validation: 570,
    original: FileNames {
        folders: &["ARC-Easy", "ARC-V1-Feb2018-2/ARC-Easy", "ARC-V1-Feb2018/ARC-Easy"],
        train: "ARC-Easy-Train",
        validation: &["ARC-Easy-Dev"],
    },
    hub: FileNames {
        folders: &["ai2_arc/ARC-Easy", "ARC-Easy"],
        train: "train",
        validation: &["validation"],
    },
    ..ARC_C
};

const OBQA: SetSpec = SetSpec {
    name: "obqa",
    display_name: "OBQA",
    layout: Layout::Choices { fewest: 4, most: 4 },
    n_classes: 4,
    n_train: 4_957,
    n_validation: 500,
    original: FileNames {
        folders: &["OpenBookQA", "OpenBookQA-V1-Sep2018/Data/Main", "openbookqa"],
        train: "train",
        validation: &["dev"],
    },
    hub: FileNames {
        folders: &["openbookqa/main", "OpenBookQA/main", "openbookqa"],
        train: "train",
        validation: &["validation"],
    },
    local_dev: LocalDev::FromTrain,
};

const BOOLQ: SetSpec = SetSpec {
    name: "boolq",
    display_name: "BoolQ",
    layout: Layout::Passage,
    n_classes: 2,
    n_train: 9_427,
    n_validation: 3_270,
    original: FileNames { folders: &["BoolQ", "boolq"], train: "train", validation: &["dev"] },
    hub: FileNames {
        folders: &["boolq", "boolq/data", "BoolQ", "BoolQ/data"],
        train: "train",
        validation: &["validation", "val"],
    },
    local_dev: LocalDev::FromTrain,
};

/// The letters that choices go by, in class order.
pub const LETTERS: &[&str; 26] = &[
    "A", "B", "C", "D", "E", "F", "G", "H", "I", "J", "K", "L", "M", "N", "O", "P", "Q", "R", "S",
    "T", "U", "V", "W", "X", "Y", "Z",
];

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choice {
    /// Its label in the file: a letter or a digit, `True` or `False` for a yes/no question.
    pub label: String,
    /// Its text; for a yes/no question the label again.
    pub text: String,
}

/// One question with its possible answers, texts exactly as in the file.
///
/// # Invariants
///
/// From a reader: `answer` is an index into `choices`, and the labels of `choices` are distinct and in class order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChoiceItem {
    /// The file's own id, or the row number counted from 0.
    pub id: String,
    /// The passage that a question is about; of the six sets only that of yes/no questions has one.
    pub passage: Option<String>,
    /// The question, the sentence with a blank, or the beginning of a sentence.
    pub question: String,
    /// The possible answers; `False` before `True`.
    pub choices: Vec<Choice>,
    /// Class of the answer: its place among the choices.
    pub answer: usize,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ReasoningData {
    pub set: ReasoningSet,
    pub train: Split<ChoiceItem>,
    pub validation: Split<ChoiceItem>,
    /// What a reader of the results must know of the data, one sentence each.
    pub notes: Vec<String>,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn both_spellings_of_every_name_parse_back() {
        for set in ReasoningSet::ALL {
            for text in [set.name(), set.display_name()] {
                assert_eq!(text.parse::<ReasoningSet>().unwrap(), set);
            }
            assert_eq!(serde_json::to_string(&set).unwrap(), format!("\"{set}\""));
        }
        let error = "arc".parse::<ReasoningSet>().unwrap_err().to_string();
        assert_eq!(
            error,
            "unknown reasoning set `arc`; expected one of `wg-s`, `arc-c`, `arc-e`, `wg-m`, `obqa`, `boolq`; \
             did you mean `arc-c`?"
        );
    }

    #[test]
    fn the_table_is_that_of_the_protocol() {
        let facts = [
            (ReasoningSet::WgS, 2, 640, 1_267),
            (ReasoningSet::WgM, 2, 2_558, 1_267),
            (ReasoningSet::ArcC, 5, 1_119, 299),
            (ReasoningSet::ArcE, 5, 2_251, 570),
            (ReasoningSet::Obqa, 4, 4_957, 500),
            (ReasoningSet::BoolQ, 2, 9_427, 3_270),
        ];
        for (set, classes, train, validation) in facts {
            let spec = set.spec();
            assert_eq!(
                (spec.n_classes, spec.n_train, spec.n_validation),
                (classes, train, validation)
            );
        }
    }
}
