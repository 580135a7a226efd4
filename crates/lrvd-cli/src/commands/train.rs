//! `lrvd train`

use anyhow::bail;
use lrvd_bench::data::Data;
use lrvd_bench::settings::{CheckpointChoice, ConfigOverrides, MethodName, Training};
use lrvd_bench::{Result, TrainOptions, TrainOutcome, UnknownName, train};
use serde_json::json;

use super::config::overrides;
use super::data::read;
use super::{Outcome, table};
use crate::args::{GlobalArguments, TrainArguments};
use crate::exit::ExitStatus;
use crate::printer::{Format, Printer};
use crate::progress::{self, Journal};
use crate::signals::stop_flag;

/// Most steps of a run, as the setting `steps` has it.
const MAX_STEPS: f64 = 1e9;
/// Version of the JSON on standard output.
const SCHEMA_VERSION: u32 = 1;

/// Trains, or continues training.
pub(super) fn run(arguments: TrainArguments, global: GlobalArguments, printer: Printer) -> Outcome {
    let logs = arguments.logs.log.clone();
    let data = read(&arguments.examples)?;
    let stop = stop_flag()?;
    let options = options(arguments, &data)?;
    let shown = progress::sink(printer, global.progress_style(), &stop);
    let mut sink = Journal::new(shown, printer, &options.out, &logs);
    let TrainOutcome { record, adapter } = train(&options, data, &stop, &mut sink)?;
    let Some(record) = record else {
        if printer.format() == Format::Json {
            let json = json!({ "schema_version": SCHEMA_VERSION, "complete": false });
            printer.json(&json)?;
        }
        printer.note("interrupted after a checkpoint; run the same command with --resume");
        return Ok(ExitStatus::Requeue);
    };
    let chosen = match (options.config.checkpoint, &record.checkpoints.best) {
        (CheckpointChoice::Best, Some(best)) => Some(best),
        _ => record.checkpoints.last.as_ref(),
    };
    match printer.format() {
        Format::Json => {
            let json = json!({
                "schema_version": SCHEMA_VERSION,
                "complete": true,
                "adapter": adapter,
                "record": record,
            });
            printer.json(&json)?;
        }
        Format::Text => {
            if let Some(chosen) = chosen {
                printer.data(&table::metrics(&chosen.metrics, &chosen.reliability))?;
                printer.data(&format!(
                    "step {}: total rank {}, {:.2} per module ({:.0} % of the start), \
                     {} trainable values",
                    chosen.step,
                    chosen.total_rank,
                    chosen.average_rank,
                    chosen.percent_rank,
                    table::count(
                        (record.trainable_parameters.trained() + record.trainable_parameters.head)
                            as usize
                    ),
                ))?;
            }
        }
    }
    printer.note(&format!("adapter: {}", adapter.display()));
    Ok(ExitStatus::Done)
}

/// The settings that the command line asks for, whatever they are for.
fn settings(arguments: &TrainArguments, training: Training) -> Result<ConfigOverrides> {
    let mut config = overrides(&arguments.settings, Some(training))?;
    let counts = [
        ("steps", arguments.steps),
        ("patience", arguments.patience),
        ("batch_size", arguments.batch_size),
        ("initial_rank", arguments.rank),
        ("max_length", arguments.max_length),
    ];
    for (key, value) in counts {
        if let Some(value) = value {
            config.set_count(key, value)?;
        }
    }
    if let Some(rate) = arguments.learning_rate {
        config.assign(&format!("learning_rate={rate:e}"))?;
    }
    Ok(config)
}

/// As many steps as `epochs` passes over `rows` take.
fn set_epochs(config: &mut ConfigOverrides, epochs: f64, rows: usize) -> Result<()> {
    let batch = config.count("batch_size").unwrap_or(1).max(1);
    let steps = epochs * rows.div_ceil(batch) as f64;
    if steps > MAX_STEPS {
        bail!(
            "`--epochs {epochs:e}` is {steps:.3e} steps of {batch} rows, the limit is {MAX_STEPS:e}"
        );
    }
    config.set_count("steps", (steps.ceil() as usize).max(1))
}

/// The method called `name`, which must be one of those that `suit`.
fn named(name: &str, suit: impl Fn(MethodName) -> bool) -> Result<MethodName> {
    let known = MethodName::from_name(name).filter(|method| suit(*method));
    let names = || MethodName::saved().filter(|method| suit(*method)).map(MethodName::name);
    Ok(known.ok_or_else(|| UnknownName::new("method", name, names()))?)
}

/// What is trained on `data`, and how.
fn options(arguments: TrainArguments, data: &Data) -> Result<TrainOptions> {
    let (training, rows) = match data {
        Data::Labelled(data) => (Training::Classifier, data.train.rows()),
        Data::Texts(data) => (Training::Language, data.train.rows()),
    };
    let mut config = settings(&arguments, training)?;
    if let Data::Labelled(_) = data {
        if let Some(template) = &arguments.examples.template {
            config.set_text("wording.template", template)?;
        }
        if !arguments.examples.answers.is_empty() {
            config.set_texts("wording.answers", &arguments.examples.answers)?;
        }
    }
    if let Some(epochs) = arguments.epochs {
        set_epochs(&mut config, epochs, rows)?;
    }
    let config = config.finish()?;
    // A temperature belongs to the last model, and numbers have none.
    let is_tempered = match data {
        Data::Texts(_) => false,
        Data::Labelled(data) => {
            config.checkpoint != CheckpointChoice::Best && !data.kind.goal.is_regression()
        }
    };
    let method = match (&arguments.method, training) {
        (Some(name), Training::Language) => named(name, MethodName::is_for_language)?,
        (Some(name), Training::Classifier) => named(name, |method| method.can().saved)?,
        (None, _) if is_tempered => MethodName::LORA.tempered(),
        (None, _) => MethodName::LORA,
    };
    Ok(TrainOptions {
        model: arguments.model,
        method,
        target_rank: arguments.target_rank,
        config,
        seed: arguments.seed,
        device: arguments.device,
        out: arguments.out,
        resume: arguments.resume,
    })
}
