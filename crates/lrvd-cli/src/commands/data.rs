//! `lrvd data`, and the examples that `lrvd train` is given.

use std::path::Path;

use anyhow::{anyhow, bail};
use lrvd_bench::Result;
use lrvd_bench::classify::{DataReport, DataSource, SplitReport, TextColumns, check_data};
use lrvd_bench::data::{Spread, Validation};
use lrvd_bench::language::{LanguageColumns, LanguageSource};
use lrvd_bench::settings::WordingSettings;
use lrvd_bench::task::GlueTask;

use super::table::{count, table};
use super::{Outcome, language};
use crate::args::{CheckArguments, DataCommand, ExampleArguments};
use crate::exit::ExitStatus;
use crate::printer::Printer;

/// Share of the training rows that is measured on by default.
const VALIDATION_SPLIT: f64 = 0.1;
/// Longest input of a classifier by default, tokens.
const MAX_LENGTH: usize = 128;

/// The examples that `arguments` name.
pub(super) fn source(arguments: ExampleArguments) -> Result<DataSource> {
    match (&arguments.task, &arguments.data_dir, &arguments.train) {
        (Some(task), Some(data_dir), _) => {
            Ok(DataSource::Glue { task: task.parse::<GlueTask>()?, data_dir: data_dir.clone() })
        }
        (_, _, Some(train)) => {
            let share = arguments.validation_split.unwrap_or(VALIDATION_SPLIT);
            Ok(DataSource::Files {
                columns: columns(train, &arguments)?,
                train: train.clone(),
                validation: arguments.validation.map_or(Validation::Share(share), Validation::File),
                labels: (!arguments.labels.is_empty()).then_some(arguments.labels),
                regression: arguments.regression,
            })
        }
        _ => Err(anyhow!("pass --train, or --task and --data-dir")),
    }
}

/// The columns that `arguments` name, or that `train` has by their usual names.
fn columns(train: &Path, arguments: &ExampleArguments) -> Result<TextColumns> {
    let ExampleArguments { text_column, pair_column, label_column, choice_columns, .. } = arguments;
    let is_named = text_column.is_some() || label_column.is_some();
    let usual = match choice_columns.as_slice() {
        [] if is_named => TextColumns::default(),
        [] => TextColumns::recognise(train)?,
        choices => TextColumns::questions(choices.to_vec()),
    };
    Ok(usual.with(text_column.clone(), pair_column.clone(), label_column.clone(), Vec::new()))
}

/// The texts for a language model that `arguments` name, or that the training file holds by its columns; `None` if it is
/// for a classifier.
pub(super) fn texts(arguments: &ExampleArguments) -> Result<Option<LanguageSource>> {
    let Some(train) = &arguments.train else { return Ok(None) };
    let given = arguments.texts.named().meant()?;
    let classifies = arguments.pair_column.is_some()
        || arguments.regression
        || !arguments.choice_columns.is_empty()
        || !arguments.labels.is_empty()
        || arguments.template.is_some()
        || !arguments.answers.is_empty();
    if given.is_some() && classifies {
        bail!(
            "columns of a language model cannot be combined with `--labels`, `--pair-column`, `--choice-columns`, `--template`, `--answers` or `--regression`"
        );
    }
    let or = |named: &Option<String>, usual: &str| named.clone().unwrap_or(usual.to_owned());
    let known = [or(&arguments.text_column, "text"), or(&arguments.label_column, "label")];
    let known = known.each_ref().map(String::as_str);
    let columns = match given {
        Some(columns) => Some(columns),
        None if classifies => None,
        None => LanguageColumns::recognise(train, &known)?,
    };
    let share = arguments.validation_split.unwrap_or(VALIDATION_SPLIT);
    Ok(columns.map(|columns| LanguageSource {
        train: train.clone(),
        validation: arguments.validation.clone().map_or(Validation::Share(share), Validation::File),
        columns,
    }))
}

/// Reads the data and describes them.
pub(super) fn run(command: DataCommand, printer: Printer) -> Outcome {
    let DataCommand::Check(arguments) = command;
    let CheckArguments { examples, model, max_length } = *arguments;
    if let Some(source) = texts(&examples)? {
        return language::check(&source, model.as_deref(), max_length, printer);
    }
    let max_length = max_length.unwrap_or(MAX_LENGTH);
    let given = WordingSettings {
        template: examples.template.clone(),
        answers: (!examples.answers.is_empty()).then(|| examples.answers.clone()),
    };
    let report = check_data(&source(examples)?, model.as_deref(), &given, max_length)?;
    printer.report(&report, text)?;
    Ok(ExitStatus::Done)
}

/// Least, median, 95 % and most.
pub(super) fn spread(s: Spread) -> String {
    format!("{} {} {} {}", s.least, s.median, s.most_rows, s.most)
}

fn text(report: &DataReport) -> String {
    let mut header = vec![""];
    header.extend(report.splits.iter().map(|split| split.name));
    let row = |name: &str, cell: &dyn Fn(&SplitReport) -> Option<String>| {
        let cells: Vec<String> = report
            .splits
            .iter()
            .map(|split| cell(split).unwrap_or_else(|| "-".to_owned()))
            .collect();
        [vec![name.to_owned()], cells].concat()
    };
    let mut rows = vec![row("rows", &|split| Some(count(split.rows)))];
    for (id, (class, _)) in report.splits.iter().take(1).flat_map(|s| &s.classes).enumerate() {
        rows.push(row(&format!("class `{class}`"), &|split| {
            let (_, n) = split.classes.get(id)?;
            Some(format!("{} ({:.0} %)", count(*n), 100.0 * *n as f64 / split.rows.max(1) as f64))
        }));
    }
    if report.regression {
        rows.push(row("score: least, mean, most", &|split| {
            split.scores.map(|[least, mean, most]| format!("{least} {mean:.3} {most}"))
        }));
    }
    rows.push(row("characters: least, median, 95 %, most", &|split| split.characters.map(spread)));
    if let Some(max_length) = report.max_length {
        rows.push(row("tokens: least, median, 95 %, most", &|split| split.tokens.map(spread)));
        rows.push(row(&format!("longer than {max_length} tokens, cut"), &|split| {
            split.truncated.map(count)
        }));
    }
    rows.push(row("empty", &|split| Some(count(split.empty))));
    rows.push(row("duplicates", &|split| Some(count(split.repeated))));
    rows.push(row("also in training", &|split| {
        (split.name == "validation").then(|| count(split.seen_in_training))
    }));
    let mut lines = vec![table(&header, rows)];
    lines.extend(report.wording.clone());
    for example in &report.examples {
        lines.push(format!("\n{}\n  -> {}", example.input, example.label));
    }
    lines.join("\n")
}
