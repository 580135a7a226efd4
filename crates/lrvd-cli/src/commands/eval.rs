//! `lrvd eval`

use std::collections::BTreeMap;

use anyhow::bail;
use lrvd_bench::Result;
use lrvd_bench::adapter::{
    Adapter, Evaluation, LoadOptions, OpenOptions, SavedClassifier, evaluate,
};
use lrvd_bench::data::Split;
use lrvd_bench::record::{Metrics, Reliability};
use lrvd_bench::task::Task;
use lrvd_burn::device;
use serde::Serialize;

use super::{Outcome, language, table};
use crate::args::{ClassifierArguments, EvalArguments, InputColumns};
use crate::exit::ExitStatus;
use crate::printer::{Format, Printer};

/// The JSON on standard output.
#[derive(Serialize)]
struct Report<'a> {
    schema_version: u32,
    adapter: String,
    data: String,
    rows: usize,
    labels: &'a [String],
    seed: u64,
    metrics: &'a BTreeMap<u32, Metrics>,
    reliability: &'a BTreeMap<u32, Reliability>,
}

/// Evaluates and prints.
pub(super) fn run(arguments: EvalArguments, printer: Printer) -> Outcome {
    if Adapter::is_for_texts(&arguments.classifier.dir)? {
        return language::eval(arguments, printer);
    }
    let asked = arguments.classifier.draws;
    let numbers = |classifier: &SavedClassifier| classifier.draws(asked);
    let Evaluated { classifier, data, seed, evaluation, .. } =
        evaluated(&arguments, |_, _| Ok(()), numbers, printer)?;
    let metrics: BTreeMap<u32, Metrics> =
        evaluation.scored.iter().map(|(k, s)| (*k, s.metrics.clone())).collect();
    let reliability: BTreeMap<u32, Reliability> =
        evaluation.scored.iter().filter_map(|(k, s)| Some((*k, s.reliability.clone()?))).collect();
    match printer.format() {
        Format::Text => printer.data(&table::metrics(&metrics, &reliability))?,
        Format::Json => {
            let report = Report {
                schema_version: 1,
                adapter: classifier.folder().display().to_string(),
                data,
                rows: evaluation.rows(),
                labels: &classifier.info.goal.classes,
                seed,
                metrics: &metrics,
                reliability: &reliability,
            };
            printer.json(&report)?;
        }
    }
    Ok(ExitStatus::Done)
}

/// A classifier with its answers to labelled examples.
pub(super) struct Evaluated {
    pub(super) classifier: SavedClassifier,
    /// Name of the examples.
    pub(super) data: String,
    pub(super) labelled: Split,
    pub(super) draws: usize,
    pub(super) seed: u64,
    pub(super) evaluation: Evaluation,
}

/// Evaluates what the command line names at the mean and at as many draws as `numbers` says, if `check` passes, and writes the
/// predictions if it asks for them.
pub(super) fn evaluated(
    arguments: &EvalArguments,
    check: impl FnOnce(&SavedClassifier, &Split) -> Result<()>,
    numbers: impl FnOnce(&SavedClassifier) -> Result<usize>,
    printer: Printer,
) -> Result<Evaluated> {
    let out = arguments.out()?;
    let classifier = load(&arguments.classifier, printer)?;
    let (data, labelled) = labelled(&classifier, arguments)?;
    check(&classifier, &labelled)?;
    let draws = numbers(&classifier)?;
    let seed = arguments.classifier.seed.unwrap_or(classifier.info.run.seed);
    let evaluation = evaluate(&classifier, &labelled.examples, draws, seed)?;
    if let Some(file) = out {
        evaluation.write_predictions(file)?;
        printer.note(&format!("predictions: {}", file.display()));
    }
    Ok(Evaluated { classifier, data, labelled, draws, seed, evaluation })
}

/// The labelled examples that the command line names, and their name.
fn labelled(classifier: &SavedClassifier, arguments: &EvalArguments) -> Result<(String, Split)> {
    Ok(match (&arguments.task, &arguments.data_dir, &arguments.data) {
        (Some(task), Some(folder), _) => {
            let task = Task::named_glue(task)?;
            (task.name().to_owned(), classifier.read_task(task, folder)?)
        }
        (_, _, Some(file)) => {
            let InputColumns { text_column, pair_column, choice_columns } =
                arguments.columns.clone();
            let label_column = arguments.label_column.clone();
            let columns =
                classifier.columns().with(text_column, pair_column, label_column, choice_columns);
            (file.display().to_string(), classifier.read_examples(file, &columns)?)
        }
        _ => bail!("pass --data, or --task and --data-dir"),
    })
}

/// Draws of an answer that is given: the mean where the command line names no number, unless it says how draws are made.
pub(super) fn draws(
    arguments: &ClassifierArguments,
    classifier: &SavedClassifier,
) -> Result<usize> {
    let is_spared = arguments.policy.policy().asked().is_some();
    classifier.draws(arguments.draws.or((!is_spared).then_some(0)))
}

/// Loads the classifier that the command line names.
pub(super) fn load(arguments: &ClassifierArguments, printer: Printer) -> Result<SavedClassifier> {
    let device = device::open(&arguments.device)?;
    let policy = arguments.policy.policy();
    let options = LoadOptions { open: open_options(arguments), policy, precision: None };
    let classifier = SavedClassifier::load(&arguments.dir, &options, &device)?;
    classifier.warnings.iter().for_each(|note| printer.note(note));
    Ok(classifier)
}

/// How the adapter that the command line names is opened.
pub(super) fn open_options(arguments: &ClassifierArguments) -> OpenOptions {
    OpenOptions {
        model: arguments.model.clone(),
        allow_other_base: arguments.allow_other_base,
        allow_changed: arguments.allow_changed,
    }
}
