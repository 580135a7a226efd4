//! `lrvd train`

use lrvd_bench::UnknownName;
use lrvd_bench::classify::{TrainOptions, train_classifier};
use lrvd_bench::settings::{CheckpointChoice, MethodName};
use serde_json::json;

use super::config::overrides;
use super::data::source;
use super::{Outcome, table};
use crate::args::{GlobalArguments, TrainArguments};
use crate::exit::ExitStatus;
use crate::printer::{Format, Printer};
use crate::progress::{self, Journal};
use crate::signals::stop_flag;

/// Version of the JSON on standard output.
const SCHEMA_VERSION: u32 = 1;

/// Trains, or goes on training.
pub(super) fn run(arguments: TrainArguments, global: GlobalArguments, printer: Printer) -> Outcome {
    let logs = arguments.logs.log.clone();
    let options = options(arguments)?;
    let stop = stop_flag()?;
    let shown = progress::sink(printer, global.progress_style(), &stop);
    let mut sink = Journal::new(shown, printer, &options.out, &logs);
    let outcome = train_classifier(&options, &stop, &mut sink)?;
    drop(sink); // gives the screen back
    let Some(record) = outcome.record else {
        if printer.format() == Format::Json {
            let json = json!({ "schema_version": SCHEMA_VERSION, "complete": false });
            printer.data(&serde_json::to_string_pretty(&json)?)?;
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
                "adapter": outcome.adapter,
                "record": record,
            });
            printer.data(&serde_json::to_string_pretty(&json)?)?;
        }
        Format::Text => {
            if let Some(chosen) = chosen {
                printer.data(&table::metrics(&chosen.metrics))?;
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
    printer.note(&format!("adapter: {}", outcome.adapter.display()));
    Ok(ExitStatus::Done)
}

fn options(arguments: TrainArguments) -> Result<TrainOptions, Box<dyn std::error::Error>> {
    let mut config = overrides(&arguments.settings)?;
    let counts = [
        ("steps", arguments.steps),
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
    if let Some(template) = &arguments.examples.template {
        config.set_text("wording.template", template)?;
    }
    if !arguments.examples.answers.is_empty() {
        config.set_texts("wording.answers", &arguments.examples.answers)?;
    }
    let data = source(arguments.examples)?;
    if let Some(epochs) = arguments.epochs {
        let batch = config.count("batch_size").unwrap_or(1).max(1);
        let steps = epochs * data.read()?.train.len().div_ceil(batch) as f64;
        config.set_count("steps", (steps.ceil() as usize).max(1))?;
    }
    let config = config.finish()?;
    let method = match &arguments.method {
        Some(name) => {
            let known = MethodName::from_name(name).filter(|method| method.can().saved);
            let names = || MethodName::saved().map(MethodName::name);
            known.ok_or_else(|| UnknownName::new("method", name, names()))?
        }
        // A temperature belongs to the last model.
        None if config.checkpoint == CheckpointChoice::Best => MethodName::BAYES_LORA,
        None => MethodName::BAYES_LORA.tempered(),
    };
    Ok(TrainOptions {
        model: arguments.model,
        data,
        method,
        target_rank: arguments.target_rank,
        config,
        seed: arguments.seed,
        device: arguments.device,
        out: arguments.out,
        resume: arguments.resume,
    })
}
