//! `lrvd data`, and the examples that `lrvd train` is given.

use std::path::PathBuf;

use anyhow::anyhow;
use clap::{Args, Subcommand};
use lrvd_bench::adapter::named_at;
use lrvd_bench::answers::{QuestionKind, Readout};
use lrvd_bench::data::{
    Data, NamedColumns, NamedTexts, OnError, OwnFiles, ReadOptions, Validation, load,
};
use lrvd_bench::data_check::{LengthStats, check_data};
use lrvd_bench::settings::{Layers, Training};
use lrvd_bench::task::Task;
use lrvd_bench::{Result, Unused};
use serde_json::Value;

use super::table::{count, table};
use super::{Outcome, help};
use crate::args::{self, heading};
use crate::exit::ExitStatus;
use crate::printer::Printer;
use crate::rows::Row;

/// Examples for training and evaluation.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = heading::DATA)]
pub(crate) struct ExampleArguments {
    /// Training rows; `lrvd data formats` describes what is read.
    #[arg(long, value_name = "FILE", required_unless_present = "task")]
    pub(crate) train: Option<PathBuf>,
    /// Validation rows [default: a part of the training rows].
    #[arg(long, value_name = "FILE", requires = "train")]
    pub(crate) validation: Option<PathBuf>,
    /// Share of the training rows to validate on [default: 0.1].
    ///
    /// They are not trained on, and are the same rows for every seed.
    #[arg(long, value_name = "SHARE", value_parser = args::share, requires = "train", conflicts_with = "validation")]
    pub(crate) validation_split: Option<f64>,
    /// Column or key of the text [default: `text`].
    ///
    /// Or else the only one of `sentence`, `query` and `question`; `question` for questions with choices.
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
    /// Describe the files and columns that are read, and what each trains.
    #[command(after_help = help::text(include_str!("help/data-formats.txt")))]
    Formats,
}

/// Page of `lrvd data formats`.
const FORMATS: &str = include_str!("formats.txt");

/// Options of `lrvd data check`.
#[derive(Debug, Args)]
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
pub(super) fn read(arguments: &ExampleArguments) -> Result<Data> {
    match named(arguments)? {
        Named::Task(task, folder) => Ok(Data::Labelled(load(&folder, task, None)?)),
        Named::Files(files) => files.read(),
    }
}

fn named(arguments: &ExampleArguments) -> Result<Named> {
    let given = arguments.clone();
    match (&given.task, given.data_dir, given.train) {
        (Some(task), Some(data_dir), _) => Ok(Named::Task(Task::named_glue(task)?, data_dir)),
        (_, _, Some(train)) => {
            let share = given.validation_split.unwrap_or(VALIDATION_SPLIT);
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
                train,
                validation: given.validation.map_or(Validation::Share(share), Validation::File),
                columns,
                labels: (!given.labels.is_empty()).then_some(given.labels),
                regression: given.regression,
                classifies: given.template.is_some()
                    || !given.answers.is_empty()
                    || given.readout.is_some(),
                instructions: given.instructions,
                reading: given.reading,
                strict: given.strict,
            };
            Ok(Named::Files(Box::new(files)))
        }
        _ => Err(anyhow!("pass --train, or --task and --data-dir")),
    }
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
    let CheckArguments { examples, model, max_length, revision } = match command {
        DataCommand::Check(arguments) => *arguments,
        DataCommand::Formats => {
            printer.data(FORMATS.trim_end())?;
            return Ok(ExitStatus::Done);
        }
    };
    let model = model.map(|model| named_at(&model, revision.as_deref())).transpose()?;
    let mut unused = Unused::default();
    let data = match named(&examples)? {
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
    let mut settings = Layers::new(Some(data.training()), None, None)?;
    if let Some(length) = max_length {
        settings.set("max_length", length as i64)?;
    }
    set_wording(&mut settings, &examples)?;
    let mut report = check_data(data, model.as_deref(), settings)?;
    report["model_note"].as_str().into_iter().for_each(|note| printer.note(note));
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
