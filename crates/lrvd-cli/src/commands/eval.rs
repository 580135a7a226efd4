//! `lrvd eval`

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use burn::tensor::Device;
use clap::{ArgGroup, Args};

use lrvd_bench::adapter::{
    AbstainBy, Adapter, Evaluation, OpenOptions, QuestionMetrics, RowUse, SavedClassifier,
    SavedLanguageModel, SeenRows, WrongRow, evaluate,
};
use lrvd_bench::answers::{AnswerSpace, QuestionKind};
use lrvd_bench::data::table::{Part, RowFile, table_of};
use lrvd_bench::data::{Keep, NamedTexts, ReadOptions, Split, TextColumns, kept_rows, read_texts};
use lrvd_bench::eval::Residual;
use lrvd_bench::record::{ClassReport, Metrics, Reliability};
use lrvd_bench::task::Task;
use lrvd_bench::{Result, Unused};
use serde_json::{Value, json};

use super::{Outcome, table};
use crate::args::{AdapterArguments, AnswerArguments, InputColumns, heading};
use crate::exit::ExitStatus;
use crate::printer::Printer;
use crate::rows::{Row, check_new, new_file, push};

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("written").multiple(true)))]
pub(crate) struct EvalArguments {
    #[command(flatten)]
    pub(crate) adapter: AdapterArguments,
    /// Labelled examples: `.tsv`, `.csv`, `.jsonl`, `.json` or `.parquet`, here or in a data set on the hub (`lrvd data formats`).
    #[arg(long, value_name = "FILE|HUB-ID", required_unless_present = "task", help_heading = heading::DATA)]
    pub(crate) data: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) columns: InputColumns,
    /// Column or key of the label [default: as in training].
    #[arg(long, value_name = "NAME")]
    pub(crate) label_column: Option<String>,
    #[command(flatten)]
    pub(crate) language: NamedTexts,
    #[command(flatten)]
    pub(crate) reading: ReadOptions,
    /// Validation split of a GLUE task instead of a file.
    #[arg(long, value_name = "NAME", requires = "data_dir", conflicts_with_all = ["data", "text_column", "pair_column", "choice_columns", "label_column"])]
    pub(crate) task: Option<String>,
    /// Folder of the GLUE data.
    #[arg(long, value_name = "DIR", requires = "task")]
    pub(crate) data_dir: Option<PathBuf>,
    /// File for the predictions, one JSON object per line.
    #[arg(long, value_name = "FILE", group = "written", help_heading = heading::OUTPUT)]
    pub(crate) out: Option<PathBuf>,
    /// Replace files that exist.
    #[arg(long, requires = "written", help_heading = heading::OUTPUT)]
    pub(crate) force: bool,
}

impl EvalArguments {
    /// The file for the predictions, which must not exist without `--force`.
    pub(crate) fn out(&self) -> Result<Option<&Path>> {
        self.out.as_deref().map(|file| check_new(file, self.force).map(|()| file)).transpose()
    }
}

/// Options of `lrvd eval`.
#[derive(Debug, Args)]
pub(crate) struct EvalCommand {
    #[command(flatten)]
    pub(crate) eval: EvalArguments,
    /// File for the rows that are answered wrong, the most confident answers first: `.csv`, `.jsonl` or `.parquet`.
    ///
    /// It has the text, the label, the answer and the probabilities of both, of several labels those that are missing and those
    /// that are given besides; of numbers it has all rows, the largest residual first. The answers are those of `--draws`, or
    /// of the posterior mean.
    #[arg(long, value_name = "FILE", group = "written", help_heading = heading::OUTPUT)]
    pub(crate) errors: Option<PathBuf>,
    /// Columns or keys of the data that are carried to the file of `--errors`, comma-separated; `all` for all of them.
    #[arg(long, value_delimiter = ',', value_name = "A,B", requires = "errors", conflicts_with = "task", help_heading = heading::OUTPUT)]
    pub(crate) keep: Vec<String>,
    /// File for a picture of the calibration: reliability, and risk against coverage, as `.svg`.
    ///
    /// The numbers are under `reliability` and `selective` of `--format json`.
    #[arg(long, value_name = "FILE.svg", group = "written", help_heading = heading::OUTPUT)]
    pub(crate) plot: Option<PathBuf>,
}

impl EvalCommand {
    /// The file for the picture, which must not exist without `--force`.
    fn plot(&self) -> Result<Option<PathBuf>> {
        let Some(file) = &self.plot else { return Ok(None) };
        if file.extension().is_none_or(|end| end != "svg") {
            bail!("`--plot {}`: a picture is written as `.svg`", file.display());
        }
        check_new(file, self.eval.force)?;
        Ok(Some(file.clone()))
    }
}

/// Writes the picture, if the command line names a file for it.
fn draw(evaluation: &Evaluation, file: Option<&Path>, printer: Printer) -> Result<()> {
    if let Some(file) = file {
        evaluation.write_plot(file)?;
        printer.note(&format!("picture: {}", file.display()));
    }
    Ok(())
}

pub(super) fn run(command: EvalCommand, printer: Printer) -> Outcome {
    let plot = command.plot()?;
    let EvalCommand { eval: mut arguments, errors, keep, .. } = command;
    // They are used.
    arguments.reading.drop_keys.extend(keep.iter().cloned());
    arguments.data = arguments.data.map(|data| table_of(data, Part::Test)).transpose()?;
    let force = arguments.force;
    if Adapter::is_for_texts(&arguments.adapter.dir)? {
        if errors.is_some() {
            bail!("`--errors` is for classifiers: `--out` has the loss of every text");
        }
        return language(arguments, plot.as_deref(), printer);
    }
    let out = arguments.out()?;
    let errors = errors.map(|file| new_file(&file, force)).transpose()?;
    let keep = Keep::new(&keep, WrongRow::KEYS);
    let (classifier, data, rows) = labelled(&arguments, printer)?;
    let draws = classifier.draws(arguments.adapter.answers.draws)?;
    let seed = arguments.adapter.answers.seed.unwrap_or(classifier.info.run.seed);
    let evaluation = evaluate(&classifier, &rows.examples, draws, seed)?;
    printer.notes(evaluation.notes());
    write(&evaluation, out, printer)?;
    draw(&evaluation, plot.as_deref(), printer)?;
    let seen = seen(&evaluation, &classifier.seen_rows()?, printer);
    let body = json!({
        "adapter": classifier.folder().display().to_string(),
        "data": data,
        "rows": evaluation.rows(),
        "seen": seen,
        "labels": classifier.info.goal.answers.names(),
        "seed": seed,
    });
    // The answers that `lrvd predict` gives with the same option.
    let shown = arguments.adapter.answers.draws.unwrap_or(0);
    if let Some(file) = errors {
        let kept = match &arguments.data {
            Some(data) if !keep.is_empty() => {
                kept_rows(data, &own_columns(&arguments, &classifier), &keep)?
            }
            _ => BTreeMap::new(),
        };
        let wrong = evaluation.wrong(&rows.examples, shown, &kept)?;
        write_errors(file, &wrong, &classifier.info.goal.answers, printer)?;
    }
    show(body, &evaluation, shown, printer)
}

/// Writes the rows that are answered wrong.
fn write_errors(
    mut file: RowFile,
    wrong: &[WrongRow],
    answers: &AnswerSpace,
    printer: Printer,
) -> Result<()> {
    if wrong.is_empty() {
        file.start_with(WrongRow::columns(answers).iter().copied());
    }
    for row in wrong {
        push(&mut file, &Row::new(row)?)?;
    }
    let what = if *answers == AnswerSpace::Score { "rows" } else { "wrong rows" };
    let note = format!("{} {what}: {}", wrong.len(), file.path().display());
    file.finish()?;
    printer.note(&note);
    Ok(())
}

/// Columns of the rows that the command line names.
fn own_columns(arguments: &EvalArguments, classifier: &SavedClassifier) -> TextColumns {
    let InputColumns { text_column, pair_column, choice_columns } = arguments.columns.clone();
    let label = arguments.label_column.clone();
    classifier.columns().with(text_column, pair_column, label, choice_columns)
}

/// Numbers of rows that the run of the model has used, with a note on them.
pub(super) fn seen(
    evaluation: &Evaluation,
    seen: &SeenRows,
    printer: Printer,
) -> BTreeMap<RowUse, usize> {
    let found = evaluation.seen(seen);
    if !found.is_empty() {
        let part = |(used, rows): (&RowUse, &usize)| format!("{rows} {}", used.describe());
        let parts: Vec<String> = found.iter().map(part).collect();
        // Rows that gave the interval are new to all else.
        let what = if found.keys().all(|used| *used == RowUse::Interval) {
            "coverage is not that"
        } else {
            "metrics are not those"
        };
        printer.note(&format!(
            "of these {} rows {}: the {what} of new rows",
            evaluation.rows(),
            parts.join(", ")
        ));
    }
    found
}

/// Error rate at which the coverage of answers to typed questions is reported.
const RISK: f64 = 0.05;

/// Metrics of typed questions by number of draws and type.
type ByType = BTreeMap<u32, BTreeMap<QuestionKind, QuestionMetrics>>;

/// Measures of the answers, by number of draws.
struct Measured {
    metrics: BTreeMap<u32, Metrics>,
    reliability: BTreeMap<u32, Reliability>,
    /// Of typed questions.
    types: ByType,
    classes: BTreeMap<u32, ClassReport>,
    residuals: BTreeMap<u32, Vec<Residual>>,
}

impl Measured {
    fn of(evaluation: &Evaluation) -> Result<Self> {
        let (metrics, reliability) = evaluation.measures();
        let (types, classes) = (evaluation.by_type(RISK)?, evaluation.classes()?);
        Ok(Self { metrics, reliability, types, classes, residuals: evaluation.residuals() })
    }

    /// Adds what there is to the document.
    fn fill(&self, body: &mut Value, evaluation: &Evaluation) -> Result<()> {
        body["metrics"] = json!(self.metrics);
        body["reliability"] = json!(self.reliability);
        let selective = evaluation.selective()?;
        if !selective.is_empty() {
            body["selective"] = json!(selective);
        }
        if !self.types.is_empty() {
            body["questions"] = json!({ "risk": RISK, "types": self.types });
        }
        if !self.classes.is_empty() {
            body["classes"] = json!(self.classes);
        }
        let confusion = evaluation.confusion()?;
        if !confusion.is_empty() {
            body["confusion"] = json!(confusion);
        }
        if !self.residuals.is_empty() {
            body["residuals"] = json!(self.residuals);
        }
        Ok(())
    }

    /// A row for each number of draws, type of questions, class and listed residual.
    fn rows(&self) -> Result<Vec<Row>> {
        let all = Row::keyed("draws", &self.metrics)?.into_iter().zip(self.metrics.keys());
        let floor = |draws| self.reliability.get(draws).map(Reliability::floor);
        let mut rows: Vec<Row> =
            all.map(|(row, draws)| row.with("ece_floor", floor(draws))).collect();
        let own =
            |of: Vec<Row>, draws: u32| of.into_iter().map(move |row| row.with("draws", draws));
        for (&draws, types) in &self.types {
            rows.extend(own(Row::keyed("type", types)?, draws));
        }
        for (&draws, report) in &self.classes {
            rows.extend(own(Row::each(&report.classes)?, draws));
        }
        for (&draws, residuals) in &self.residuals {
            rows.extend(own(Row::each(residuals)?, draws));
        }
        Ok(rows)
    }

    /// Tables: metrics by number of draws, those of typed questions also by type, and classes or residuals by the answers of
    /// `shown` draws.
    fn tables(&self, shown: u32) -> String {
        let mut parts = vec![table::metrics(&self.metrics, &self.reliability)];
        if !self.types.is_empty() {
            parts.push(table::by_type(&self.types, RISK));
        }
        parts.extend(self.classes.get(&shown).map(table::by_class));
        parts.extend(self.residuals.get(&shown).map(|found| table::residuals(found)));
        parts.join("\n\n")
    }
}

/// Prints what is measured, and `body` beside it as JSON.
fn show(mut body: Value, evaluation: &Evaluation, shown: usize, printer: Printer) -> Outcome {
    let measured = Measured::of(evaluation)?;
    measured.fill(&mut body, evaluation)?;
    let shown = u32::try_from(shown)?;
    let rows = |_: &Value| measured.rows();
    printer.report_rows("eval", &body, rows, |_| measured.tables(shown))?;
    Ok(ExitStatus::Done)
}

fn language(arguments: EvalArguments, plot: Option<&Path>, printer: Printer) -> Outcome {
    let own = &arguments.adapter;
    let classifies = arguments.task.is_some()
        || arguments.label_column.is_some()
        || arguments.columns.text_column.is_some()
        || arguments.columns.pair_column.is_some()
        || !arguments.columns.choice_columns.is_empty();
    if classifies {
        bail!(
            "a language model is measured on texts: name `--prompt-column` and `--completion-column`, or \
             `--messages-column`"
        );
    }
    let Some(file) = &arguments.data else { bail!("pass --data") };
    let out = arguments.out()?;
    let model = load_language(own, printer)?;
    let columns = match arguments.language.columns() {
        Some(columns) => columns,
        None => model.columns().cloned().context("name the columns of the texts")?,
    };
    let mut unused = Unused::default();
    let rows = read_texts(file, Some(&columns), true, &arguments.reading, &mut unused)?;
    printer.notes(&unused.notes(own.answers.open().strict)?);
    let (draws, seed) = (model.draws(own.answers.draws)?, own.answers.seed.unwrap_or(model.seed()));
    let (evaluation, notes) = model.evaluate(&rows, draws, seed)?;
    printer.notes(&notes);
    write(&evaluation, out, printer)?;
    draw(&evaluation, plot, printer)?;
    let seen = seen(&evaluation, &model.seen_rows()?, printer);
    let body = json!({
        "adapter": model.folder().display().to_string(),
        "data": file.display().to_string(),
        "rows": evaluation.rows(),
        "seen": seen,
        "seed": seed,
    });
    show(body, &evaluation, draws, printer)
}

/// Writes the predictions, if the command line names a file for them.
pub(super) fn write(evaluation: &Evaluation, out: Option<&Path>, printer: Printer) -> Result<()> {
    if let Some(file) = out {
        evaluation.write_predictions(file)?;
        printer.note(&format!("predictions: {}", file.display()));
    }
    Ok(())
}

/// The classifier and the labelled examples that the command line names, with their name.
pub(super) fn labelled(
    arguments: &EvalArguments,
    printer: Printer,
) -> Result<(SavedClassifier, String, Split)> {
    let classifier = load(&arguments.adapter, printer)?;
    let (name, rows) = match (&arguments.task, &arguments.data_dir, &arguments.data) {
        (Some(task), Some(folder), _) => {
            let task = Task::named_glue(task)?;
            (task.name().to_owned(), classifier.read_task(task, folder)?)
        }
        (_, _, Some(file)) => {
            let EvalArguments { columns, label_column, reading, adapter, .. } = arguments;
            let strict = adapter.answers.open().strict;
            let own = OwnRows { columns, label: label_column.as_ref(), reading, strict };
            let rows = own.read(&classifier, file, printer)?;
            // Of the hub with its commit.
            let name = rows.files.first().map_or(file.as_path(), |read| &read.path);
            (name.display().to_string(), rows)
        }
        _ => bail!("pass --data, or --task and --data-dir"),
    };
    Ok((classifier, name, rows))
}

/// Columns and options by which the labelled rows of a user's file are read.
pub(super) struct OwnRows<'a> {
    pub(super) columns: &'a InputColumns,
    pub(super) label: Option<&'a String>,
    pub(super) reading: &'a ReadOptions,
    pub(super) strict: bool,
}

impl OwnRows<'_> {
    pub(super) fn read(
        &self,
        classifier: &SavedClassifier,
        file: &Path,
        printer: Printer,
    ) -> Result<Split> {
        let InputColumns { text_column, pair_column, choice_columns } = self.columns.clone();
        let label = self.label.cloned();
        let columns = classifier.columns().with(text_column, pair_column, label, choice_columns);
        let mut unused = Unused::default();
        let rows = classifier.read_examples(file, &columns, self.reading, &mut unused)?;
        printer.notes(&unused.notes(self.strict)?);
        Ok(rows)
    }
}

/// Draws of an answer that is given: where the command line names no number and does not say how draws are made, the mean or the
/// number that what is fitted was fitted for, a threshold included if it is `asked` for.
pub(super) fn draws(
    arguments: &AnswerArguments,
    classifier: &SavedClassifier,
    asked: Option<AbstainBy>,
) -> Result<usize> {
    let is_spared = arguments.policy().needs_draws().is_some();
    let usual = (!is_spared).then(|| classifier.usual_draws(asked));
    classifier.draws(arguments.draws.or(usual))
}

pub(super) fn load(arguments: &AdapterArguments, printer: Printer) -> Result<SavedClassifier> {
    let AdapterArguments { dir, answers } = arguments;
    let device = answers.device.open(printer)?;
    let mut classifier = SavedClassifier::load(dir, &answers.open(), answers.policy(), &device)?;
    classifier.count_cut();
    printer.notes(&classifier.warnings);
    Ok(classifier)
}

pub(super) fn load_language(
    arguments: &AdapterArguments,
    printer: Printer,
) -> Result<SavedLanguageModel> {
    let AdapterArguments { dir, answers } = arguments;
    spares_nothing(answers)?;
    load_language_from(dir, &answers.open(), &answers.device.open(printer)?, printer)
}

/// Rejects ways to spare draws, which a language model has not.
pub(super) fn spares_nothing(arguments: &AnswerArguments) -> Result<()> {
    if arguments.policy().needs_draws().is_some() {
        bail!("`--cascade` and `--antithetic` are for classifiers only");
    }
    Ok(())
}

/// Loads the language model in `dir`, and says what a reader must know of it.
pub(super) fn load_language_from(
    dir: &Path,
    base: &OpenOptions,
    device: &Device,
    printer: Printer,
) -> Result<SavedLanguageModel> {
    let model = SavedLanguageModel::load(dir, base, device)?;
    printer.notes(&model.warnings);
    Ok(model)
}
