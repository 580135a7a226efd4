//! `lrvd compare`

use std::path::{Path, PathBuf};

use anyhow::bail;
use clap::Args;
use lrvd_bench::adapter::{Adapter, ComparedModel, OpenOptions, compare_models, evaluate};
use lrvd_bench::data::ReadOptions;
use lrvd_bench::{Result, Verdict, decimals};
use lrvd_burn::device;
use serde_json::{Value, json};

use super::Outcome;
use super::eval::{OwnRows, load, seen};
use super::table::{count, table, words};
use crate::args::{AdapterArguments, AnswerArguments, InputColumns, heading};
use crate::exit::ExitStatus;
use crate::printer::Printer;
use crate::rows::Row;

#[derive(Debug, Args)]
pub(crate) struct CompareArguments {
    /// Outputs of `lrvd train`, or with `--data` adapter folders; two or more.
    #[arg(value_name = "DIR", required = true, num_args = 2..)]
    dirs: Vec<PathBuf>,
    /// Labelled rows that all models answer [default: the validation rows of the runs, which must be the same].
    ///
    /// `.tsv`, `.csv`, `.jsonl`, `.json` or `.parquet`.
    #[arg(long, value_name = "FILE", help_heading = heading::DATA)]
    data: Option<PathBuf>,
    #[command(flatten)]
    columns: InputColumns,
    /// Column or key of the label [default: as in training].
    #[arg(long, value_name = "NAME", requires = "data", help_heading = heading::DATA)]
    label_column: Option<String>,
    #[command(flatten)]
    reading: ReadOptions,
    #[command(flatten)]
    answers: AnswerArguments,
}

pub(super) fn run(arguments: CompareArguments, printer: Printer) -> Outcome {
    for dir in &arguments.dirs {
        if Adapter::is_for_texts(dir)? {
            bail!(
                "`{}` is a language model, and models that answer by classes, labels or numbers are compared",
                dir.display()
            );
        }
    }
    // The answers that `lrvd predict` gives with the same option.
    let draws = arguments.answers.draws.unwrap_or(0);
    let data = arguments.data.as_ref().map(|file| file.display().to_string());
    let models = match arguments.data.clone() {
        Some(file) => measured(arguments, &file, draws, printer)?,
        None => recorded(&arguments, draws, printer)?,
    };
    let verdicts = compare_models(&models)?;
    let rows = models.first().map_or(0, |model| model.metrics.n);
    let body = json!({
        "data": data,
        "rows": rows,
        "draws": draws,
        "models": models,
        "differences": verdicts,
    });
    let all = |_: &Value| {
        let mut rows = Row::each(&models)?;
        rows.extend(Row::each(&verdicts)?);
        Ok(rows)
    };
    printer.report_rows("compare", &body, all, |_| shown(&models, &verdicts, rows))?;
    Ok(ExitStatus::Done)
}

/// Models by their answers to the rows of a file.
fn measured(
    arguments: CompareArguments,
    file: &Path,
    draws: usize,
    printer: Printer,
) -> Result<Vec<ComparedModel>> {
    let CompareArguments { dirs, columns, label_column, reading, answers, .. } = arguments;
    let mut own = AdapterArguments { dir: PathBuf::new(), answers };
    let rows = OwnRows {
        columns: &columns,
        label: label_column.as_ref(),
        reading: &reading,
        strict: own.answers.open().strict,
    };
    let mut models = Vec::new();
    for dir in dirs {
        own.dir = dir;
        let classifier = load(&own, printer)?;
        let draws = classifier.draws(Some(draws))?;
        let seed = own.answers.seed.unwrap_or(classifier.info.run.seed);
        let labelled = rows.read(&classifier, file, printer)?;
        let evaluation = evaluate(&classifier, &labelled.examples, draws, seed)?;
        printer.notes(evaluation.notes());
        seen(&evaluation, &classifier.seen_rows()?, printer);
        let adapter = opened(&own.dir, &own.answers.open())?;
        models.push(ComparedModel::measured(&adapter, &own.dir, &evaluation, draws)?);
    }
    Ok(models)
}

/// Models by what their runs recorded of their validation rows.
fn recorded(
    arguments: &CompareArguments,
    draws: usize,
    printer: Printer,
) -> Result<Vec<ComparedModel>> {
    let InputColumns { text_column, pair_column, choice_columns } = &arguments.columns;
    let answers = &arguments.answers;
    let is_asked = answers.seed.is_some()
        || answers.max_length.is_some()
        || answers.policy().needs_draws().is_some()
        || answers.device.is_automatic()
        || text_column.is_some()
        || pair_column.is_some()
        || !choice_columns.is_empty();
    if is_asked {
        bail!(
            "without `--data` no model is asked: leave out options of models, columns and answers"
        );
    }
    let mut models = Vec::new();
    for dir in &arguments.dirs {
        let adapter = opened(dir, &answers.open())?;
        printer.notes(&ComparedModel::used_validation(&adapter)?);
        models.push(ComparedModel::of_run(&adapter, dir, draws)?);
    }
    Ok(models)
}

fn opened(dir: &Path, options: &OpenOptions) -> Result<Adapter> {
    Adapter::open(dir, options, &device::open("cpu")?)
}

fn shown(models: &[ComparedModel], verdicts: &[Verdict], rows: u64) -> String {
    let digits = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |v| decimals(v, 4));
    let has_numbers = models.iter().any(|model| model.metrics.standard.contains_key("mse"));
    let mut header = vec!["model", "method"];
    header.extend(if has_numbers { &["mse"][..] } else { &["accuracy", "NLL", "ECE"] });
    header.extend(["rank", "in adapters", "seconds", "KiB"]);
    let row = |model: &ComparedModel| {
        let metrics = &model.metrics;
        let mut cells = vec![model.folder.clone(), model.method.clone()];
        if has_numbers {
            cells.push(digits(metrics.standard.get("mse").copied().flatten()));
        } else {
            cells.extend([metrics.accuracy, metrics.nll, metrics.ece].map(digits));
        }
        cells.push(count(model.total_rank));
        cells.push(count(model.adapter_parameters));
        cells.push(model.train_seconds.map_or_else(|| "-".to_owned(), |s| format!("{s:.0}")));
        cells.push(count(model.bytes.div_ceil(1024) as usize));
        cells
    };
    let models = table(&header, models.iter().map(row).collect());
    let keep = |cells: Vec<String>| {
        let mut cells = cells;
        // The task, which models do not have.
        cells.remove(1);
        cells
    };
    let heading = Verdict::HEADING.into_iter().filter(|name| *name != "task").collect::<Vec<_>>();
    let differences = words(&heading, verdicts.iter().map(Verdict::cells).map(keep).collect());
    format!(
        "{models}\n\n{differences}\n\nDifferences are paired by the {rows} rows; 95 % intervals, each by itself; p by Holm's method \
         over all tests of the table. They are about these models, not about their methods: a second seed is another model."
    )
}
