//! Rows of a user's data file: texts, choices and labels by the names of their columns.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use lrvd_models::tokenizer::TextTokenizer;
use serde::{Deserialize, Serialize};

use super::data::{DataSource, reader};
use crate::backbone::{Architecture, locate_model, open_tokenizer};
use crate::data::table::{self, Cell, Format, Layout, Place, Table};
use crate::data::{Example, Label, Spread, Texts, Wording};
use crate::error::Result;
use crate::reasoning::QuestionForm;
use crate::settings::WordingSettings;

const QUESTION: &str = "question";
const CHOICES: &str = "choices";
const ANSWER: &str = "answer";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TextColumns {
    pub text: String,
    pub pair: Option<String>,
    pub label: Option<String>,
    /// Choices, of which the label is one: a column with the list of them, or a column for each of several; none where
    /// labels are classes or scores of the texts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub choices: Vec<String>,
}

impl Default for TextColumns {
    fn default() -> Self {
        let label = Some("label".to_owned());
        Self { text: "text".to_owned(), pair: None, label, choices: Vec::new() }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    pub place: Place,
    pub text: String,
    pub pair: Option<String>,
    pub choices: Vec<String>,
    pub label: Option<String>,
}

/// Reads a data file in the format that its name ends in: `.tsv`, `.csv`, `.jsonl` or `.parquet`.
pub fn read_rows(file: &Path, columns: &TextColumns) -> Result<Vec<Row>> {
    open(file, Format::of(file)?, columns)?.map(|row| Row::of(&row?, columns)).collect()
}

pub(super) fn open(file: &Path, format: Format, columns: &TextColumns) -> Result<Table> {
    let TextColumns { text, pair, label, choices } = columns;
    let expected: Vec<&str> = [Some(text), pair.as_ref(), label.as_ref()]
        .into_iter()
        .flatten()
        .chain(choices)
        .map(String::as_str)
        .collect();
    Table::open(file, &Layout { columns: &expected, blank_lines: true, ..Layout::of(format) })
}

impl TextColumns {
    /// The usual columns of questions: `question` and `answer`, with these choices.
    pub fn questions(choices: Vec<String>) -> Self {
        Self { text: QUESTION.to_owned(), pair: None, label: Some(ANSWER.to_owned()), choices }
    }

    pub fn usual_questions() -> Self {
        Self::questions(vec![CHOICES.to_owned()])
    }

    /// The columns that the first row of `file` has under their usual names: `question`, `choices` and `answer`, or else
    /// `text` and `label`.
    pub fn recognise(file: &Path) -> Result<Self> {
        let first = table::read(file)?.next().transpose()?;
        let has = |names: &[&str]| {
            first.as_ref().is_some_and(|row| names.iter().all(|name| row.has(name)))
        };
        let usual = Self::default();
        let is_question = has(&[QUESTION, CHOICES, ANSWER]) && !has(&["text", "label"]);
        Ok(if is_question { Self::usual_questions() } else { usual })
    }

    pub fn has_choices(&self) -> bool {
        !self.choices.is_empty()
    }

    /// The same columns, but for those that are given.
    #[must_use]
    pub fn with(
        self,
        text: Option<String>,
        pair: Option<String>,
        label: Option<String>,
        choices: Vec<String>,
    ) -> Self {
        Self {
            text: text.unwrap_or(self.text),
            pair: pair.or(self.pair),
            label: label.or(self.label),
            choices: if choices.is_empty() { self.choices } else { choices },
        }
    }
}

/// What a label or a choice should be.
const PLAIN: &str = "a string, a number or a boolean";

impl Row {
    pub(super) fn of(row: &table::Row, columns: &TextColumns) -> Result<Self> {
        let text = |column: &String| row.text(&[column]).map(str::to_owned);
        let label = |column: &String| {
            let (_, cell) = row.find(&[column])?;
            let label = cell.plain().ok_or_else(|| row.wrong_type(column, PLAIN, cell))?;
            match label.trim() {
                "" => Err(row.blank(column, "label")),
                label => Ok(label.to_owned()),
            }
        };
        Ok(Self {
            place: row.place().clone(),
            text: text(&columns.text)?,
            pair: columns.pair.as_ref().map(text).transpose()?,
            choices: choices(row, &columns.choices)?,
            label: columns.label.as_ref().map(label).transpose()?,
        })
    }
}

/// The choices in the list of one column, or in several columns, of which the last ones may be empty.
fn choices(row: &table::Row, columns: &[String]) -> Result<Vec<String>> {
    const LIST: &str =
        "a list of choices (several columns of one choice each are named one by one)";
    let one = |column: &str, cell: &Cell| -> Result<String> {
        let choice = cell.plain().ok_or_else(|| row.wrong_type(column, PLAIN, cell))?;
        Ok(choice.trim().to_owned())
    };
    let mut found: Vec<String> = Vec::new();
    if let [column] = columns {
        let (column, cell) = row.find(&[column])?;
        let Cell::List(list) = cell else { return Err(row.wrong_type(column, LIST, cell)) };
        found = list.iter().map(|cell| one(column, cell)).collect::<Result<_, _>>()?;
    } else {
        for column in columns {
            let (column, cell) = row.find(&[column])?;
            found.push(if *cell == Cell::Null { String::new() } else { one(column, cell)? });
        }
        let last = found.iter().rposition(|choice| !choice.is_empty());
        found.truncate(last.map_or(0, |last| last + 1));
    }
    match found.iter().position(String::is_empty) {
        Some(empty) => Err(row.blank(columns.get(empty).unwrap_or(&columns[0]), "choice")),
        None => Ok(found),
    }
}

const SHOWN: usize = 3;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SplitReport {
    pub name: &'static str,
    pub rows: usize,
    /// Rows of each class, in class order; empty for scores.
    pub classes: Vec<(String, usize)>,
    /// Smallest, mean and largest score; `None` for classes.
    pub scores: Option<[f64; 3]>,
    pub characters: Option<Spread>,
    /// Tokens of a row before anything is cut; `None` without a model.
    pub tokens: Option<Spread>,
    /// Rows that are longer than `max_length` and will be cut; `None` without a model.
    pub truncated: Option<usize>,
    pub empty: usize,
    /// Rows whose texts have occurred before in the split.
    pub repeated: usize,
    /// Rows whose texts are in the training split too; of the validation split only.
    pub seen_in_training: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RenderedExample {
    pub input: String,
    pub label: String,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DataReport {
    pub schema_version: u32,
    pub files: BTreeMap<String, String>,
    pub regression: bool,
    /// Whether rows are pairs of texts, or questions about a passage.
    pub pairs: bool,
    /// Longest input in tokens; `None` without a model.
    pub max_length: Option<usize>,
    pub wording: Option<String>,
    pub splits: Vec<SplitReport>,
    pub examples: Vec<RenderedExample>,
}

pub fn check_data(
    source: &DataSource,
    model: Option<&str>,
    given: &WordingSettings,
    max_length: usize,
) -> Result<DataReport> {
    let data = source.read()?;
    let opened = model.map(opened).transpose()?;
    let wording = match &opened {
        Some((architecture, _)) => data.wording(architecture, given, source.task())?,
        None => None,
    };
    let reader = match &opened {
        Some((architecture, tokenizer)) => {
            let kind = (&data.goal, data.columns.as_ref(), QuestionForm::default());
            let wording = wording.as_ref();
            Some((reader(architecture, tokenizer, kind, wording, max_length)?, tokenizer))
        }
        None => None,
    };
    let known: BTreeSet<_> = data.train.iter().map(Example::texts).collect();
    let mut splits = Vec::new();
    for (name, examples) in [("train", &data.train), ("validation", &data.validation)] {
        let characters = examples.iter().map(Example::texts).map(characters);
        let lengths = match &reader {
            Some((reader, _)) => {
                let whole = examples.iter().map(|example| reader.measure(example.texts()));
                Some(whole.collect::<Result<Vec<_>, _>>()?)
            }
            None => None,
        };
        let mut classes: Vec<(String, usize)> =
            data.goal.classes.iter().map(|class| (class.clone(), 0)).collect();
        let mut before = BTreeSet::new();
        let (mut repeated, mut shared, mut empty) = (0, 0, 0);
        for example in examples {
            let texts = example.texts();
            if let Some((_, rows)) = example.label.class().and_then(|id| classes.get_mut(id)) {
                *rows += 1;
            }
            shared += usize::from(name == "validation" && known.contains(&texts));
            empty += usize::from(texts.text.trim().is_empty());
            repeated += usize::from(!before.insert(texts));
        }
        splits.push(SplitReport {
            name,
            rows: examples.len(),
            classes,
            scores: scores(examples),
            characters: Spread::of(characters.collect()),
            tokens: lengths.as_ref().and_then(|l| Spread::of(l.iter().map(|(n, _)| *n).collect())),
            truncated: lengths.map(|l| l.iter().filter(|(_, cut)| *cut).count()),
            empty,
            repeated,
            seen_in_training: shared,
        });
    }
    let rendered = |example: &Example| -> Result<RenderedExample> {
        let texts = example.texts();
        let input = match (&reader, texts) {
            (Some((reader, tokenizer)), _) => {
                tokenizer.decode(&reader.encode(texts, example.label)?.0.ids, false)?
            }
            (None, Texts { text, pair: Some(pair), choices: [] }) => format!("{text} | {pair}"),
            (None, Texts { text, pair: None, choices: [] }) => text.to_owned(),
            (None, question) => QuestionForm::default().text(question),
        };
        let label = match example.label {
            Label::Class(id) => data.goal.classes.get(id).cloned().unwrap_or_default(),
            Label::Score(score) => score.to_string(),
        };
        Ok(RenderedExample { input, label })
    };
    Ok(DataReport {
        schema_version: 1,
        regression: data.goal.is_regression(),
        pairs: data.pairs(),
        max_length: model.map(|_| max_length),
        wording: wording.as_ref().map(Wording::describe),
        splits,
        examples: data.train.iter().take(SHOWN).map(rendered).collect::<Result<_, _>>()?,
        files: data.files,
    })
}

fn characters(texts: Texts<'_>) -> usize {
    let all = std::iter::once(texts.text).chain(texts.pair);
    let all = all.chain(texts.choices.iter().map(String::as_str));
    all.map(|text| text.chars().count()).sum()
}

fn opened(model: &str) -> Result<(Architecture, TextTokenizer)> {
    let folder = locate_model(model)?.folder;
    Ok((Architecture::read(&folder)?, open_tokenizer(&folder)?))
}

fn scores(examples: &[Example]) -> Option<[f64; 3]> {
    let score = |example: &Example| match example.label {
        Label::Score(score) => Some(score),
        Label::Class(_) => None,
    };
    let scores: Vec<f64> = examples.iter().filter_map(score).collect();
    let (least, most) =
        (scores.iter().copied().reduce(f64::min)?, scores.iter().copied().reduce(f64::max)?);
    Some([least, scores.iter().sum::<f64>() / scores.len() as f64, most])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn pairs() -> TextColumns {
        let (pair, label) = (Some("b".into()), Some("y".into()));
        TextColumns { text: "a".into(), pair, label, choices: Vec::new() }
    }

    fn read(name: &str, contents: &[u8]) -> Result<Vec<Row>> {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(name);
        std::fs::write(&file, contents).unwrap();
        read_rows(&file, &pairs())
    }

    fn plain(rows: &[Row]) -> Vec<(&str, &str, &str)> {
        let plain = |row: &'_ Row| (row.pair.clone(), row.label.clone());
        assert!(rows.iter().all(|row| plain(row).0.is_some()));
        rows.iter()
            .map(|r| (r.text.as_str(), r.pair.as_deref().unwrap(), r.label.as_deref().unwrap()))
            .collect()
    }

    #[test]
    fn every_text_format_gives_the_same_rows() {
        let expected = [("say \"no\", please", "yes", "1"), ("tea", "no", "0")];
        let tsv = b"\xef\xbb\xbfy\ta\tb\r\n1\tsay \"no\", please\tyes\r\n0\ttea\tno\r\n";
        let csv = b"a,b,y\n\"say \"\"no\"\", please\",yes,1\ntea,no,0\n";
        let jsonl = b"{\"a\":\"say \\\"no\\\", please\",\"b\":\"yes\",\"y\":1}\n\
                      {\"y\":\"0\",\"b\":\"no\",\"a\":\"tea\",\"more\":null}\n";
        for (name, contents) in [("d.tsv", &tsv[..]), ("d.CSV", &csv[..]), ("d.jsonl", &jsonl[..])]
        {
            assert_eq!(plain(&read(name, contents).unwrap()), expected, "{name}");
        }
    }

    #[test]
    fn a_lone_quote_in_a_tab_separated_file_merges_no_rows() {
        let rows = read("d.tsv", b"a\tb\ty\n\"open\tx\t1\nnext\tx\t0\n").unwrap();
        assert_eq!(plain(&rows), [("\"open", "x", "1"), ("next", "x", "0")]);
    }

    #[test]
    fn parquet_files_of_another_writer_are_read() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/data");
        let columns = |label: &str| TextColumns {
            text: "sentence".into(),
            label: Some(label.into()),
            ..TextColumns::default()
        };
        let file = folder.join("cola-train-00000-of-00002.parquet");
        let rows = read_rows(&file, &columns("label")).unwrap();
        let second = (rows[1].text.as_str(), rows[1].label.as_deref());
        assert_eq!((rows.len(), second), (2, ("The letters was lost.", Some("0"))));
        let missing = read_rows(&file, &columns("verdict")).unwrap_err().to_string();
        assert!(missing.contains("no column `verdict`; its columns are"), "{missing}");
        let null = read_rows(&folder.join("cola-null.parquet"), &columns("label")).unwrap_err();
        let null = null.to_string();
        assert!(null.contains("row 2, column `sentence`: null where a string"), "{null}");
    }

    #[test]
    fn a_file_that_is_not_there_is_said_to_be_absent() {
        let columns = TextColumns { text: "a".to_owned(), label: None, ..TextColumns::default() };
        for name in ["d.csv", "d.jsonl", "d.parquet"] {
            let error = read_rows(&Path::new("no-such-folder").join(name), &columns);
            let error = error.unwrap_err();
            let cause: &std::io::Error = error.downcast_ref().unwrap();
            assert_eq!(cause.kind(), std::io::ErrorKind::NotFound, "{name}");
        }
    }

    #[test]
    fn bad_rows_are_named_by_line_and_column() {
        let message = |name: &str, contents: &str| {
            let error = read(name, contents.as_bytes()).unwrap_err().to_string();
            error.split_once("d.").unwrap().1.to_owned()
        };
        assert_eq!(
            message("d.tsv", "a\tc\ty\n1\t2\t3\n"),
            "tsv` has no column `b`; its columns are `a`, `c`, `y`"
        );
        assert_eq!(
            message("d.tsv", "a\tb\ty\n1\t2\t3\n4\t5\n"),
            "tsv`, line 3: 2 tab-separated fields where 3 are expected (`a`, `b`, `y`)"
        );
        assert_eq!(message("d.csv", "a,b,y\n1, ,3\n"), "csv`, line 2, column `b`: empty text");
        assert_eq!(message("d.csv", "a,b,y\n1,2,\n"), "csv`, line 2, column `y`: empty label");
        assert_eq!(message("d.csv", "a,b,y\n"), "csv` holds no examples");
        assert_eq!(
            message("d.jsonl", "{\"a\":\"x\",\"y\":1}\n"),
            "jsonl`, line 1: no key `b`; the keys are `a`, `y`"
        );
        assert_eq!(
            message("d.jsonl", "{\"a\":\"x\",\"b\":3,\"y\":1}\n"),
            "jsonl`, line 1, column `b`: a number where a string is expected"
        );
        assert_eq!(message("d.jsonl", "{\"a\":\n"), "jsonl`, line 1: not a JSON object");
        assert!(message("d.txt", "a").contains("expected a name that ends in"));
    }
}
