//! Texts for a language model: `lrvd eval`.

use std::path::Path;

use anyhow::{Context as _, bail};
use burn::tensor::Device;
use lrvd_bench::Result;
use lrvd_bench::adapter::{OpenOptions, SavedLanguageModel};
use lrvd_bench::data::read_texts;
use lrvd_burn::device;
use serde_json::json;

use super::Outcome;
use super::eval::{EvalArguments, open_options};
use super::table::metrics;
use crate::args::AdapterArguments;
use crate::exit::ExitStatus;
use crate::printer::{Format, Printer};

/// Loads the language model that the command line names.
pub(super) fn load(arguments: &AdapterArguments, printer: Printer) -> Result<SavedLanguageModel> {
    let policy = arguments.policy;
    if policy.cascade.is_some() || policy.tolerance.is_some() || policy.antithetic {
        bail!("`--cascade`, `--tolerance` and `--antithetic` are for classifiers only");
    }
    let device = device::open(&arguments.device)?;
    load_from(&arguments.dir, &open_options(arguments), &device, printer)
}

/// Loads the language model in `dir`, and says what a reader must know of it.
pub(super) fn load_from(
    dir: &Path,
    options: &OpenOptions,
    device: &Device,
    printer: Printer,
) -> Result<SavedLanguageModel> {
    let model = SavedLanguageModel::load(dir, options, device)?;
    model.warnings.iter().for_each(|warning| printer.note(warning));
    Ok(model)
}

/// Measures a language model on another file.
pub(super) fn eval(arguments: EvalArguments, printer: Printer) -> Outcome {
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
    let model = load(own, printer)?;
    let columns = match arguments.language.named().texts()? {
        Some(columns) => columns,
        None => model.columns().cloned().context("name the columns of the texts")?,
    };
    let rows = read_texts(file, Some(&columns), true)?;
    let (draws, seed) = (model.draws(own.draws)?, own.seed.unwrap_or(model.seed()));
    let (evaluation, notes) = model.evaluate(&rows, draws, seed)?;
    for note in &notes {
        printer.note(note);
    }
    if let Some(out) = out {
        evaluation.write_predictions(out)?;
        printer.note(&format!("predictions: {}", out.display()));
    }
    let (found, reliability) = evaluation.measures();
    match printer.format() {
        Format::Text => printer.data(&metrics(&found, &reliability))?,
        Format::Json => {
            let body = json!({
                "adapter": model.folder().display().to_string(),
                "data": file.display().to_string(),
                "rows": evaluation.rows(),
                "seed": seed,
                "metrics": found,
                "reliability": reliability,
            });
            printer.document("eval", body)?;
        }
    }
    Ok(ExitStatus::Done)
}
