//! `lrvd data`, and the examples that `lrvd train` is given.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use anyhow::{Context as _, anyhow, bail};
use clap::{ArgGroup, Args, Subcommand};
use lrvd_bench::adapter::{
    OpenOptions, SavedClassifier, Suspects, Wrong, WrongRow, evaluate, named_at,
};
use lrvd_bench::answers::{AnswerSpace, QuestionKind, Readout};
use lrvd_bench::data::table::{DataSet, Part, table_of};
use lrvd_bench::data::{
    At, Data, NamedColumns, NamedTexts, OnError, OwnFiles, ReadOptions, Validation, load,
};
use lrvd_bench::data_check::{LengthStats, Repeat, check_data, repeats, write_clean};
use lrvd_bench::method::MethodName;
use lrvd_bench::progress::Event;
use lrvd_bench::settings::{Layers, Training};
use lrvd_bench::task::Task;
use lrvd_bench::{Result, TrainOptions, Unused, cross_fitted_suspects};
use lrvd_burn::train::DrawPolicy;
use serde_json::Value;

use super::abstain::check_unseen;
use super::eval::OwnRows;
use super::table::{count, table, words};
use super::{Outcome, help};
use crate::args::{self, DeviceArgument, InputColumns, heading};
use crate::exit::ExitStatus;
use crate::printer::Printer;
use crate::rows::{Row, new_file, push};

/// Examples for training and evaluation.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = heading::DATA)]
pub(crate) struct ExampleArguments {
    /// Training rows; `lrvd data formats` describes what is read.
    ///
    /// A file here, or `hf://datasets/OWNER/NAME/PATH` on the hub. Of a data set (`OWNER/NAME`) the training rows are taken, and
    /// its validation rows if it has some and no option says otherwise.
    #[arg(long, value_name = "FILE|HUB-ID", required_unless_present = "task")]
    pub(crate) train: Option<PathBuf>,
    /// Validation rows [default: the data set's, or some of `--train`].
    #[arg(long, value_name = "FILE|HUB-ID", requires = "train")]
    pub(crate) validation: Option<PathBuf>,
    /// Share of the training rows to validate on [default: 0.1].
    ///
    /// They are not trained on, and are the same rows for every seed.
    #[arg(long, value_name = "SHARE", value_parser = args::share, requires = "train", conflicts_with = "validation")]
    pub(crate) validation_split: Option<f64>,
    /// Column or key of the text [default: `text`].
    ///
    /// Or else the only one of `sentence`, `query` and `question`; `question` for questions with choices. A dot names a key
    /// within a key of JSON: `ticket.body`.
    #[arg(long, value_name = "NAME")]
    pub(crate) text_column: Option<String>,
    /// Column or key of the second text of a pair.
    ///
    /// Of questions with choices it is the passage.
    #[arg(long, value_name = "NAME", conflicts_with = "task")]
    pub(crate) pair_column: Option<String>,
    /// Column or key of the label [default: `label`].
    ///
    /// Or else the only one of `category`, `intent`, `class` and `target`; `answer` for questions with choices.
    #[arg(long, value_name = "NAME")]
    pub(crate) label_column: Option<String>,
    /// Column or key of a list of choices, one of which is the label; or one column for each choice, comma-separated
    /// [default: `choices`, if a row has `question`, `choices` and `answer`].
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "NAME|A,B",
        hide_short_help = true,
        conflicts_with_all = ["task", "regression", "labels", "template", "answers"]
    )]
    pub(crate) choice_columns: Vec<String>,
    /// Labels in the order of their class ids [default: those of the training file, sorted].
    #[arg(long, value_delimiter = ',', value_name = "A,B", hide_short_help = true, conflicts_with_all = ["task", "regression"])]
    pub(crate) labels: Vec<String>,
    /// Learn several labels of a row, in a list or in a text with this separator [default separator: `;`].
    #[arg(
        long,
        value_name = "SEPARATOR",
        num_args = 0..=1,
        default_missing_value = ";",
        hide_short_help = true,
        value_parser = clap::builder::NonEmptyStringValueParser::new(),
        conflicts_with_all = ["task", "regression", "template", "answers", "readout", "instructions", "choice_columns"]
    )]
    pub(crate) multi_label: Option<String>,
    /// Learn several labels of a row, each of which has a column of 0 and 1, comma-separated.
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "A,B",
        hide_short_help = true,
        conflicts_with_all = ["task", "regression", "labels", "label_column", "multi_label", "template", "answers", "readout", "instructions", "choice_columns"]
    )]
    pub(crate) label_columns: Vec<String>,
    /// Learn numbers instead of classes.
    #[arg(long, conflicts_with = "task")]
    pub(crate) regression: bool,
    /// Prompt of a language model that classifies, with `{text}` and, for pairs, `{pair}`; `\n` is a line break
    /// [default: the task's, or a plain one].
    #[arg(long, value_name = "TEXT", hide_short_help = true)]
    pub(crate) template: Option<String>,
    /// Answers of a language model that classifies: one word for each class in order; words of one token are faster
    /// [default: the task's, or the labels].
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "A,B",
        hide_short_help = true,
        conflicts_with = "regression"
    )]
    pub(crate) answers: Vec<String>,
    /// Question about every text, whose options are the labels.
    ///
    /// The model then answers a typed question, and decides by its answer and confidence.
    #[arg(
        long,
        value_name = "TEXT",
        conflicts_with_all = ["task", "regression", "template", "answers", "choice_columns", "pair_column"]
    )]
    pub(crate) instructions: Option<String>,
    /// Readout of a language model's answer to a question with options: at the texts of the options, any number of them, or
    /// at the letters that a list in the prompt gives to at most 26 [default: options].
    #[arg(
        long,
        value_name = "NAME",
        value_parser = args::one_of(&Readout::OF_OPTIONS, Readout::name),
        hide_short_help = true,
        conflicts_with_all = ["task", "regression", "template", "answers"]
    )]
    pub(crate) readout: Option<Readout>,
    #[command(flatten)]
    pub(crate) texts: NamedTexts,
    /// GLUE task instead of files, with `--data-dir`.
    ///
    /// cola, sst2, mrpc, qqp, mnli, qnli, rte, stsb or wnli.
    #[arg(long, value_name = "NAME", requires = "data_dir", conflicts_with = "train")]
    pub(crate) task: Option<String>,
    /// Folder of the GLUE data.
    #[arg(long, value_name = "DIR", requires = "task", hide_short_help = true)]
    pub(crate) data_dir: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) reading: ReadOptions,
    /// Make it an error that a key, a tensor, a template, a row or a token is read and not used, in place of a note.
    #[arg(long, hide_short_help = true)]
    pub(crate) strict: bool,
}

/// Commands of `lrvd data`.
#[derive(Debug, Subcommand)]
pub(crate) enum DataCommand {
    /// Read the data as training would, and describe them.
    #[command(after_long_help = help::text(include_str!("help/data-check.txt")))]
    Check(Box<CheckArguments>),
    /// List rows whose label is probably wrong.
    #[command(after_long_help = help::text(include_str!("help/data-suspects.txt")))]
    Suspects(Box<SuspectArguments>),
    /// Describe the files and columns that are read, and what each trains.
    #[command(after_help = help::text(include_str!("help/data-formats.txt")))]
    Formats,
}

/// Page of `lrvd data formats`.
const FORMATS: &str = include_str!("formats.txt");

/// Options of `lrvd data check`.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("written").multiple(true)))]
pub(crate) struct CheckArguments {
    #[command(flatten)]
    pub(crate) examples: ExampleArguments,
    /// Model to be trained: a folder, a `.gguf` file or `owner/name`.
    ///
    /// `owner/name` is a repository on the Hugging Face Hub.
    #[arg(long, value_name = "DIR|GGUF|HUB-ID", help_heading = heading::MODEL)]
    pub(crate) model: Option<String>,
    /// Revision of the repository: a branch, a tag or a commit [default: main].
    #[arg(long, value_name = "REVISION", requires = "model", help_heading = heading::MODEL, hide_short_help = true)]
    pub(crate) revision: Option<String>,
    /// Longest input in tokens [default: 128].
    ///
    /// The default is 1024 for texts of a language model, and 512 for typed questions, or fewer if the model has fewer positions.
    #[arg(long, value_name = "N", value_parser = args::count(), allow_negative_numbers = true, help_heading = heading::MODEL)]
    pub(crate) max_length: Option<usize>,
    /// File for the rows whose texts occur more than once: `.csv`, `.jsonl` or `.parquet`.
    ///
    /// Rows with the same texts have one number in `group`. `kind` is `first` or `duplicate`, or `contradiction` where labels
    /// differ.
    #[arg(long, value_name = "FILE", group = "written", help_heading = heading::OUTPUT, hide_short_help = true)]
    pub(crate) repeats: Option<PathBuf>,
    /// File for the training rows without duplicates behind the first, contradictions and rows that cannot be used.
    ///
    /// It has all columns, as `.csv`, `.jsonl` or `.parquet`.
    #[arg(long, value_name = "FILE", group = "written", requires = "train", help_heading = heading::OUTPUT, hide_short_help = true)]
    pub(crate) clean: Option<PathBuf>,
    /// Replace files that exist.
    #[arg(long, requires = "written", help_heading = heading::OUTPUT, hide_short_help = true)]
    pub(crate) force: bool,
}

/// Options of `lrvd data suspects`.
#[derive(Debug, Args)]
pub(crate) struct SuspectArguments {
    #[command(flatten)]
    pub(crate) examples: ExampleArguments,
    /// Encoder on whose frozen features regressions are fitted, each of which answers rows that it has not seen.
    ///
    /// A folder or `owner/name`, a repository on the Hugging Face Hub.
    #[arg(long, value_name = "DIR|HUB-ID", required_unless_present = "adapter", help_heading = heading::MODEL)]
    pub(crate) model: Option<String>,
    /// Revision of the repository: a branch, a tag or a commit [default: main].
    #[arg(long, value_name = "REVISION", requires = "model", help_heading = heading::MODEL, hide_short_help = true)]
    pub(crate) revision: Option<String>,
    /// Trained classifier that answers the rows instead; rows that it has used are an error.
    #[arg(long, value_name = "DIR", conflicts_with = "model", help_heading = heading::MODEL)]
    pub(crate) adapter: Option<PathBuf>,
    /// Leave out rows that the run of `--adapter` has used, which are an error otherwise.
    #[arg(long, requires = "adapter", help_heading = heading::MODEL)]
    pub(crate) skip_seen: bool,
    /// Longest input in tokens [default: 128, or the adapter's].
    #[arg(long, value_name = "N", value_parser = args::count(), allow_negative_numbers = true, help_heading = heading::MODEL, hide_short_help = true)]
    pub(crate) max_length: Option<usize>,
    #[command(flatten)]
    pub(crate) device: DeviceArgument,
    /// Largest probability of the label, exclusive, with which a row is listed.
    #[arg(long, value_name = "P", default_value = "0.1", value_parser = args::share, allow_negative_numbers = true, help_heading = heading::ANSWERS)]
    pub(crate) below: f64,
    /// Seed of the folds.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = args::seed(), allow_negative_numbers = true, conflicts_with = "adapter", help_heading = heading::ANSWERS)]
    pub(crate) seed: u64,
    /// File for the rows, `.csv`, `.jsonl` or `.parquet`, in place of standard output.
    #[arg(long, value_name = "FILE", help_heading = heading::OUTPUT)]
    pub(crate) out: Option<PathBuf>,
    /// Replace the file of `--out` if it exists.
    #[arg(long, requires = "out", help_heading = heading::OUTPUT)]
    pub(crate) force: bool,
}

/// Share of the training rows that is measured on by default.
const VALIDATION_SPLIT: f64 = 0.1;
/// More classes than this are summed up.
const MANY_CLASSES: usize = 20;
/// The largest and the smallest of them are listed.
const ENDS: usize = 3;

/// The data that arguments name: a task, or files whose columns say what they are for.
enum Named {
    Task(Task, PathBuf),
    Files(Box<OwnFiles>),
}

/// Reads the data that `arguments` name.
pub(super) fn read(arguments: &ExampleArguments, printer: Printer) -> Result<Data> {
    match named(arguments, printer)? {
        Named::Task(task, folder) => Ok(Data::Labelled(load(&folder, task, None)?)),
        Named::Files(files) => files.read(),
    }
}

fn named(arguments: &ExampleArguments, printer: Printer) -> Result<Named> {
    let given = arguments.clone();
    match (&given.task, given.data_dir, given.train) {
        (Some(task), Some(data_dir), _) => Ok(Named::Task(Task::named_glue(task)?, data_dir)),
        (_, _, Some(train)) => {
            let columns = NamedColumns {
                text: given.text_column,
                pair: given.pair_column,
                label: given.label_column,
                choices: given.choice_columns,
                separator: given.multi_label,
                labels: given.label_columns,
                texts: given.texts,
            };
            let files = OwnFiles {
                columns,
                labels: (!given.labels.is_empty()).then_some(given.labels),
                regression: given.regression,
                classifies: given.template.is_some()
                    || !given.answers.is_empty()
                    || given.readout.is_some(),
                instructions: given.instructions,
                reading: given.reading,
                strict: given.strict,
                ..own_files(train, given.validation, given.validation_split, printer)?
            };
            Ok(Named::Files(Box::new(files)))
        }
        _ => Err(anyhow!("pass --train, or --task and --data-dir")),
    }
}

/// The files of training and validation rows. Those that are taken of a data set on the hub are noted.
fn own_files(
    train: PathBuf,
    validation: Option<PathBuf>,
    share: Option<f64>,
    printer: Printer,
) -> Result<OwnFiles> {
    let set = DataSet::named_by(&train)?;
    let held = match (validation, share, &set) {
        (Some(file), ..) => Some(table_of(file, Part::Validation)?),
        (None, None, Some(set)) => set.table(Part::Validation)?,
        (None, ..) => None,
    };
    let held = held.map_or(Validation::Share(share.unwrap_or(VALIDATION_SPLIT)), Validation::File);
    let Some(set) = set else { return Ok(OwnFiles::new(train, held)) };
    let train = set.needed(Part::Train)?;
    printer.note(&format!("training rows: `{}`", train.display()));
    match &held {
        Validation::File(file) => printer.note(&format!("validation rows: `{}`", file.display())),
        Validation::Share(_) => {}
    }
    Ok(OwnFiles::new(train, held))
}

/// Sets the wording that options give; texts have none.
pub(super) fn set_wording(settings: &mut Layers, options: &ExampleArguments) -> Result<()> {
    if settings.training == Training::Language {
        return Ok(());
    }
    if let Some(template) = &options.template {
        settings.set("wording.template", template.as_str())?;
    }
    if !options.answers.is_empty() {
        settings.set("wording.answers", options.answers.clone())?;
    }
    if let Some(readout) = options.readout {
        settings.set("wording.readout", readout.name())?;
    }
    Ok(())
}

/// Reads the data and describes them.
pub(super) fn run(command: DataCommand, printer: Printer) -> Outcome {
    let CheckArguments { examples, model, max_length, revision, repeats, clean, force } =
        match command {
            DataCommand::Check(arguments) => *arguments,
            DataCommand::Suspects(arguments) => return suspects(*arguments, printer),
            DataCommand::Formats => {
                printer.data(FORMATS.trim_end())?;
                return Ok(ExitStatus::Done);
            }
        };
    let model = model.map(|model| named_at(&model, revision.as_deref())).transpose()?;
    let mut unused = Unused::default();
    let data = match named(&examples, printer)? {
        Named::Task(task, folder) => Ok(Data::Labelled(load(&folder, task, None)?)),
        Named::Files(mut files) => {
            // All of them are counted before it ends.
            files.reading.on_error.get_or_insert(OnError::Skip);
            files.read_noting(&mut unused)
        }
    };
    let notes = match &data {
        Ok(Data::Labelled(data)) if data.kind.task.is_none() => &data.notes[..],
        Ok(Data::Texts(data)) => &data.notes[..],
        _ => &[],
    };
    printer.notes(notes);
    printer.notes(&unused.notes(examples.strict && data.is_ok())?);
    let data = data?;
    write_repeats(&data, repeats.as_deref(), clean.as_deref(), force, printer)?;
    let mut settings = Layers::new(Some(data.training()), None, None)?;
    if let Some(length) = max_length {
        settings.set("max_length", length as i64)?;
    }
    set_wording(&mut settings, &examples)?;
    let mut report = check_data(data, model.as_deref(), settings)?;
    report["model_note"].as_str().into_iter().for_each(|note| printer.note(note));
    printer.notes(&rare(&report));
    printer.notes(&cut(&report));
    if unused.rows() == 0 {
        printer.report_rows("data check", &report, splits, text)?;
        return Ok(ExitStatus::Done);
    }
    report["left_out"] = unused.rows().into();
    printer.report_rows("data check", &report, splits, text)?;
    printer.note(&format!(
        "{} of the rows cannot be used: mend them, or leave them out by `--on-error skip`",
        unused.rows()
    ));
    Ok(ExitStatus::CheckFailed)
}

/// Names of rare classes that a note lists.
const FEW_NAMES: usize = 10;

/// A note on classes with few training rows.
fn rare(report: &Value) -> Option<String> {
    let rare = report["rare"].as_array().filter(|rare| !rare.is_empty())?;
    let named = |class: &Value| Some(format!("`{}` ({})", class[0].as_str()?, class[1]));
    let mut names: Vec<String> = rare.iter().filter_map(named).take(FEW_NAMES).collect();
    if rare.len() > names.len() {
        names.push(format!("and {} more", rare.len() - names.len()));
    }
    Some(format!(
        "fewer than 8 training rows, so that few answers of the class will be right: {}",
        names.join(", ")
    ))
}

/// A note on rows that are longer than the model reads them.
fn cut(report: &Value) -> Option<String> {
    let splits = report["splits"].as_array()?;
    let [cut, rows] = ["truncated", "rows"]
        .map(|key| splits.iter().filter_map(|split| split[key].as_u64()).sum::<u64>());
    let longest = splits.iter().filter_map(|split| split["tokens"]["most"].as_u64()).max()?;
    (cut > 0).then(|| {
        format!(
            "{cut} of {rows} rows are cut at {} tokens; the longest has {longest}: `--max-length` sets another number, by which memory and time grow",
            report["max_length"]
        )
    })
}

/// Writes the rows whose texts occur more than once, and the training rows without them.
fn write_repeats(
    data: &Data,
    list: Option<&Path>,
    clean: Option<&Path>,
    force: bool,
    printer: Printer,
) -> Result<()> {
    if list.is_none() && clean.is_none() {
        return Ok(());
    }
    let data = match data {
        Data::Labelled(data)
            if !matches!(
                data.kind.goal.answers,
                AnswerSpace::Questions { .. } | AnswerSpace::Question { .. }
            ) =>
        {
            data
        }
        _ => bail!("`--repeats` and `--clean` are for texts with labels, numbers or choices"),
    };
    let found = repeats(data);
    if let Some(path) = list {
        let mut file = new_file(path, force)?;
        file.start_with(Repeat::KEYS.iter().copied());
        for row in &found {
            push(&mut file, &Row::new(row)?)?;
        }
        file.finish()?;
        printer.note(&format!(
            "{} rows whose texts occur more than once: {}",
            found.len(),
            path.display()
        ));
    }
    if let Some(path) = clean {
        let (written, left_out) = write_clean(data, &found, new_file(path, force)?)?;
        printer.note(&format!("{written} rows, {left_out} left out: {}", path.display()));
    }
    Ok(())
}

/// Lists rows whose label is probably wrong.
fn suspects(arguments: SuspectArguments, printer: Printer) -> Outcome {
    let file = arguments.out.as_deref().map(|path| new_file(path, arguments.force)).transpose()?;
    if file.is_some() && printer.named.is_some() {
        bail!("`--out` writes the format that its name ends in: leave out `--format`");
    }
    let found = match &arguments.adapter {
        Some(dir) => answered(&arguments, dir, printer)?,
        None => cross_fitted(&arguments, printer)?,
    };
    if found.judged < found.rows {
        printer.note(&format!(
            "{} of {} rows are not judged: the only row of a class is in every fit",
            found.rows - found.judged,
            found.rows
        ));
    }
    let Some(mut file) = file else {
        let rows = |found: &Suspects| Row::each(&found.suspects);
        printer.report_rows("data suspects", &found, rows, listed)?;
        return Ok(ExitStatus::Done);
    };
    if found.suspects.is_empty() {
        file.start_with(["id", "text", "label", "predicted", "label_probability"]);
    }
    for row in &found.suspects {
        push(&mut file, &Row::new(row)?)?;
    }
    let note = format!(
        "{} of {} rows have a label with a probability below {}: {}",
        found.suspects.len(),
        found.judged,
        found.below,
        file.path().display()
    );
    file.finish()?;
    printer.note(&note);
    Ok(ExitStatus::Done)
}

/// Suspects by regressions on frozen features, each of rows that it has not seen.
fn cross_fitted(arguments: &SuspectArguments, printer: Printer) -> Result<Suspects> {
    let data = read(&arguments.examples, printer)?;
    if let Data::Labelled(data) = &data {
        printer.notes(&data.notes);
    }
    let mut settings = Layers::new(Some(data.training()), None, None)?;
    if let Some(length) = arguments.max_length {
        settings.set("max_length", length as i64)?;
    }
    let model = arguments.model.as_deref().context("pass --model or --adapter")?;
    let options = TrainOptions {
        model: named_at(model, arguments.revision.as_deref())?,
        method: MethodName::LINEAR,
        target_rank: None,
        settings,
        seed: arguments.seed,
        device: arguments.device.name(printer),
        out: PathBuf::new(),
        resume: false,
        baseline: false,
        target: None,
        strict: arguments.examples.strict,
    };
    let stop = AtomicBool::new(false);
    cross_fitted_suspects(&options, data, arguments.below, &stop, &mut |event| {
        if let Event::Note(note) = event {
            printer.note(note);
        }
    })
}

/// Suspects by a trained classifier, of rows that it has not used.
fn answered(arguments: &SuspectArguments, dir: &Path, printer: Printer) -> Result<Suspects> {
    let given = &arguments.examples;
    let is_other = given.validation.is_some()
        || given.validation_split.is_some()
        || given.regression
        || given.multi_label.is_some()
        || given.template.is_some()
        || given.instructions.is_some()
        || given.readout.is_some()
        || given.task.is_some()
        || [&given.labels, &given.label_columns, &given.answers]
            .iter()
            .any(|names| !names.is_empty());
    if is_other {
        bail!("`--adapter` has the labels and questions of its training: leave out their options");
    }
    let options = OpenOptions {
        strict: given.strict,
        max_length: arguments.max_length,
        ..OpenOptions::default()
    };
    let device = arguments.device.open(printer)?;
    let classifier = SavedClassifier::load(dir, &options, DrawPolicy::default(), &device)?;
    printer.notes(&classifier.warnings);
    let columns = InputColumns {
        text_column: given.text_column.clone(),
        pair_column: given.pair_column.clone(),
        choice_columns: given.choice_columns.clone(),
    };
    let own = OwnRows {
        columns: &columns,
        label: given.label_column.as_ref(),
        reading: &given.reading,
        strict: given.strict,
    };
    let file = given.train.as_deref().context("pass --train")?;
    let mut rows = own.read(&classifier, file, printer)?;
    check_unseen(&classifier, &mut rows, arguments.skip_seen, printer)?;
    let evaluation = evaluate(&classifier, &rows.examples, 0, classifier.info.run.seed)?;
    printer.notes(evaluation.notes());
    evaluation.suspects(&rows.examples, 0, arguments.below)
}

/// Letters of a text that the table shows.
const SHOWN: usize = 60;

fn listed(found: &Suspects) -> String {
    let row = |row: &WrongRow| {
        let Wrong::Class { label, predicted, label_probability, predicted_probability } =
            &row.wrong
        else {
            return Vec::new();
        };
        let place = match row.at {
            At::Line(line) => format!("line {line}"),
            At::Row(row) => format!("row {row}"),
        };
        let mut text: String = row.text.split_whitespace().collect::<Vec<_>>().join(" ");
        if text.chars().count() > SHOWN {
            text = text.chars().take(SHOWN - 1).chain(['…']).collect();
        }
        let of = |p: &f64| format!("{:.1} %", 100.0 * p);
        vec![
            place,
            label.clone(),
            of(label_probability),
            predicted.clone(),
            of(predicted_probability),
            text,
        ]
    };
    let summary = format!(
        "{} of {} rows have a label with a probability below {}",
        found.suspects.len(),
        found.judged,
        found.below
    );
    if found.suspects.is_empty() {
        return summary;
    }
    let header = ["row", "label", "probability", "answered", "probability", "text"];
    format!("{}\n\n{summary}", words(&header, found.suspects.iter().map(row).collect()))
}

/// A row for each split.
fn splits(report: &Value) -> Result<Vec<Row>> {
    Row::each(report["splits"].as_array().into_iter().flatten())
}

/// Least value, median, the smallest that at least 95 % of the rows do not exceed, and the largest.
fn spread(of: &Value) -> Option<String> {
    let parts = ["least", "median", "most_rows", "most"];
    let number = |part| of[part].as_f64().map_or_else(|| "-".to_owned(), |value| value.to_string());
    of.is_object().then(|| parts.map(number).join(" "))
}

fn number(of: &Value) -> Option<String> {
    of.as_u64().map(|n| count(n as usize))
}

/// Rows of each class, of labelled rows.
fn sizes(split: &Value) -> Option<Vec<usize>> {
    let size = |class: &Value| Some(class[1].as_u64()? as usize);
    split["classes"].as_array()?.iter().map(size).collect()
}

fn text(report: &Value) -> String {
    let list = |name: &str| report[name].as_array().into_iter().flatten();
    let splits: Vec<&Value> = list("splits").collect();
    let mut header = vec![""];
    header.extend(splits.iter().filter_map(|split| split["name"].as_str()));
    let mut rows = Vec::new();
    // A row without a cell is left out.
    let mut row = |name: &str, cell: &dyn Fn(&Value) -> Option<String>| {
        let cells: Vec<_> = splits.iter().map(|split| cell(split)).collect();
        if cells.iter().any(Option::is_some) {
            let cells = cells.into_iter().map(|cell| cell.unwrap_or_else(|| "-".to_owned()));
            rows.push(std::iter::once(name.to_owned()).chain(cells).collect::<Vec<_>>());
        }
    };
    row("rows", &|split| number(&split["rows"]));
    let all = sizes(splits[0]).unwrap_or_default();
    let mut shown: Vec<usize> = (0..all.len()).collect();
    if all.len() > MANY_CLASSES {
        row("classes", &|split| Some(count(sizes(split)?.into_iter().filter(|n| *n > 0).count())));
        row("rows of a class: least, median, 95 % at most, most", &|split| {
            spread(&serde_json::to_value(LengthStats::of(sizes(split)?)).ok()?)
        });
        // The largest and the smallest.
        shown.sort_by_key(|id| std::cmp::Reverse(all[*id]));
        shown.drain(ENDS..all.len() - ENDS);
    }
    for id in shown {
        let name = splits[0]["classes"][id][0].as_str().unwrap_or_default();
        row(&format!("class `{name}`"), &|split| {
            let (n, rows) = (*sizes(split)?.get(id)?, split["rows"].as_u64()?);
            let share = 100.0 / rows.max(1) as f64 * n as f64;
            Some(format!("{} ({share:.0} %)", count(n)))
        });
    }
    for (place, kind) in QuestionKind::ALL.into_iter().enumerate() {
        row(&format!("questions of the type `{kind}`"), &|split| number(&split["types"][place][1]));
    }
    row("score: least, mean, most", &|split| {
        let [least, mean, most] = [0, 1, 2].map(|i| split["scores"][i].as_f64());
        Some(format!("{} {:.3} {}", least?, mean?, most?))
    });
    row("characters: least, median, 95 % at most, most", &|split| spread(&split["characters"]));
    row("tokens: least, median, 95 % at most, most", &|split| spread(&split["tokens"]));
    row("of them learnt", &|split| spread(&split["learnt"]));
    let cut = format!("longer than {} tokens, cut", report["max_length"]);
    row(&cut, &|split| number(&split["truncated"]));
    row("without a learnt token, left out", &|split| number(&split["dropped"]));
    row("empty", &|split| number(&split["empty"]));
    row("duplicates", &|split| number(&split["repeated"]));
    row("same text, other label", &|split| {
        number(&split["contradicted"]).filter(|_| splits.iter().any(|s| s["contradicted"] != 0))
    });
    row("also in training", &|split| {
        number(&split["seen_in_training"]).filter(|_| split["name"] == "validation")
    });
    let mut lines = vec![table(&header, rows)];
    lines.extend(report["wording"].as_str().map(str::to_owned));
    if !report["columns"].is_null() {
        lines.push("\nlearnt parts are in «»:".to_owned());
    }
    for example in list("examples") {
        let written = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        lines.push(match example.as_array() {
            None => {
                format!("\n{}\n  -> {}", written(&example["input"]), written(&example["label"]))
            }
            Some(pieces) => {
                let piece = |piece: &Value| {
                    let text = written(&piece[0]);
                    if piece[1] == true { format!("«{text}»") } else { text }
                };
                format!("\n{}", pieces.iter().map(piece).collect::<String>())
            }
        });
    }
    lines.join("\n")
}
