//! The classes and examples in a user's files.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{anyhow, bail};
use lrvd_models::tokenizer::TextTokenizer;

use super::rows::{Row, TextColumns, read_rows};
use crate::backbone::{Architecture, TextReader};
use crate::data::{Example, Label, Place, Split, Validation, Wording, load};
use crate::error::Result;
use crate::io::sha256_file;
use crate::reasoning::{LETTERS, QuestionForm};
use crate::settings::WordingSettings;
use crate::task::{GlueTask, Goal};
use crate::text::quoted;

/// More distinct labels than this are hardly classes: a wrong column, most likely.
const MOST_CLASSES: usize = 1000;

#[derive(Clone, Debug, PartialEq)]
pub enum DataSource {
    Files {
        train: PathBuf,
        validation: Validation,
        columns: TextColumns,
        /// Classes in id order; those of the training file, sorted, if `None`.
        labels: Option<Vec<String>>,
        regression: bool,
    },
    Glue {
        task: GlueTask,
        data_dir: PathBuf,
    },
}

#[derive(Clone, Debug)]
pub struct ClassifyData {
    pub goal: Goal,
    pub train: Vec<Example>,
    pub validation: Vec<Example>,
    pub files: BTreeMap<String, String>,
    pub validation_files: BTreeSet<String>,
    /// The columns, for files that have columns of the user's own.
    pub columns: Option<TextColumns>,
}

impl ClassifyData {
    pub(super) fn pairs(&self) -> bool {
        self.train.iter().any(|example| example.text_b.is_some())
    }

    pub(super) fn wording(
        &self,
        architecture: &Architecture,
        given: &WordingSettings,
        task: Option<GlueTask>,
    ) -> Result<Option<Wording>> {
        if !self.columns.as_ref().is_some_and(TextColumns::has_choices) {
            return architecture.wording(given, &self.goal, task, self.pairs());
        }
        if let Some(key) = given.given() {
            bail!(
                "`{key}` is the prompt of a question for a class; a question with choices has another prompt and \
                 is answered by a letter"
            );
        }
        let form = QuestionForm::default();
        Ok(architecture.question_wording(form, self.goal.n_labels(), self.pairs()))
    }
}

pub(super) fn reader<'a>(
    architecture: &Architecture,
    tokenizer: &'a TextTokenizer,
    (goal, columns, form): (&'a Goal, Option<&TextColumns>, QuestionForm),
    wording: Option<&'a Wording>,
    max_length: usize,
) -> Result<TextReader<'a>> {
    Ok(if columns.is_some_and(TextColumns::has_choices) {
        architecture.questions(tokenizer, form, goal.n_labels(), max_length)?
    } else {
        architecture.reader(tokenizer, &goal.name, wording, max_length)?
    })
}

impl DataSource {
    pub(super) fn task(&self) -> Option<GlueTask> {
        match self {
            Self::Glue { task, .. } => Some(*task),
            Self::Files { .. } => None,
        }
    }

    pub fn is_regression(&self) -> bool {
        match self {
            Self::Glue { task, .. } => Goal::of_task(*task).is_regression(),
            Self::Files { regression, .. } => *regression,
        }
    }

    pub(super) fn validation_split(&self) -> Option<f64> {
        match self {
            Self::Files { validation: Validation::Share(share), .. } => Some(*share),
            _ => None,
        }
    }

    pub fn read(&self) -> Result<ClassifyData> {
        match self {
            Self::Glue { task, data_dir } => {
                let dataset = load(data_dir, *task)?;
                let of = |split: &Split| -> BTreeMap<String, String> {
                    let files = split.files.iter();
                    files.map(|f| (f.path.display().to_string(), f.sha256.clone())).collect()
                };
                let [mut files, other] = [of(&dataset.train), of(&dataset.validation)];
                let names = other.keys().filter(|name| !files.contains_key(*name));
                let validation_files = names.cloned().collect();
                files.extend(other);
                Ok(ClassifyData {
                    goal: Goal::of_task(*task),
                    train: dataset.train.examples,
                    validation: dataset.validation.examples,
                    files,
                    validation_files,
                    columns: None,
                })
            }
            Self::Files { train, validation, columns, labels, regression } => {
                if columns.has_choices() && (*regression || labels.is_some()) {
                    bail!(
                        "questions with choices are answered by letters: leave out labels and regression"
                    );
                }
                let mut files = BTreeMap::new();
                let other = match validation {
                    Validation::File(file) => Some(file),
                    Validation::Share(_) => None,
                };
                for file in std::iter::once(train).chain(other) {
                    let hash = sha256_file(file)?;
                    files.insert(file.display().to_string(), hash);
                }
                let other = other.filter(|other| *other != train);
                let validation_files = other.map(|file| file.display().to_string());
                let rows = read_rows(train, columns)?;
                let name = train.file_stem().and_then(|s| s.to_str()).unwrap_or("data");
                let goal = if *regression {
                    Goal::regression(name)
                } else if columns.has_choices() {
                    letters(name, &rows)
                } else {
                    let classes = classes(train, columns, &rows, labels.clone())?;
                    Goal::classification(name, classes)
                };
                let whole = labelled(&goal, columns, rows)?;
                let (train, validation) = match validation {
                    Validation::File(file) => (whole, read_examples(file, columns, &goal)?),
                    Validation::Share(share) => Validation::split(train, whole, *share)?,
                };
                let columns = Some(columns.clone());
                let validation_files = validation_files.into_iter().collect();
                Ok(ClassifyData { goal, train, validation, files, validation_files, columns })
            }
        }
    }
}

/// The labelled examples of one file, for a classifier that exists already.
pub(super) fn read_examples(
    file: &Path,
    columns: &TextColumns,
    goal: &Goal,
) -> Result<Vec<Example>> {
    labelled(goal, columns, read_rows(file, columns)?)
}

/// The `given` classes, or the distinct labels: by value if all are whole numbers, else by text.
fn classes(
    file: &Path,
    columns: &TextColumns,
    rows: &[Row],
    given: Option<Vec<String>>,
) -> Result<Vec<String>> {
    let column = || columns.label.clone().unwrap_or_default();
    let classes = match given {
        Some(classes) => classes,
        None => distinct(rows, column())?,
    };
    for (i, class) in classes.iter().enumerate() {
        if classes[..i].contains(class) {
            bail!("label `{class}` is given twice");
        }
        let value = number(class);
        let same = classes[..i].iter().find(|other| value.is_some() && number(other) == value);
        if let Some(other) = same {
            bail!(
                "`{}`, column `{}`: labels `{other}` and `{class}` are one number; write it in one way",
                file.display(),
                column()
            );
        }
    }
    if !(2..=MOST_CLASSES).contains(&classes.len()) {
        let found = classes.len();
        let many = found > MOST_CLASSES;
        let hint = if many { "; for numbers to be predicted pass `--regression`" } else { "" };
        bail!(
            "`{}`, column `{}`: {found} distinct labels, expected 2 to {MOST_CLASSES}{hint}",
            file.display(),
            column()
        );
    }
    Ok(classes)
}

/// As many letters as a row has choices at most. Metrics of the second class mean nothing here.
fn letters(name: &str, rows: &[Row]) -> Goal {
    let most = rows.iter().map(|row| row.choices.len()).max().unwrap_or(0);
    let letters = LETTERS.iter().take(most.max(2)).map(ToString::to_string).collect();
    Goal { standard_metrics: Vec::new(), ..Goal::classification(name, letters) }
}

/// The place of the one of `choices` that `found` means: by its text, its letter, or its place counted from 0.
fn answer(place: Place, column: String, found: String, choices: &[String]) -> Result<usize> {
    let means = |i: &usize| {
        choices[*i] == found
            || LETTERS.get(*i).is_some_and(|l| *l == found)
            || i.to_string() == found
    };
    let meant: Vec<usize> = (0..choices.len()).filter(means).collect();
    match meant[..] {
        [one] => Ok(one),
        [] => Err(anyhow!(
            "{place}, column `{column}`: answer `{found}` is none of the choices {expected}; expected the text of \
             one, its letter (`A` for the first) or its place counted from 0",
            expected = quoted(choices)
        )),
        _ => {
            let meant = quoted(meant.iter().filter_map(|&i| LETTERS.get(i)));
            Err(anyhow!(
                "{place}, column `{column}`: answer `{found}` may mean {meant}: it is read as the text of a \
                 choice, as its letter and as its place counted from 0; write it so that one choice is meant"
            ))
        }
    }
}

/// Distinct labels in order. `NaN` is how programs write a missing one, and no class.
fn distinct(rows: &[Row], column: String) -> Result<Vec<String>> {
    let mut distinct = BTreeSet::new();
    for row in rows {
        let label = row.label.as_deref().unwrap_or_default();
        if label.eq_ignore_ascii_case("nan") {
            bail!(
                "{}, column `{column}`: `{label}` marks a missing label and is no class; leave the row \
                 out, or name the class with `--labels`",
                row.place
            );
        }
        distinct.insert(label);
    }
    let mut classes: Vec<String> = distinct.into_iter().map(str::to_owned).collect();
    let numbers: Option<Vec<i64>> = classes.iter().map(|class| class.parse().ok()).collect();
    if numbers.is_some() {
        classes.sort_by_key(|class| class.parse::<i64>().unwrap_or(0));
    }
    Ok(classes)
}

fn number(class: &str) -> Option<f64> {
    class.parse().ok().filter(|number: &f64| number.is_finite())
}

fn labelled(goal: &Goal, columns: &TextColumns, rows: Vec<Row>) -> Result<Vec<Example>> {
    let column = columns.label.clone().unwrap_or_default();
    let ids: BTreeMap<&str, usize> =
        goal.classes.iter().enumerate().map(|(id, class)| (class.as_str(), id)).collect();
    let example = |(number, row): (usize, Row)| {
        let (place, column) = (row.place, column.clone());
        let found = row.label.unwrap_or_default();
        let label = if columns.has_choices() {
            let (n, most) = (row.choices.len(), goal.n_labels());
            if !(2..=most).contains(&n) {
                let column = columns.choices.join(", ");
                bail!("{place}, column `{column}`: {n} choices where 2 to {most} are expected");
            }
            Label::Class(answer(place, column, found, &row.choices)?)
        } else if goal.is_regression() {
            match found.parse::<f64>().ok().filter(|score| score.is_finite()) {
                Some(score) => Label::Score(score),
                None => bail!("{place}, column `{column}`: `{found}` is not a finite number"),
            }
        } else {
            let Some(&id) = ids.get(found.as_str()) else {
                let expected = quoted(&goal.classes);
                bail!(
                    "{place}, column `{column}`: unknown label `{found}`, expected one of {expected}"
                );
            };
            Label::Class(id)
        };
        let (id, choices) = (number.to_string(), row.choices);
        Ok(Example { id, text_a: row.text, text_b: row.pair, choices, label })
    };
    rows.into_iter().enumerate().map(example).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// Files of the format `ending`; the error without their folder.
    fn read_as(
        (ending, train): (&str, &str),
        validation: &str,
        columns: &TextColumns,
        regression: bool,
    ) -> Result<ClassifyData, String> {
        let dir = tempfile::tempdir().unwrap();
        let [train, validation] = [("train", train), ("dev", validation)].map(|(name, text)| {
            let path = dir.path().join(format!("{name}.{ending}"));
            std::fs::write(&path, text).unwrap();
            path
        });
        let (columns, validation) = (columns.clone(), Validation::File(validation));
        let source = DataSource::Files { train, validation, columns, labels: None, regression };
        source.read().map_err(|error| error.to_string().replace(dir.path().to_str().unwrap(), ""))
    }

    fn read(train: &str, validation: &str, regression: bool) -> Result<ClassifyData, String> {
        read_as(("csv", train), validation, &TextColumns::default(), regression)
    }

    #[test]
    fn classes_are_sorted_by_value_or_by_text() {
        let data = read("text,label\na,10\nb,9\nc,10\n", "text,label\nd,9\n", false).unwrap();
        assert_eq!(data.goal.classes, ["9", "10"]);
        let labels: Vec<_> = data.train.iter().map(|e| e.label).collect();
        assert_eq!(labels, [Label::Class(1), Label::Class(0), Label::Class(1)]);
        assert_eq!(data.validation[0].label, Label::Class(0));
        let data = read("text,label\na,no\nb,yes\nc,maybe\n", "text,label\nd,no\n", false).unwrap();
        assert_eq!(data.goal.classes, ["maybe", "no", "yes"]);
        assert_eq!(data.files.len(), 2);
    }

    #[test]
    fn labels_that_are_no_classes_of_their_own_are_rejected() {
        let good = "text,label\na,0\nb,1\n";
        let message = |train| read(train, good, false).unwrap_err();
        assert_eq!(
            message("text,label\na,0\nb,NaN\n"),
            "`/train.csv`, line 3, column `label`: `NaN` marks a missing label and is no class; leave the row out, \
             or name the class with `--labels`"
        );
        assert_eq!(
            message("text,label\na,1\nb,0\nc,1.0\n"),
            "`/train.csv`, column `label`: labels `1` and `1.0` are one number; write it in one way"
        );
        assert_eq!(
            message("text,label,text\na,0,b\n"),
            "`/train.csv`, line 1: `text` occurs 2 times, expected one such column"
        );
        let unread = "text,label,note,note\na,0,x,y\nb,1,x,y\n";
        assert_eq!(read(unread, good, false).unwrap().goal.classes, ["0", "1"]);
    }

    #[test]
    fn a_share_of_one_file_is_measured_on() {
        let dir = tempfile::tempdir().unwrap();
        let train = dir.path().join("all.csv");
        let rows: Vec<String> = (0..40).map(|i| format!("t{i},{}\n", i % 2)).collect();
        std::fs::write(&train, format!("text,label\n{}", rows.concat())).unwrap();
        let read = |share: f64| {
            let (columns, validation) = (TextColumns::default(), Validation::Share(share));
            let train = train.clone();
            DataSource::Files { train, validation, columns, labels: None, regression: false }.read()
        };
        let data = read(0.25).unwrap();
        assert_eq!((data.train.len(), data.validation.len(), data.files.len()), (30, 10, 1));
        let ids = |examples: &[Example]| -> BTreeSet<String> {
            examples.iter().map(|example| example.id.clone()).collect()
        };
        assert!(ids(&data.train).is_disjoint(&ids(&data.validation)));
        assert_eq!(ids(&read(0.25).unwrap().validation), ids(&data.validation));
        for share in [0.001, 0.999] {
            let message = read(share).unwrap_err().to_string();
            assert!(
                message.contains("40 rows") && message.contains(&share.to_string()),
                "{message}"
            );
        }
    }

    fn questions(
        train: (&str, &str),
        validation: &str,
        columns: &TextColumns,
    ) -> Result<ClassifyData, String> {
        read_as(train, validation, columns, false)
    }

    #[test]
    fn an_answer_is_a_text_a_letter_or_a_place_and_every_format_says_the_same() {
        let jsonl = "{\"question\":\"a\",\"choices\":[\"x\",\" y\",\"z\"],\"answer\":\"y\"}\n\
                     {\"question\":\"b\",\"choices\":[\"x\",\"y\"],\"answer\":\"A\"}\n\
                     {\"question\":\"c\",\"choices\":[7,8,9],\"answer\":2}\n";
        let dev = jsonl.lines().next().unwrap();
        let list = TextColumns::questions(vec!["choices".to_owned()]);
        let data = questions(("jsonl", jsonl), dev, &list).unwrap();
        assert_eq!(data.goal.classes, ["A", "B", "C"]);
        assert_eq!(data.goal.standard_metrics, []);
        let labels: Vec<_> = data.train.iter().filter_map(|e| e.label.class()).collect();
        assert_eq!(labels, [1, 0, 2]);
        assert_eq!(data.train[0].choices, ["x", "y", "z"]);
        assert_eq!(data.train[1].choices, ["x", "y"]);
        let each = TextColumns::questions(["p", "q", "r"].map(str::to_owned).to_vec());
        let csv = "question,p,q,r,answer\na,x, y,z,y\nb,x,y,,A\nc,7,8,9,2\n";
        let same = questions(("csv", csv), csv, &each).unwrap();
        assert_eq!((same.train, same.goal), (data.train, data.goal));
    }

    #[test]
    fn choices_and_answers_that_mean_nothing_or_too_much_are_named() {
        let each = TextColumns::questions(["p", "q", "r"].map(str::to_owned).to_vec());
        let list = TextColumns::questions(vec!["choices".to_owned()]);
        let header = "question,p,q,r,answer\n";
        let good = format!("{header}a,x,y,z,x\n");
        for (row, expected) in [
            (
                "a,x,y,z,w",
                "line 2, column `answer`: answer `w` is none of the choices `x`, `y`, `z`",
            ),
            ("a,x,y,,C", "answer `C` is none of"),
            ("a,x,y,z,3", "answer `3` is none of"),
            ("a,x,y,z,b", "answer `b` is none of"),
            ("a,x,y,z,+1", "answer `+1` is none of"),
            ("a,1,2,3,2", "column `answer`: answer `2` may mean `B`, `C`"),
            ("a,B,A,z,A", "answer `A` may mean `A`, `B`"),
            ("a,x,x,z,x", "answer `x` may mean `A`, `B`"),
            ("a,x,,z,x", "line 2, column `q`: empty choice"),
            ("a,x,,,x", "column `p, q, r`: 1 choices where 2 to 3 are expected"),
            ("a,x,y,z,", "column `answer`: empty label"),
        ] {
            let train = format!("{good}{row}\n").replacen("a,x,y,z,x\n", "", 1);
            // The other file says how many letters there are.
            let error = questions(("csv", &format!("{train}b,x,y,z,z\n")), &good, &each);
            let error = error.unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
        // A letter means the same whatever the texts are.
        let clear = format!("{header}a,1,2,3,B\nb,x,x,y,B\nc,0,1,2,1\n");
        let data = questions(("csv", &clear), &good, &each).unwrap();
        assert!(data.train.iter().all(|example| example.label == Label::Class(1)));
        let wider = "question,p,q,r,answer\na,x,y,,x\n";
        let error = questions(("csv", wider), &good, &each).unwrap_err();
        assert!(
            error.contains("`/dev.csv`, line 2, column `p, q, r`: 3 choices where 2 to 2"),
            "{error}"
        );
        let one =
            |choices: &str| format!("{{\"question\":\"a\",\"choices\":{choices},\"answer\":0}}\n");
        for (choices, expected) in [
            ("\"x\"", "column `choices`: a string where a list of choices"),
            ("[\"x\",null]", "column `choices`: null where a string, a number or a boolean"),
            ("[\"x\",\" \"]", "column `choices`: empty choice"),
            ("[]", "0 choices where 2 to 2 are expected"),
        ] {
            let row = one(choices);
            let error = questions(("jsonl", &row), &row, &list).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
        let many: Vec<String> = (0..27).map(|i| format!("\"c{i}\"")).collect();
        let row = one(&format!("[{}]", many.join(",")));
        let error = questions(("jsonl", &row), &row, &list).unwrap_err();
        assert!(error.contains("27 choices where 2 to 26 are expected"), "{error}");
    }

    #[test]
    fn labels_that_do_not_fit_are_named() {
        let message = |train, dev, regression| read(train, dev, regression).unwrap_err();
        let good = "text,label\na,0\nb,1\n";
        assert_eq!(
            message(good, "text,label\na,0\nb,2\n", false),
            "`/dev.csv`, line 3, column `label`: unknown label `2`, expected one of `0`, `1`"
        );
        assert!(
            message("text,label\na,0\n", good, false).contains("1 distinct labels, expected 2")
        );
        assert!(message(good, "text,label\na,nan\n", true).contains("not a finite number"));
    }
}
