//! `lrvd bench glue`

use lrvd_bench::BenchError;
use lrvd_bench::experiment::Preset;
use lrvd_bench::glue::{GlueOptions, Profile, planned, resolve_config, run_glue};
use lrvd_bench::method::MethodName;
use lrvd_bench::task::GlueTask;

use super::Outcome;
use crate::args::{GlobalArguments, GlueArguments};
use crate::exit::ExitStatus;
use crate::printer::{Format, Printer};
use crate::progress::Progress;
use crate::signals::stop_flag;

/// Runs or describes the reproduction.
pub(super) fn run(arguments: GlueArguments, global: GlobalArguments, printer: Printer) -> Outcome {
    let dry_run = arguments.dry_run;
    let options = options(arguments)?;
    if dry_run {
        printer.data(&planned(options.clone())?);
        printer.data(&serde_json::to_string_pretty(&resolve_config(&options)?)?);
        return Ok(ExitStatus::Done);
    }
    let stop = stop_flag()?;
    let out = options.out.clone();
    let mut progress = Progress::new(printer, !global.no_progress && !global.quiet);
    let outcome = run_glue(options, &stop, &mut progress)?;
    match printer.format() {
        Format::Json => printer.data(&std::fs::read_to_string(out.join("results.json"))?),
        Format::Text => {
            printer.data(&outcome.table);
            if let Some(comparison) = &outcome.comparison {
                printer.data(comparison);
            }
        }
    }
    printer.note(&format!("report: {}", outcome.report.display()));
    if outcome.complete {
        Ok(ExitStatus::Done)
    } else {
        printer.note("interrupted after a checkpoint; run the same command with --resume");
        Ok(ExitStatus::Requeue)
    }
}

fn options(arguments: GlueArguments) -> Result<GlueOptions, Box<dyn std::error::Error>> {
    let unknown = |what, found: &str, wanted: Vec<&str>| BenchError::Unknown {
        what,
        found: found.to_owned(),
        wanted: wanted.join(", "),
    };
    let profile = Profile::from_name(&arguments.profile).ok_or_else(|| {
        unknown("profile", &arguments.profile, Profile::ALL.iter().map(|p| p.name()).collect())
    })?;
    let preset = Preset::from_name(&arguments.preset).ok_or_else(|| {
        unknown("preset", &arguments.preset, Preset::ALL.iter().map(|p| p.name()).collect())
    })?;
    let tasks = arguments
        .tasks
        .iter()
        .map(|name| name.parse::<GlueTask>())
        .collect::<Result<Vec<_>, _>>()?;
    let methods = arguments
        .methods
        .iter()
        .map(|name| {
            MethodName::from_name(name).ok_or_else(|| {
                unknown("method", name, MethodName::ALL.iter().map(|m| m.name()).collect())
            })
        })
        .collect::<Result<Vec<_>, _>>()?;
    let mut options = GlueOptions::new(profile, arguments.out);
    options.preset = preset;
    options.tasks = tasks;
    if !methods.is_empty() {
        options.methods = methods;
    }
    options.seeds = arguments.seeds;
    options.device = arguments.device;
    options.model = arguments.model;
    options.data_dir = arguments.data_dir;
    options.resume = arguments.resume;
    options.compare = arguments.compare;
    options.steps = arguments.steps;
    options.command = std::env::args().collect::<Vec<_>>().join(" ");
    Ok(options)
}
