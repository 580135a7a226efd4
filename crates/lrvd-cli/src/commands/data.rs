//! `lrvd data`, and the examples that `lrvd train` is given.

use std::path::PathBuf;

use anyhow::anyhow;
use clap::{Args, Subcommand};
use lrvd_bench::Result;
use lrvd_bench::check::{Counts, DataReport, Described, Shown, SplitReport, Spread, check_data};
use lrvd_bench::data::{Data, NamedColumns, NamedTexts, OwnFiles, Validation, load};
use lrvd_bench::settings::{Preset, WordingSettings};
use lrvd_bench::task::Task;

use super::Outcome;
use super::table::{count, table};
use crate::args;
use crate::printer::Printer;
use crate::process::ExitStatus;

/// Examples for training and evaluation.
#[derive(Clone, Debug, Args)]
pub(crate) struct ExampleArguments {
    /// Training examples.
    #[arg(long, value_name = "FILE", required_unless_present = "task")]
    pub(crate) train: Option<PathBuf>,
    /// Validation examples [default: a part of the training file, `--validation-split`].
    #[arg(long, value_name = "FILE", requires = "train")]
    pub(crate) validation: Option<PathBuf>,
    /// Share of the training rows to validate on instead of training on; the same rows for every seed [default: 0.1].
    #[arg(long, value_name = "SHARE", value_parser = args::share, requires = "train", conflicts_with = "validation")]
    pub(crate) validation_split: Option<f64>,
    /// Column or key of the text [default: `text`, or else the only one of `sentence`, `query` and `question`; `question` for
    /// questions with choices].
    #[arg(long, value_name = "NAME")]
    pub(crate) text_column: Option<String>,
    /// Column or key of the second text of a pair, or of the passage of a question with choices.
    #[arg(long, value_name = "NAME", conflicts_with = "task")]
    pub(crate) pair_column: Option<String>,
    /// Column or key of the label [default: `label`, or else the only one of `category`, `intent`, `class` and `target`; `answer`
    /// for questions with choices].
    #[arg(long, value_name = "NAME")]
    pub(crate) label_column: Option<String>,
    /// Column or key of a list of choices, one of which is the label; or one column for each choice, comma-separated
    /// [default: `choices`, if a row has `question`, `choices` and `answer`].
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "NAME|A,B",
        conflicts_with_all = ["task", "regression", "labels", "template", "answers"]
    )]
    pub(crate) choice_columns: Vec<String>,
    /// Labels in the order of their class ids [default: those of the training file, sorted].
    #[arg(long, value_delimiter = ',', value_name = "A,B", conflicts_with_all = ["task", "regression"])]
    pub(crate) labels: Vec<String>,
    /// Learn numbers instead of classes.
    #[arg(long, conflicts_with = "task")]
    pub(crate) regression: bool,
    /// Prompt of a Llama classifier, with `{text}` and, for pairs, `{pair}`; `\n` is a line break
    /// [default: the task's, or a plain one].
    #[arg(long, value_name = "TEXT")]
    pub(crate) template: Option<String>,
    /// Answers of a Llama classifier: one word for each class in order, one token each after the prompt
    /// [default: the task's, or the labels].
    #[arg(long, value_delimiter = ',', value_name = "A,B", conflicts_with = "regression")]
    pub(crate) answers: Vec<String>,
    #[command(flatten)]
    pub(crate) texts: NamedTexts,
    /// A GLUE task instead of files: cola, sst2, mrpc, qqp, mnli, qnli, rte, stsb, wnli.
    #[arg(long, value_name = "NAME", requires = "data_dir", conflicts_with = "train")]
    pub(crate) task: Option<String>,
    /// Folder of the GLUE data.
    #[arg(long, value_name = "DIR", requires = "task")]
    pub(crate) data_dir: Option<PathBuf>,
}

/// Commands of `lrvd data`.
#[derive(Debug, Subcommand)]
pub(crate) enum DataCommand {
    /// Read the data as training would, and describe them.
    #[command(after_help = include_str!("help/data-check.txt"))]
    Check(Box<CheckArguments>),
}

/// Options of `lrvd data check`.
#[derive(Debug, Args)]
pub(crate) struct CheckArguments {
    #[command(flatten)]
    pub(crate) examples: ExampleArguments,
    /// The model to be trained: a folder, a `.gguf` file, or a repository `owner/name` on the Hugging Face Hub.
    #[arg(long, value_name = "DIR|GGUF|HUB-ID")]
    pub(crate) model: Option<String>,
    /// Longest input in tokens [default: 128; 1024 for a language model].
    #[arg(long, value_name = "N", value_parser = args::count(), allow_negative_numbers = true)]
    pub(crate) max_length: Option<usize>,
}

/// Share of the training rows that is measured on by default.
const VALIDATION_SPLIT: f64 = 0.1;
/// More classes than this are summed up.
const MANY_CLASSES: usize = 20;
/// The largest and the smallest of them are listed.
const ENDS: usize = 3;
/// Longest input of a classifier by default, tokens.
const MAX_LENGTH: usize = 128;

/// Reads the data that `arguments` name: a task, or files whose columns say what they are for.
pub(super) fn read(arguments: &ExampleArguments) -> Result<Data> {
    let given = arguments.clone();
    match (&given.task, given.data_dir, given.train) {
        (Some(task), Some(data_dir), _) => {
            Ok(Data::Labelled(load(&data_dir, Task::named_glue(task)?, None)?))
        }
        (_, _, Some(train)) => {
            let share = given.validation_split.unwrap_or(VALIDATION_SPLIT);
            let columns = NamedColumns {
                text: given.text_column,
                pair: given.pair_column,
                label: given.label_column,
                choices: given.choice_columns,
                texts: given.texts,
            };
            let files = OwnFiles {
                train,
                validation: given.validation.map_or(Validation::Share(share), Validation::File),
                columns,
                labels: (!given.labels.is_empty()).then_some(given.labels),
                regression: given.regression,
                classifies: given.template.is_some() || !given.answers.is_empty(),
            };
            files.read()
        }
        _ => Err(anyhow!("pass --train, or --task and --data-dir")),
    }
}

/// Reads the data and describes them.
pub(super) fn run(command: DataCommand, printer: Printer) -> Outcome {
    let DataCommand::Check(arguments) = command;
    let CheckArguments { examples, model, max_length } = *arguments;
    let given = WordingSettings {
        template: examples.template.clone(),
        answers: (!examples.answers.is_empty()).then(|| examples.answers.clone()),
    };
    let data = read(&examples)?;
    let (usual, notes) = match &data {
        Data::Labelled(data) => {
            (MAX_LENGTH, data.notes.iter().filter(|_| data.kind.task.is_none()).collect())
        }
        Data::Texts(data) => {
            (Preset::Default.language_config().max_length, data.notes.iter().collect::<Vec<_>>())
        }
    };
    for note in notes {
        printer.note(note);
    }
    let report = check_data(&data, model.as_deref(), &given, max_length.unwrap_or(usual))?;
    printer.report("data check", &report, text)?;
    Ok(ExitStatus::Done)
}

/// Least, median, 95 % and most.
fn spread(s: Spread) -> String {
    format!("{} {} {} {}", s.least, s.median, s.most_rows, s.most)
}

/// Rows of each class, of labelled rows.
fn classes(split: &SplitReport) -> Option<&[(String, usize)]> {
    match &split.counts {
        Counts::Labels { classes, .. } => Some(classes),
        Counts::Texts { .. } => None,
    }
}

fn text(report: &DataReport) -> String {
    let mut header = vec![""];
    header.extend(report.splits.iter().map(|split| split.name));
    let mut rows = Vec::new();
    // A row without a cell is left out.
    let mut row = |name: &str, cell: &dyn Fn(&SplitReport) -> Option<String>| {
        let cells: Vec<_> = report.splits.iter().map(cell).collect();
        if cells.iter().any(Option::is_some) {
            let cells = cells.into_iter().map(|cell| cell.unwrap_or_else(|| "-".to_owned()));
            rows.push(std::iter::once(name.to_owned()).chain(cells).collect::<Vec<_>>());
        }
    };
    row("rows", &|split| Some(count(split.rows)));
    let all = report.splits.first().and_then(classes).unwrap_or_default();
    let mut shown: Vec<usize> = (0..all.len()).collect();
    if all.len() > MANY_CLASSES {
        let sizes = |split: &SplitReport| -> Option<Vec<usize>> {
            Some(classes(split)?.iter().map(|(_, n)| *n).collect())
        };
        row("classes", &|split| Some(count(sizes(split)?.into_iter().filter(|n| *n > 0).count())));
        row("rows of a class: least, median, 95 %, most", &|split| {
            Spread::of(sizes(split)?).map(spread)
        });
        // The largest and the smallest.
        shown.sort_by_key(|id| std::cmp::Reverse(all[*id].1));
        shown.drain(ENDS..all.len() - ENDS);
    }
    for id in shown {
        row(&format!("class `{}`", all[id].0), &|split| {
            let (share, n) = (100.0 / split.rows.max(1) as f64, classes(split)?.get(id)?.1);
            Some(format!("{} ({:.0} %)", count(n), share * n as f64))
        });
    }
    row("score: least, mean, most", &|split| match split.counts {
        Counts::Labels { scores: Some([least, mean, most]), .. } => {
            Some(format!("{least} {mean:.3} {most}"))
        }
        _ => None,
    });
    row("characters: least, median, 95 %, most", &|split| split.characters.map(spread));
    row("tokens: least, median, 95 %, most", &|split| split.tokens.map(spread));
    row("of them learnt", &|split| match split.counts {
        Counts::Texts { learnt, .. } => learnt.map(spread),
        Counts::Labels { .. } => None,
    });
    if let Some(max_length) = report.max_length {
        let cut = format!("longer than {max_length} tokens, cut");
        row(&cut, &|split| split.truncated.map(count));
    }
    row("without a learnt token, left out", &|split| match split.counts {
        Counts::Texts { dropped, .. } => dropped.map(count),
        Counts::Labels { .. } => None,
    });
    row("empty", &|split| match split.counts {
        Counts::Labels { empty, .. } => Some(count(empty)),
        Counts::Texts { .. } => None,
    });
    row("duplicates", &|split| Some(count(split.repeated)));
    row("also in training", &|split| {
        (split.name == "validation").then(|| count(split.seen_in_training))
    });
    let mut lines = vec![table(&header, rows)];
    match &report.data {
        Described::Labels { wording, .. } => lines.extend(wording.clone()),
        Described::Texts { .. } => lines.push("\nlearnt parts are in «»:".to_owned()),
    }
    for example in &report.examples {
        lines.push(match example {
            Shown::Labelled { input, label } => format!("\n{input}\n  -> {label}"),
            Shown::Marked(pieces) => {
                let piece = |(text, learnt): &(String, bool)| {
                    if *learnt { format!("«{text}»") } else { text.clone() }
                };
                format!("\n{}", pieces.iter().map(piece).collect::<String>())
            }
        });
    }
    lines.join("\n")
}
