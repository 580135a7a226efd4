//! `lrvd data`, and the examples that `lrvd train` is given.

use anyhow::anyhow;
use lrvd_bench::Result;
use lrvd_bench::check::{Counts, DataReport, Described, Shown, SplitReport, Spread, check_data};
use lrvd_bench::data::{Data, NamedColumns, OwnFiles, Validation, load};
use lrvd_bench::settings::{Preset, WordingSettings};
use lrvd_bench::task::Task;

use super::Outcome;
use super::table::{count, table};
use crate::args::{CheckArguments, DataCommand, ExampleArguments};
use crate::exit::ExitStatus;
use crate::printer::Printer;

/// Share of the training rows that is measured on by default.
const VALIDATION_SPLIT: f64 = 0.1;
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
                ..given.texts.named()
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
    printer.report(&report, text)?;
    Ok(ExitStatus::Done)
}

/// Least, median, 95 % and most.
fn spread(s: Spread) -> String {
    format!("{} {} {} {}", s.least, s.median, s.most_rows, s.most)
}

fn text(report: &DataReport) -> String {
    let mut header = vec![""];
    header.extend(report.splits.iter().map(|split| split.name));
    let row = |name: &str, cell: &dyn Fn(&SplitReport) -> Option<String>| {
        let cells = report.splits.iter();
        let cells = cells.map(|split| cell(split).unwrap_or_else(|| "-".to_owned()));
        std::iter::once(name.to_owned()).chain(cells).collect::<Vec<_>>()
    };
    let mut rows = vec![row("rows", &|split| Some(count(split.rows)))];
    if let Some(Counts::Labels { classes, scores, .. }) = report.splits.first().map(|s| &s.counts) {
        for (id, (class, _)) in classes.iter().enumerate() {
            rows.push(row(&format!("class `{class}`"), &|split| {
                let Counts::Labels { classes, .. } = &split.counts else { return None };
                let (share, n) = (100.0 / split.rows.max(1) as f64, classes.get(id)?.1);
                Some(format!("{} ({:.0} %)", count(n), share * n as f64))
            }));
        }
        if scores.is_some() {
            rows.push(row("score: least, mean, most", &|split| match &split.counts {
                Counts::Labels { scores: Some([least, mean, most]), .. } => {
                    Some(format!("{least} {mean:.3} {most}"))
                }
                _ => None,
            }));
        }
    }
    rows.push(row("characters: least, median, 95 %, most", &|split| split.characters.map(spread)));
    if let Some(max_length) = report.max_length {
        rows.push(row("tokens: least, median, 95 %, most", &|split| split.tokens.map(spread)));
        let cut = row(&format!("longer than {max_length} tokens, cut"), &|split| {
            split.truncated.map(count)
        });
        match report.data {
            Described::Labels { .. } => rows.push(cut),
            Described::Texts { .. } => rows.extend([
                row("of them learnt", &|split| match split.counts {
                    Counts::Texts { learnt, .. } => learnt.map(spread),
                    Counts::Labels { .. } => None,
                }),
                cut,
                row("without a learnt token, left out", &|split| match split.counts {
                    Counts::Texts { dropped, .. } => dropped.map(count),
                    Counts::Labels { .. } => None,
                }),
            ]),
        }
    }
    if let Described::Labels { .. } = report.data {
        rows.push(row("empty", &|split| match split.counts {
            Counts::Labels { empty, .. } => Some(count(empty)),
            Counts::Texts { .. } => None,
        }));
    }
    rows.push(row("duplicates", &|split| Some(count(split.repeated))));
    rows.push(row("also in training", &|split| {
        (split.name == "validation").then(|| count(split.seen_in_training))
    }));
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
