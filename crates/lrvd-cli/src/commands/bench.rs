//! `lrvd bench glue` and `lrvd bench reasoning`

use lrvd_bench::Result;
use lrvd_bench::UnknownName;
use lrvd_bench::settings::MethodName;
use lrvd_bench::suite::{
    Arms, Profile, Suite, SuiteOptions, planned, planned_arms, run_arms, run_suite,
};

use super::Outcome;
use crate::args::{BenchCommand, GlobalArguments, Keep, SuiteArguments};
use crate::exit::ExitStatus;
use crate::printer::{Format, Printer};
use crate::progress::{self, Journal};
use crate::signals::stop_flag;

/// Runs or describes a reproduction.
pub(super) fn run(command: BenchCommand, global: GlobalArguments, printer: Printer) -> Outcome {
    let (suite, arguments) = match command {
        BenchCommand::Glue(arguments) => (Suite::Glue, arguments),
        BenchCommand::Reasoning(arguments) => (Suite::Reasoning, arguments),
    };
    let (dry_run, logs) = (arguments.dry_run, arguments.logs.log.clone());
    let arms = arguments.arms.as_deref().map(Arms::read).transpose()?;
    let options = options(suite, arguments)?;
    if dry_run && let Some(arms) = &arms {
        let plan = planned_arms(arms, &options)?;
        match printer.format() {
            Format::Json => printer.json(&plan)?,
            Format::Text => printer.data(&plan.render_text())?,
        }
        return Ok(ExitStatus::Done);
    }
    if dry_run {
        let plan = planned(options)?;
        match printer.format() {
            Format::Json => printer.json(&plan)?,
            Format::Text => {
                printer.data(&plan.render_text())?;
                printer.json(&plan.settings)?;
            }
        }
        return Ok(ExitStatus::Done);
    }
    let stop = stop_flag()?;
    let out = options.out.clone();
    let shown = progress::sink(printer, global.progress_style(), &stop);
    let mut sink = Journal::new(shown, printer, &out, &logs);
    let outcome = match &arms {
        Some(arms) => run_arms(arms, &options, &stop, &mut sink)?.suite,
        None => run_suite(options, &stop, &mut sink)?,
    };
    drop(sink); // gives the screen back
    match printer.format() {
        Format::Json => printer.json_text(&std::fs::read_to_string(out.join("results.json"))?)?,
        Format::Text => {
            for text in outcome.table.iter().chain(&outcome.comparison).chain(&outcome.verdict) {
                printer.data(text)?;
            }
        }
    }
    printer.note(&format!("report: {}", outcome.report.display()));
    if outcome.complete {
        Ok(ExitStatus::Done)
    } else {
        let (finished, planned) = (outcome.finished, outcome.planned);
        printer.note(&format!(
            "interrupted after a checkpoint, {finished} of {planned} rows finished; run the same command with \
             --resume"
        ));
        Ok(ExitStatus::Requeue)
    }
}

fn options(suite: Suite, arguments: SuiteArguments) -> Result<SuiteOptions> {
    let profile = Profile::from_name(&arguments.profile).ok_or_else(|| {
        UnknownName::new("profile", &arguments.profile, Profile::ALL.map(Profile::name))
    })?;
    let named = |name: &String| {
        let known = || suite.presets().iter().map(|preset| preset.name());
        suite.preset(name).ok_or_else(|| UnknownName::new("preset", name, known()))
    };
    let preset = arguments.preset.as_ref().map(named).transpose()?;
    let tasks =
        arguments.tasks.iter().map(|name| suite.task(name)).collect::<Result<Vec<_>, _>>()?;
    let mut methods = Vec::new();
    for name in &arguments.methods {
        if name.eq_ignore_ascii_case("all") {
            methods.extend(MethodName::all());
            continue;
        }
        methods.push(MethodName::from_name(name).ok_or_else(|| {
            UnknownName::new("method", name, MethodName::all().map(MethodName::key))
        })?);
    }
    let out = arguments.out.unwrap_or_else(|| ["runs", suite.name()].iter().collect());
    let mut options = SuiteOptions::new(suite, profile, out);
    options.preset = preset.unwrap_or(options.preset);
    options.tasks = tasks;
    options.methods = methods;
    options.seeds = arguments.seeds;
    options.device = arguments.device;
    options.model = arguments.model;
    options.data_dir = arguments.data_dir;
    options.resume = arguments.resume;
    options.keep = arguments.keep == Keep::Adapters;
    options.compare = arguments.compare;
    options.steps = arguments.steps;
    options.config = arguments.config;
    options.set = arguments.set;
    options.draws = (!arguments.draws.is_empty()).then_some(arguments.draws);
    // Set by `cargo xtask`; a build by hand does not know.
    options.git_revision = option_env!("LRVD_GIT_REVISION").map(str::to_owned);
    options.command = std::env::args().collect::<Vec<_>>().join(" ");
    Ok(options)
}
