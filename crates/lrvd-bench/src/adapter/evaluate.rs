//! Metrics of a saved model, and inputs of a classifier.

use std::collections::BTreeMap;
use std::io::BufRead;
use std::path::Path;

use anyhow::bail;
use lrvd_core::metrics;

use super::saved::{SavedClassifier, SavedModel};
use super::seen::{RowUse, SeenRows};
use crate::answers::{AnswerSpace, Question, QuestionKind};
use crate::data::table::{At, BadRow, Format, Row, Table, read_as};
use crate::data::{
    Asked, Example, Input, Keep, KeptCells, PreparedTask, ReadOptions, Rows, Split, TextColumns,
    asked, labelled_row, load, read_labelled,
};
use crate::error::{Error, Result};
use crate::eval::{
    Confusion, Residual, Scored, class_reports, confusion, measures, residuals, score_draws,
    score_labels, selective_records, targets,
};
use crate::io::write_text;
use crate::method::{LabelThresholds, softened};
use crate::record::{ClassReport, Metrics, Reliability, SelectiveRecord};
use crate::report::curves;
use crate::task::{Goal, Task};
use crate::text::quoted;
use crate::unused::Unused;

#[derive(Debug)]
pub struct Evaluation {
    pub scored: BTreeMap<u32, Scored>,
    pub(super) task: PreparedTask,
    /// Of typed questions, the type of each row.
    pub(super) kinds: Vec<Option<QuestionKind>>,
    /// Of several labels.
    pub(super) thresholds: LabelThresholds,
}

impl Evaluation {
    pub fn rows(&self) -> usize {
        self.task.validation.len()
    }

    /// Remarks on the encoding for a reader of the metrics, one sentence each.
    pub fn notes(&self) -> &[String] {
        &self.task.notes
    }

    /// Number of rows by the use that the run of the model made of them, without those that only measured it.
    pub fn seen(&self, seen: &SeenRows) -> BTreeMap<RowUse, usize> {
        seen.counts(self.task.validation.iter().map(|example| example.row))
    }

    pub fn measures(&self) -> (BTreeMap<u32, Metrics>, BTreeMap<u32, Reliability>) {
        measures(&self.scored)
    }

    /// Scores of every class by number of draws; empty of a model that has no classes.
    pub fn classes(&self) -> Result<BTreeMap<u32, ClassReport>> {
        class_reports(&self.scored, &self.task, &self.thresholds)
    }

    /// Rows by label and answer, by number of draws; empty of a model that does not answer by one of its classes.
    pub fn confusion(&self) -> Result<BTreeMap<u32, Confusion>> {
        let of = |(&draws, scored): (&u32, &Scored)| {
            Ok(confusion(scored, &self.task)?.map(|cells| (draws, cells)))
        };
        self.scored.iter().filter_map(|scored| of(scored).transpose()).collect()
    }

    /// The largest residuals of numbers by number of draws, the largest first; empty of another model.
    pub fn residuals(&self) -> BTreeMap<u32, Vec<Residual>> {
        let all = self.scored.iter().map(|(&draws, scored)| (draws, residuals(scored, &self.task)));
        all.filter(|(_, found)| !found.is_empty()).collect()
    }

    /// Risk against coverage by number of draws; empty of a model that does not answer by one class.
    pub fn selective(&self) -> Result<BTreeMap<u32, SelectiveRecord>> {
        selective_records(&self.scored, &self.task)
    }

    /// Writes reliability, and risk against coverage, as a picture (SVG).
    pub fn write_plot(&self, path: &Path) -> Result<()> {
        let (_, reliability) = self.measures();
        if reliability.is_empty() {
            bail!(
                "a picture of calibration is for answers with probabilities, and this model predicts numbers"
            );
        }
        write_text(path, &curves(&reliability, &self.selective()?))
    }

    /// Writes a line for each row, with its place in the file.
    pub fn write_predictions(&self, path: &Path) -> Result<()> {
        self.task.write_predictions(&self.scored, path)
    }
}

impl SavedClassifier {
    /// The labelled rows of a file; what is not used is counted in `unused`.
    pub fn read_examples(
        &self,
        file: &Path,
        columns: &TextColumns,
        options: &ReadOptions,
        unused: &mut Unused,
    ) -> Result<Split> {
        let answers = &self.info.goal.answers;
        if !columns.choices.is_empty() && !matches!(answers, AnswerSpace::Choice { .. }) {
            bail!(
                "columns of choices are for a classifier that was trained on questions with choices"
            );
        }
        read_labelled(&mut Rows { options, unused }, file, columns, &self.info.goal)
    }

    /// The validation split of a benchmark task, whose classes must be the classifier's.
    pub fn read_task(&self, task: Task, data_dir: &Path) -> Result<Split> {
        let (expected, found) = (&self.info.goal.answers, &task.goal().answers);
        if expected != found {
            let name = |answers: &AnswerSpace| match &*answers.names() {
                [] => "none (regression)".to_owned(),
                classes => quoted(classes),
            };
            let (expected, found) = (name(expected), name(found));
            bail!("the classifier knows the labels {expected}, the data has {found}");
        }
        Ok(load(data_dir, task, None)?.validation)
    }
}

pub fn evaluate(
    classifier: &SavedClassifier,
    examples: &[Example],
    draws: usize,
    seed: u64,
) -> Result<Evaluation> {
    let info = &classifier.info;
    // F1 and Matthews are reported for any two classes, whatever a benchmark reports.
    let goal = match &info.goal.answers {
        AnswerSpace::Classes { names } => Goal::classification(&info.goal.name, names.clone()),
        _ => info.goal.clone(),
    };
    let reader = info.reader(&classifier.backbone)?;
    let task = reader.prepare(goal, &[], examples)?;
    let kinds: Vec<_> = examples.iter().map(|example| example.input.kind).collect();
    let examples = task.examples(&task.validation, &classifier.device);
    let scored = with_mean(draws, |draws| {
        let logits = classifier.logits(&examples, draws, seed)?;
        let logits = info.goal.answers.class_logits(logits);
        let raw = score_draws(&logits, &task)?;
        let mut answers = if let AnswerSpace::Labels { .. } = info.goal.answers {
            let fitted = vec![info.temperature(None, draws); logits.rows];
            let thresholds = info.thresholds.of(draws, task.labels);
            score_labels(&softened(logits, &fitted)?, &task, &thresholds)?
        } else {
            let fitted: Vec<_> = kinds.iter().map(|&kind| info.temperature(kind, draws)).collect();
            score_draws(&softened(logits, &fitted)?, &task)?
        };
        // What the draws disagree about is theirs, whatever the temperature.
        answers.metrics.mutual_information = raw.metrics.mutual_information;
        if let (Some(own), Some(raw)) = (&mut answers.uncertainty, raw.uncertainty) {
            own.mutual_information = raw.mutual_information;
        }
        if info.goal.answers == AnswerSpace::Score {
            let numbers: Vec<f64> = targets(&task.validation).collect();
            answers.metrics.standard.extend(of_numbers(&answers.outputs, &numbers, |score| {
                info.intervals.around(score, draws)
            }));
        }
        Ok(answers)
    })?;
    Ok(Evaluation { scored, task, kinds, thresholds: info.thresholds.clone() })
}

/// `r2` of predicted `scores` with its standard error, null where the targets do not define it, and with intervals their
/// `coverage`: the share of the targets inside.
fn of_numbers(
    scores: &[f64],
    targets: &[f64],
    around: impl Fn(f64) -> Option<[f64; 2]>,
) -> Vec<(String, Option<f64>)> {
    let (value, error) = metrics::r_squared(scores, targets).ok().unzip();
    let is_inside =
        |(&score, y): (&f64, &f64)| around(score).map(|[low, high]| (low..=high).contains(y));
    let inside: Option<Vec<bool>> = scores.iter().zip(targets).map(is_inside).collect();
    let coverage = inside.map(|rows| {
        let covered = rows.iter().filter(|is_inside| **is_inside).count();
        ("coverage".to_owned(), Some(covered as f64 / rows.len() as f64))
    });
    let determination = [("r2".to_owned(), value), ("r2_error".to_owned(), error)];
    determination.into_iter().chain(coverage).collect()
}

pub(super) fn with_mean(
    draws: usize,
    mut answer: impl FnMut(usize) -> Result<Scored>,
) -> Result<BTreeMap<u32, Scored>> {
    let numbers = std::iter::once(0).chain((draws > 0).then_some(draws));
    numbers.map(|draws| Ok((draws as u32, answer(draws)?))).collect()
}

/// A row to be answered.
#[derive(Debug)]
pub struct InputRow {
    /// The row's own id.
    pub id: Option<String>,
    /// Its place, in a file or a stream.
    pub at: Option<At>,
    /// Values that are carried to its answer.
    pub kept: KeptCells,
    /// The input, or the reason why it cannot be read.
    pub input: Result<Input>,
}

impl InputRow {
    /// The row at which reading failed; the error again if it is that of the whole file.
    pub fn unread(error: Error) -> Result<Self> {
        match BadRow::at(&error) {
            Some(at) => {
                Ok(Self { id: None, at: Some(at), kept: KeptCells::default(), input: Err(error) })
            }
            None => Err(error),
        }
    }
}

/// Rows one by one, so that a long table needs little memory. An error is that of the file, and nothing follows it.
pub type Inputs = Box<dyn Iterator<Item = Result<InputRow>>>;

/// The inputs of a file, in `format` or the one that its name ends in, with the columns to `keep`.
pub fn read_inputs(
    file: &Path,
    format: Option<Format>,
    columns: TextColumns,
    keep: Keep,
) -> Result<Inputs> {
    let mut table = read_as(file, format)?;
    let columns = TextColumns { label: None, ..columns };
    columns.check(file, &table.names()?)?;
    inputs(table, columns, keep)
}

/// The inputs in a stream of one JSON object a line, which errors call `name`.
pub fn stream_inputs(
    reader: Box<dyn BufRead>,
    name: &Path,
    columns: TextColumns,
    keep: Keep,
) -> Result<Inputs> {
    inputs(Table::objects(reader, name), columns, keep)
}

/// Questions about states, row by row.
pub type AskedRows = Box<dyn Iterator<Item = Result<Example<Asked, ()>>>>;

impl SavedClassifier {
    /// The states of a file, each with its questions, or, of a table without questions, with the one of the training. Targets
    /// are not read.
    pub fn read_asked(
        &self,
        file: &Path,
        format: Option<Format>,
        columns: TextColumns,
    ) -> Result<AskedRows> {
        let mut table = read_as(file, format)?;
        let columns = TextColumns { label: None, ..columns };
        columns.check(file, &table.names()?)?;
        asked(table, columns, self.usual_question())
    }

    /// Rows of a stream of one JSON object a line, which errors call `name`.
    pub fn stream_asked(
        &self,
        reader: Box<dyn BufRead>,
        name: &Path,
        columns: TextColumns,
    ) -> Result<AskedRows> {
        asked(Table::objects(reader, name), columns, self.usual_question())
    }

    /// The question of rows that have none.
    pub fn usual_question(&self) -> Option<Question> {
        match &self.info.goal.answers {
            AnswerSpace::Question { question } => Some(question.clone()),
            AnswerSpace::Questions { usual, .. } => usual.clone(),
            _ => None,
        }
    }
}

fn inputs(mut table: Table, columns: TextColumns, keep: Keep) -> Result<Inputs> {
    let columns = TextColumns { label: None, ..columns };
    if !keep.is_empty() {
        let names = table.names()?;
        keep.check(table.file(), &names)?;
    }
    table.select(&keep.with(columns.names_with_id()))?;
    let read = move |row: Result<Row>| match row {
        Ok(row) => {
            let id = row.id(&[&["id"]]);
            let at = Some(row.place.at);
            let kept = keep.of(&row, &columns.shown(false))?;
            let (id, input) = match id {
                Ok(id) => (id, Input::of(&row, &columns)),
                Err(error) => (None, Err(error)),
            };
            Ok(InputRow { id, at, kept, input })
        }
        Err(error) => InputRow::unread(error),
    };
    Ok(Box::new(table.map(read)))
}

impl<M, I> SavedModel<M, I> {
    /// Rows that its run has used; none of a model whose folder does not name them.
    pub fn seen_rows(&self) -> Result<SeenRows> {
        SeenRows::read(&self.dir)
    }
}

impl SavedClassifier {
    /// Checks that no row of `labelled` trained or chose this model or fitted its temperature. Validation rows that only
    /// measured it pass.
    pub fn check_unseen(&self, labelled: &Split) -> Result<()> {
        let seen = self.seen_rows()?;
        let is_seen = |row: &&_| is_seen(&seen, row);
        let mut known = labelled.examples.iter().filter(is_seen);
        let Some(first) = known.next() else { return Ok(()) };
        bail!(
            "{} of {} rows, the first in {}, trained or chose this model, or fitted its temperature, so the error rate on \
             them is not that of new texts: pass rows that the run has not used, or leave these out with `--skip-seen`",
            known.count() + 1,
            labelled.rows(),
            first.place
        )
    }

    /// Removes the rows that [`check_unseen`](Self::check_unseen) rejects from `labelled`, and returns their number.
    pub fn skip_seen(&self, labelled: &mut Split) -> Result<usize> {
        let seen = self.seen_rows()?;
        let all = labelled.rows();
        labelled.examples.retain(|row| !is_seen(&seen, row));
        Ok(all - labelled.rows())
    }

    /// Notes that a threshold was fitted to `labelled`.
    pub(super) fn certified_by(&self, labelled: &Split) -> Result<()> {
        let mut seen = self.seen_rows()?;
        let rows = labelled.examples.iter().map(|row| labelled_row(&row.input, &row.label));
        seen.add(RowUse::Certificate, rows);
        seen.write(&self.dir)
    }
}

fn is_seen(seen: &SeenRows, row: &Example) -> bool {
    seen.is_fitted(labelled_row(&row.input, &row.label))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use lrvd_core::noise::{Generator, NoiseKey};

    use super::*;
    use crate::method::Intervals;

    /// A signal of variance 1 under normal noise of .7, by [`Generator`]: R² of the signal is 1/1.49, and of a model that is off by .2
    /// it is less by .04/1.49.
    #[test]
    fn numbers_are_measured_with_their_determination_and_the_coverage_of_their_intervals() {
        let mut draws = Generator::new(NoiseKey::new(7));
        let mut rows = |n: usize| -> (Vec<f64>, Vec<f64>) {
            let mut row = |_| {
                let signal = draws.normal();
                (signal + 0.2, signal + 0.7 * draws.normal())
            };
            (0..n).map(&mut row).unzip()
        };
        let (scores, targets) = rows(400);
        let residuals: Vec<f64> = targets.iter().zip(&scores).map(|(y, p)| y - p).collect();
        let radius = metrics::conformal_radius(&residuals, Intervals::LEVEL).unwrap().unwrap();
        let fitted = Intervals { rows: 400, by_draws: [(0, radius)].into() };
        let (scores, targets) = rows(4000);
        let found = of_numbers(&scores, &targets, |score| fitted.around(score, 0));
        let found: BTreeMap<String, Option<f64>> = found.into_iter().collect();
        let [r2, error, coverage] = ["r2", "r2_error", "coverage"].map(|name| found[name].unwrap());
        assert!((r2 - 0.96 / 1.49).abs() < 4.0 * error && error < 0.02, "{r2} {error}");
        // The coverage of 400 rows has the deviation of Beta(381, 20), .011, and of 4,000 new ones .003.
        assert!((coverage - 0.95).abs() < 0.045, "{coverage}");
        // The mean of ten draws was not calibrated.
        let none = of_numbers(&scores, &targets, |score| fitted.around(score, 10));
        assert_eq!(none.len(), 2);
    }
}
