//! A user's own files: which columns are read, and what is learnt from them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{anyhow, bail, ensure};

use super::classes::{RawRow, alike, class_name, classes, not_missing, unknown_label};
use super::columns::{Columns, ID, LanguageColumns, NamedColumns, TextColumns};
use super::content::{MEANT, TextRow, content};
use super::example::drawn_by_class;
use super::label_sets;
use super::rows::{ReadOptions, Rows, row_id};
use super::table::{self, Cell, Place, Table};
use super::{Dataset, Example, Input, Label, Labelled, SourceFile, Split, SplitName, Validation};
use crate::answers::{
    AnswerSpace, Invalid, LETTERS, MOST_OPTIONS, Question, questions, targets, worded,
};
use crate::error::Result;
use crate::settings::{Facts, ModelFacts, Training};
use crate::task::Goal;
use crate::text::quoted;
use crate::unused::Unused;

pub type TextSet = Dataset<TextRow, LanguageColumns>;

#[derive(Clone, Debug, PartialEq)]
pub struct OwnFiles {
    pub train: PathBuf,
    pub validation: Validation,
    pub columns: NamedColumns,
    /// Classes in id order; those of the training file, sorted, if `None`.
    pub labels: Option<Vec<String>>,
    pub regression: bool,
    /// `true` if options of a classifier alone are given besides.
    pub classifies: bool,
    /// The choice that every row of a table is, of which the classes are the options.
    pub instructions: Option<String>,
    pub reading: ReadOptions,
    /// `true` if something that is read and not used is an error ([`Unused`](crate::Unused)).
    pub strict: bool,
}

#[expect(clippy::large_enum_variant, reason = "a run has one of them")]
#[derive(Clone, Debug, PartialEq)]
pub enum Data {
    Labelled(Dataset),
    Texts(TextSet),
}

impl Data {
    /// Kind of training that the data are for.
    pub fn training(&self) -> Training {
        match self {
            Self::Labelled(_) => Training::Classifier,
            Self::Texts(_) => Training::Language,
        }
    }

    /// Facts that settings follow from, with those of a model.
    pub(crate) fn facts<'a>(&self, model: Option<&'a dyn ModelFacts>) -> Facts<'a> {
        let has_questions = match self {
            Self::Labelled(data) => matches!(
                data.kind.goal.answers,
                AnswerSpace::Question { .. } | AnswerSpace::Questions { .. }
            ),
            Self::Texts(_) => false,
        };
        Facts { has_questions, model, ..Facts::default() }
    }
}

impl OwnFiles {
    /// Files whose columns and classes are found in them.
    pub fn new(train: PathBuf, validation: Validation) -> Self {
        Self {
            train,
            validation,
            columns: NamedColumns::default(),
            labels: None,
            regression: false,
            classifies: false,
            instructions: None,
            reading: ReadOptions::default(),
            strict: false,
        }
    }

    /// Reads every file once. What is not used is in the notes.
    pub fn read(&self) -> Result<Data> {
        let mut unused = Unused::default();
        let mut data = self.read_noting(&mut unused)?;
        let (Data::Labelled(Dataset { notes, .. }) | Data::Texts(Dataset { notes, .. })) =
            &mut data;
        notes.extend(unused.notes(self.strict)?);
        Ok(data)
    }

    /// Reads every file once, and counts what is not used, also where it ends in an error.
    #[expect(clippy::too_many_lines, reason = "one arm for each kind of file")]
    pub fn read_noting(&self, unused: &mut Unused) -> Result<Data> {
        let Self { train, validation, columns, labels, regression, .. } = self;
        let mut rows = Rows { options: &self.reading, unused };
        let instructions = self.instructions.as_deref();
        let classifies =
            self.classifies || *regression || labels.is_some() || instructions.is_some();
        let mut table = table::read(train)?;
        let (columns, note) = columns.resolve(train, &table.names()?, classifies)?;
        let name = train.file_stem().and_then(|stem| stem.to_str());
        let validation_split = match validation {
            Validation::Share(share) => Some(*share),
            Validation::File(_) => None,
        };
        let mut notes = Vec::from_iter(note);
        match columns {
            Columns::Texts(columns) => {
                let name = name.unwrap_or("texts").to_owned();
                let mut read = |table| text_rows(&mut rows, table, &columns, true);
                let found = read(table)?;
                let (train, validation) = splits(train, found, validation, |_| None, read)?;
                let kind = columns;
                Ok(Data::Texts(Dataset { name, kind, train, validation, validation_split, notes }))
            }
            Columns::Labelled(columns) if columns.questions.is_some() => {
                if *regression || labels.is_some() || instructions.is_some() {
                    bail!(
                        "`{}`: its rows have questions and targets of their own: leave out labels, regression and \
                         instructions",
                        train.display()
                    );
                }
                let name = name.unwrap_or("decisions").to_owned();
                let mut read = |table| decision_rows(&mut rows, table, &columns);
                let found = read(table)?;
                let class = |row: &Vec<Decision>| match &row[..] {
                    [one] => one.label.class(),
                    _ => None,
                };
                let (train, validation) = splits(train, found, validation, class, read)?;
                let of_both = train.examples.iter().chain(&validation.examples).flatten();
                let mut of_both = of_both.map(|example| &example.input.question);
                let first = of_both.next().cloned();
                let usual = first.filter(|first| of_both.all(|question| question == first));
                let asked = |rows: Vec<Decision>| rows.into_iter().map(Example::asked).collect();
                let [train, validation] = [train.flat(asked), validation.flat(asked)];
                let both = train.examples.iter().chain(&validation.examples);
                let most = both.map(|example| example.input.choices.len()).max().unwrap_or(0);
                let max_options = most.max(LETTERS.len());
                let goal = Goal::new(&name, AnswerSpace::Questions { max_options, usual });
                let kind = Labelled { goal, task: None, columns: Some(columns) };
                let data = Dataset { name, kind, train, validation, validation_split, notes };
                Ok(Data::Labelled(data))
            }
            Columns::Labelled(columns)
                if columns.separator.is_some() || !columns.labels.is_empty() =>
            {
                let is_other = *regression || instructions.is_some() || !columns.choices.is_empty();
                if is_other || labels.is_some() && !columns.labels.is_empty() {
                    bail!(
                        "`{}`: rows with several labels have no numbers, choices and instructions, and columns of labels name \
                         them: leave these options out",
                        train.display()
                    );
                }
                let name = name.unwrap_or("data").to_owned();
                let (raw, file) = label_sets::read(&mut rows, table, &columns)?;
                let names = match &*columns.labels {
                    [] => {
                        let found = raw.iter().flat_map(|row| &row.label).map(String::as_str);
                        classes(train, &columns, found, labels.clone())?
                    }
                    columns => columns.to_vec(),
                };
                notes.extend(alike(train, &columns, &names));
                let found = (label_sets::by_id(&mut rows, &names, &columns, raw)?, file);
                let read = |table| {
                    let (raw, file) = label_sets::read(&mut rows, table, &columns)?;
                    Ok((label_sets::by_id(&mut rows, &names, &columns, raw)?, file))
                };
                let (train, validation) = splits(train, found, validation, |_| None, read)?;
                let goal = Goal::new(&name, AnswerSpace::Labels { names });
                let kind = Labelled { goal, task: None, columns: Some(columns) };
                let data = Dataset { name, kind, train, validation, validation_split, notes };
                Ok(Data::Labelled(data))
            }
            Columns::Labelled(columns) => {
                self.check_labelled(&columns)?;
                let name = name.unwrap_or("data");
                // The file's own names of the classes, in the order of their numbers.
                let stated = columns.label.as_deref().and_then(|column| table.names_of(column));
                let labels = labels.clone().or_else(|| stated.map(<[String]>::to_vec));
                let (mut raw, file) = raw_rows(&mut rows, table, &columns)?;
                let answers = if *regression {
                    AnswerSpace::Score
                } else if !columns.choices.is_empty() {
                    // As many letters as a row has choices at most.
                    let most = raw.iter().map(|row| row.input.choices.len()).max().unwrap_or(0);
                    AnswerSpace::Choice { max_options: most.clamp(2, MOST_OPTIONS) }
                } else {
                    if labels.is_none() {
                        raw = not_missing(&mut rows, &columns, raw)?;
                    }
                    let found = raw.iter().map(|row| row.label.as_str());
                    let names = classes(train, &columns, found, labels)?;
                    notes.extend(alike(train, &columns, &names));
                    AnswerSpace::Classes { names }
                };
                let found = (labelled(&mut rows, &answers, &columns, raw)?, file);
                let read = |table| {
                    let (raw, file) = raw_rows(&mut rows, table, &columns)?;
                    Ok((labelled(&mut rows, &answers, &columns, raw)?, file))
                };
                // The answers to questions with choices are letters, and no classes of the rows.
                let by_class = matches!(answers, AnswerSpace::Classes { .. });
                let class = |row: &Example| row.label.class().filter(|_| by_class);
                let (mut train, mut validation) = splits(train, found, validation, class, read)?;
                if validation_split.is_some()
                    && let AnswerSpace::Classes { names } = &answers
                {
                    notes.extend(single_rows(names, &train.examples, &validation.examples));
                }
                let question = instructions.map(|text| Question::choice(text, &answers.names()));
                let question = question
                    .transpose()
                    .map_err(|error| anyhow!("`{}`: {}", self.train.display(), error.message))?;
                let answers = match question {
                    Some(question) => {
                        let both = train.examples.iter_mut().chain(&mut validation.examples);
                        both.for_each(|row| row.input = Input::asking(&question, &row.input.text));
                        let max_options = question.options.len().max(LETTERS.len());
                        AnswerSpace::Questions { max_options, usual: Some(question) }
                    }
                    None => answers,
                };
                let name = name.to_owned();
                let columns = Some(columns);
                let kind = Labelled { goal: Goal::new(&name, answers), task: None, columns };
                let data = Dataset { name, kind, train, validation, validation_split, notes };
                Ok(Data::Labelled(data))
            }
        }
    }
}

impl OwnFiles {
    /// Checks that the options fit rows with these columns.
    fn check_labelled(&self, columns: &TextColumns) -> Result<()> {
        let Self { labels, regression, instructions, .. } = self;
        if instructions.is_some()
            && (!columns.choices.is_empty() || columns.pair.is_some() || *regression)
        {
            bail!(
                "instructions ask for the class of one text: leave out choices, pairs and regression"
            );
        }
        if !columns.choices.is_empty() && (*regression || labels.is_some()) {
            bail!(
                "questions with choices are answered by letters: leave out labels and regression"
            );
        }
        Ok(())
    }
}

/// A note on the classes whose only row stays in training.
fn single_rows(classes: &[String], train: &[Example], validation: &[Example]) -> Option<String> {
    let mut rows = vec![0_usize; classes.len()];
    for class in train.iter().chain(validation).filter_map(|row| row.label.class()) {
        rows[class] += 1;
    }
    let single = classes.iter().zip(rows).filter(|(_, rows)| *rows == 1);
    let single: Vec<&String> = single.map(|(class, _)| class).collect();
    match single[..] {
        [] => None,
        [class] => Some(format!(
            "class `{class}` has one row, which stays in training: no answer of this class is measured"
        )),
        _ => Some(format!(
            "{} classes have one row each, which stays in training, so no answer of them is measured: {}",
            single.len(),
            quoted(single)
        )),
    }
}

/// The splits of a training file's rows: with those of another file, or with a share of them, drawn by `class`.
fn splits<T>(
    train: &Path,
    (rows, file): (Vec<T>, SourceFile),
    validation: &Validation,
    class: impl Fn(&T) -> Option<usize>,
    read: impl FnOnce(Table) -> Result<(Vec<T>, SourceFile)>,
) -> Result<(Split<T>, Split<T>)> {
    let (rows, held, other) = match validation {
        Validation::File(path) => {
            let (held, other) = read(table::read(path)?)?;
            (rows, held, other)
        }
        Validation::Share(share) => {
            let all = rows.len();
            let count = (share * rows.len() as f64).round() as usize;
            ensure!(
                0 < count && count < all,
                "`{}`: {share} of its {all} rows leaves none to train on or none to measure on; pass another \
                 `--validation-split`, or `--validation FILE`",
                train.display()
            );
            let (held, rows) = drawn_by_class(rows, count, 0, class);
            ensure!(
                !held.is_empty(),
                "`{}`: every class has one row, which is trained on, so that none is left to measure on; pass \
                 `--validation FILE`",
                train.display()
            );
            (rows, held, file.clone())
        }
    };
    let train = Split::own(SplitName::Train, file, rows);
    Ok((train, Split::own(SplitName::Validation, other, held)))
}

/// The labelled examples of one file, for a model that exists already and gives the answers of `goal`.
pub(crate) fn read_labelled(
    rows: &mut Rows<'_>,
    file: &Path,
    columns: &TextColumns,
    goal: &Goal,
) -> Result<Split> {
    let mut table = table::read(file)?;
    columns.check(file, &table.names()?)?;
    if columns.questions.is_some() {
        let (found, file) = decision_rows(rows, table, columns)?;
        let mut examples = Vec::new();
        for row in found.into_iter().flatten() {
            examples.extend(rows.kept(row.answered_by(&goal.answers))?);
        }
        return Ok(Split::own(SplitName::Validation, file, examples));
    }
    if let AnswerSpace::Labels { names } = &goal.answers {
        let (raw, file) = label_sets::read(rows, table, columns)?;
        let examples = label_sets::by_id(rows, names, columns, raw)?;
        return Ok(Split::own(SplitName::Validation, file, examples));
    }
    let (raw, file) = raw_rows(rows, table, columns)?;
    let mut examples = labelled(rows, &goal.answers, columns, raw)?;
    if let AnswerSpace::Question { question }
    | AnswerSpace::Questions { usual: Some(question), .. } = &goal.answers
    {
        for row in &mut examples {
            row.input = Input::asking(question, &row.input.text);
        }
    }
    Ok(Split::own(SplitName::Validation, file, examples))
}

/// A state and a question about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    pub state: String,
    /// The key of the question.
    pub id: String,
    pub question: Question,
}

type Decision<L = Label> = Example<Asked, L>;

impl Decision {
    /// With the options in the order of the row.
    fn asked(self) -> Example {
        let Self { id, place, input: Asked { state, question, .. }, label } = self;
        Example { id, place, input: Input::asking(&question, &state), label }
    }

    /// With the options in the order of a model's one question, which must be this one; as it is for a model of any question.
    fn answered_by(mut self, answers: &AnswerSpace) -> Result<Example> {
        if let AnswerSpace::Question { question } = answers {
            let place = &self.place;
            let id = &self.id;
            let places = question.places_of_same(&self.input.question);
            let places =
                places.map_err(|wrong| anyhow!("{place}: question `{id}`, key {wrong}"))?;
            let mut order = vec![0; places.len()];
            places.iter().enumerate().for_each(|(asked, &place)| order[place] = asked);
            self.label.reorder(&order);
            self.input.question = question.clone();
        }
        Ok(self.asked())
    }
}

/// The questions of each row, with their targets.
fn decision_rows(
    rows: &mut Rows<'_>,
    table: Table,
    columns: &TextColumns,
) -> Result<(Vec<Vec<Decision>>, SourceFile)> {
    rows.read(table, &columns.names_with_id(), |_, number, row| {
        let asked = decisions(number, row, columns)?;
        let Some(column) = &columns.label else {
            bail!("{}: the targets have no key", row.place);
        };
        let questions = asked.iter().map(|Example { input, .. }| &input.question);
        let ids = asked.iter().map(|Example { input, .. }| input.id.clone());
        let questions: Vec<_> = ids.zip(questions.cloned()).collect();
        let found = targets(row.find(&[column])?.value, &questions);
        let found = found.map_err(|error| at(row, column, error))?;
        let labels = found.into_iter().map(Label::of_shares);
        let labelled =
            |(Example { id, place, input, .. }, label)| Example { id, place, input, label };
        Ok(asked.into_iter().zip(labels).map(labelled).collect())
    })
}

/// The questions of a row, whatever its targets; each has the id `ROW/QUESTION`, of the row's id or number.
fn decisions(number: usize, row: &table::Row, columns: &TextColumns) -> Result<Vec<Decision<()>>> {
    let own = row_id(row, number)?;
    let column = columns.questions.as_deref().unwrap_or_default();
    let state = worded(row.find(&[&columns.text])?.value);
    let state = state.map_err(|error| at(row, &columns.text, error))?;
    let found = questions(row.find(&[column])?.value).map_err(|error| at(row, column, error))?;
    let one = |(id, question): (String, Question)| {
        let id_of_row = format!("{own}/{id}");
        let place = row.place.clone();
        let state = state.clone();
        Example { id: id_of_row, place, input: Asked { state, id, question }, label: () }
    };
    Ok(found.into_iter().map(one).collect())
}

fn at(row: &table::Row, column: &str, error: Invalid) -> anyhow::Error {
    anyhow!("{}, key {}", row.place, error.below(column))
}

/// The states of a table with their questions, or, of a table without questions, with the one `question`. Targets are not
/// read.
pub(crate) fn asked(
    mut table: Table,
    columns: TextColumns,
    question: Option<Question>,
) -> Result<Box<dyn Iterator<Item = Result<Decision<()>>>>> {
    let columns = TextColumns { label: None, ..columns };
    table.select(&columns.names_with_id())?;
    let read = move |(number, row): (usize, Result<table::Row>)| -> Vec<Result<Decision<()>>> {
        let of_row = |row: &table::Row| match (&columns.questions, &question) {
            (None, Some(question)) => {
                let place = row.place.clone();
                let id = String::new();
                let state = row.text(&[&columns.text])?.to_owned();
                let input = Asked { state, id, question: question.clone() };
                Ok(vec![Example { id: row_id(row, number)?, place, input, label: () }])
            }
            _ => decisions(number, row, &columns),
        };
        let found = row
            .and_then(|row| of_row(&row).map_err(|error| table::BadRow::error(&row.place, error)));
        match found {
            Ok(found) => found.into_iter().map(Ok).collect(),
            Err(error) => vec![Err(error)],
        }
    };
    Ok(Box::new(table.enumerate().flat_map(read)))
}

/// The texts of one file, under the given columns or those that it has by their usual names. Completions are read
/// `with_completions`. What is not used is counted in `unused`.
pub fn read_texts(
    file: &Path,
    columns: Option<&LanguageColumns>,
    with_completions: bool,
    options: &ReadOptions,
    unused: &mut Unused,
) -> Result<Vec<TextRow>> {
    let mut table = table::read(file)?;
    let columns = match columns {
        Some(columns) => columns.clone(),
        None => LanguageColumns::recognise(&table.names()?).unwrap_or_default(),
    };
    let mut rows = Rows { options, unused };
    Ok(text_rows(&mut rows, table, &columns, with_completions)?.0)
}

fn text_rows(
    rows: &mut Rows<'_>,
    table: Table,
    columns: &LanguageColumns,
    with_completions: bool,
) -> Result<(Vec<TextRow>, SourceFile)> {
    let meant = MEANT.into_iter().filter(|key| !rows.drops(key));
    let names: Vec<&str> = columns.names(true).into_iter().chain(meant).chain([ID]).collect();
    rows.read(table, &names, |rows, number, row| {
        let id = row_id(row, number)?;
        let place = row.place.clone();
        let input = content(rows, row, columns, with_completions)?;
        Ok(Example { id, place, input, label: () })
    })
}

fn raw_rows(
    rows: &mut Rows<'_>,
    table: Table,
    columns: &TextColumns,
) -> Result<(Vec<RawRow>, SourceFile)> {
    let stated = columns.label.as_deref().and_then(|column| table.names_of(column));
    let stated = stated.map(<[String]>::to_vec);
    rows.read(table, &columns.names_with_id(), |_, number, row| {
        let id = row_id(row, number)?;
        let place = row.place.clone();
        let label = columns.label.as_ref().map(|column| {
            let cell = row.find(&[column])?;
            match &stated {
                Some(names) => class_name(&cell, names),
                None => cell.word("label"),
            }
        });
        let label = label.transpose()?;
        let input = Input::of(row, columns)?;
        let label = label.unwrap_or_default();
        Ok(Example { id, place, input, label })
    })
}

impl Input {
    pub(crate) fn of(row: &table::Row, columns: &TextColumns) -> Result<Self> {
        let text = |column: &String| row.text(&[column]).map(str::to_owned);
        let pair = columns.pair.as_ref().map(text).transpose()?;
        let choices = choices(row, &columns.choices)?;
        Ok(Self { pair, choices, ..Self::text(text(&columns.text)?) })
    }
}

/// The choices in the list of one column, or in several columns, of which the last ones may be empty.
fn choices(row: &table::Row, columns: &[String]) -> Result<Vec<String>> {
    const LIST: &str =
        "a list of choices (several columns of one choice each are named one by one)";
    let cells = match columns {
        [column] => row.find(&[column])?.list(LIST)?,
        columns => {
            let cells = columns.iter().map(|column| row.find(&[column]));
            let mut cells = cells.collect::<Result<Vec<_>>>()?;
            let is_filled = |cell: &Cell<'_>| {
                !cell.value.is_null()
                    && cell.value.as_str().is_none_or(|text| !text.trim().is_empty())
            };
            let last = cells.iter().rposition(is_filled);
            cells.truncate(last.map_or(0, |last| last + 1));
            cells
        }
    };
    cells.iter().map(|cell| cell.word("choice")).collect()
}

/// The place of the one of `choices` that `found` means: by its text, its letter, or its place counted from 0.
fn answer(place: &Place, column: String, found: String, choices: &[String]) -> Result<usize> {
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

fn labelled(
    rows: &mut Rows<'_>,
    answers: &AnswerSpace,
    columns: &TextColumns,
    raw: Vec<RawRow>,
) -> Result<Vec<Example>> {
    let column = columns.label.clone().unwrap_or_default();
    let names = match answers {
        // The classes of a table whose one question has them as its options.
        AnswerSpace::Questions { usual: Some(question), .. } => question.names(),
        answers => answers.names(),
    };
    let ids: BTreeMap<&str, usize> =
        names.iter().enumerate().map(|(id, class)| (class.as_str(), id)).collect();
    let label = |place: &Place, choices: &[String], found: String| match answers {
        AnswerSpace::Choice { max_options } => {
            let n = choices.len();
            let most = *max_options;
            if !(2..=most).contains(&n) {
                let column = columns.choices.join(", ");
                bail!("{place}, column `{column}`: {n} choices where 2 to {most} are expected");
            }
            Ok(Label::Class(answer(place, column.clone(), found, choices)?))
        }
        AnswerSpace::Score => match found.parse::<f64>().ok().filter(|score| score.is_finite()) {
            Some(score) => Ok(Label::Score(score)),
            None => bail!("{place}, column `{column}`: `{found}` is not a finite number"),
        },
        _ => match ids.get(found.as_str()) {
            Some(&id) => Ok(Label::Class(id)),
            None => Err(unknown_label(place, &column, &found, &names)),
        },
    };
    let mut examples = Vec::with_capacity(raw.len());
    for Example { id, place, input, label: found } in raw {
        let label = label(&place, &input.choices, found);
        let label = rows.kept(label)?;
        examples.extend(label.map(|label| Example { id, place, input, label }));
    }
    Ok(examples)
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::super::OnError;
    use super::*;

    /// Format, training and validation rows, columns of choices, and whether numbers are learnt.
    type Case = (String, String, String, Vec<String>, bool);

    /// A file of `pyarrow` with the metadata that `datasets` writes: `ClassLabel(names=["spam", "ham"])`, and labels 0, 1, 1, -1.
    #[cfg(feature = "parquet")]
    #[test]
    fn the_names_of_a_files_classes_are_the_labels_in_their_order() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/data/cases");
        let train = folder.join("classlabel.parquet");
        let mut files = OwnFiles::new(train.clone(), Validation::File(train));
        let error = files.read().unwrap_err().to_string();
        assert!(error.ends_with("row 4, column `label`: -1 marks a missing label"), "{error}");
        files.reading.on_error = Some(OnError::Skip);
        let Data::Labelled(data) = files.read().unwrap() else { panic!("labelled rows") };
        assert_eq!(data.kind.goal.answers.names(), ["spam", "ham"]);
        let labels = data.train.examples.iter().map(|row| row.label.clone());
        assert_eq!(labels.collect::<Vec<_>>(), [0, 1, 1].map(Label::Class));
        assert!(
            data.notes.iter().any(|note| note.contains("2 times, first in")),
            "{:?}",
            data.notes
        );
    }

    #[test]
    fn labels_are_sorted_classes_numbers_or_one_of_the_choices() {
        let cases: Vec<Case> = serde_json::from_str(include_str!("cases/own.json")).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let mut found = String::new();
        for (ending, train, dev, choices, regression) in cases {
            writeln!(found, "{train:?} {dev:?}").unwrap();
            let [train, validation] = [("train", train), ("dev", dev)].map(|(name, text)| {
                let path = dir.path().join(format!("{name}.{ending}"));
                std::fs::write(&path, text).unwrap();
                path
            });
            let columns = NamedColumns { choices, ..NamedColumns::default() };
            let files = OwnFiles {
                columns,
                regression,
                ..OwnFiles::new(train, Validation::File(validation))
            };
            match files.read() {
                Ok(Data::Labelled(Dataset { kind, train, validation, .. })) => {
                    let Goal { answers, standard_metrics, .. } = kind.goal;
                    writeln!(found, "    {:?} {standard_metrics:?}", answers.names()).unwrap();
                    for Example { place, input: Input { text, choices, .. }, label, .. } in
                        train.examples.into_iter().chain(validation.examples)
                    {
                        writeln!(found, "    {place}: {text:?} {choices:?} {label:?}").unwrap();
                    }
                }
                Ok(Data::Texts(_)) => panic!("texts for a language model"),
                Err(error) => writeln!(found, "    {error}").unwrap(),
            }
        }
        insta::assert_snapshot!(found.replace(dir.path().to_str().unwrap(), ""));
    }

    #[test]
    fn rows_are_read_as_questions_and_bad_ones_named_by_their_place_and_key() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("d.jsonl");
        let mut found = String::new();
        for row in include_str!("cases/decisions.jsonl").lines() {
            std::fs::write(&file, row).unwrap();
            let files = OwnFiles::new(file.clone(), Validation::File(file.clone()));
            writeln!(found, "{}", row.chars().take(150).collect::<String>()).unwrap();
            match files.read() {
                Ok(Data::Labelled(data)) => {
                    for Example { id, input, label, .. } in data.train.examples {
                        let Input { text, pair, choices, kind, .. } = input;
                        let kind = kind.unwrap();
                        writeln!(found, "    {id} {kind}: {text:?} {choices:?} {label:?}").unwrap();
                        writeln!(found, "      {:?}", pair.unwrap()).unwrap();
                    }
                }
                Ok(Data::Texts(_)) => panic!("texts for a language model"),
                Err(error) => writeln!(found, "    {error}").unwrap(),
            }
        }
        insta::assert_snapshot!(found.replace(&format!("{}/", dir.path().display()), ""));
    }
}
