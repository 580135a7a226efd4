//! `lrvd study NAME`

use lrvd_bench::UnknownName;
use lrvd_bench::study::{Size, StudyOptions, StudyOutcome, named, plan_study, run_study};
use lrvd_bench::suite::Suite;

use super::Outcome;
use super::table::table;
use crate::args::{GlobalArguments, StudyArguments};
use crate::exit::ExitStatus;
use crate::printer::{Format, Printer};
use crate::progress::{self, Journal};
use crate::signals::stop_flag;

/// Runs or describes a study.
pub(super) fn run(arguments: StudyArguments, global: GlobalArguments, printer: Printer) -> Outcome {
    let (dry_run, logs) = (arguments.dry_run, arguments.logs.log.clone());
    let options = options(arguments)?;
    if dry_run {
        let plan = plan_study(&options)?;
        match printer.format() {
            Format::Json => printer.data(&serde_json::to_string_pretty(&plan)?)?,
            Format::Text => printer.data(&plan.render_text())?,
        }
        return Ok(ExitStatus::Done);
    }
    let stop = stop_flag()?;
    let shown = progress::sink(printer, global.progress_style(), &stop);
    let mut sink = Journal::new(shown, printer, &options.out, &logs);
    let outcome = run_study(&options, &stop, &mut sink)?;
    drop(sink); // gives the screen back
    match printer.format() {
        Format::Json => printer.data(&serde_json::to_string_pretty(&outcome)?)?,
        Format::Text => printer.data(&text(&outcome))?,
    }
    printer.note(&format!("page: {}", outcome.page.display()));
    if outcome.complete {
        return Ok(ExitStatus::Done);
    }
    let (finished, planned) = (outcome.finished, outcome.planned);
    printer.note(&format!(
        "interrupted after a checkpoint, {finished} of {planned} runs finished; run the same command with --resume"
    ));
    Ok(ExitStatus::Requeue)
}

fn text(outcome: &StudyOutcome) -> String {
    let mut parts = Vec::new();
    if let Some((header, rows)) = outcome.rows.split_first() {
        let header: Vec<&str> = header.iter().map(String::as_str).collect();
        parts.push(table(&header, rows.to_vec()));
    }
    for claim in &outcome.claims {
        let (verdict, because) = (claim.judgement.verdict, claim.judgement.because.join("\n  "));
        parts.push(format!("{}: {verdict}\n  {}\n  {because}", claim.id, claim.sentence));
    }
    parts.join("\n\n")
}

fn options(arguments: StudyArguments) -> Result<StudyOptions, Box<dyn std::error::Error>> {
    let study = named(&arguments.name)?;
    let size = Size::from_name(&arguments.size)
        .ok_or_else(|| UnknownName::new("size", &arguments.size, Size::ALL.map(Size::name)))?;
    let tasks = arguments.tasks.iter().map(|name| Suite::Glue.task(name));
    let out = arguments
        .out
        .unwrap_or_else(|| ["runs".to_owned(), format!("study-{}", study.name)].iter().collect());
    Ok(StudyOptions {
        size,
        tasks: tasks.collect::<Result<Vec<_>, _>>()?,
        data_dir: arguments.data_dir,
        model: arguments.model,
        arms: arguments.arms,
        seeds: arguments.seeds,
        steps: arguments.steps,
        set: arguments.set,
        device: arguments.device,
        resume: arguments.resume,
        command: std::env::args().collect::<Vec<_>>().join(" "),
        // Set by `cargo xtask`; a build by hand does not know.
        git_revision: option_env!("LRVD_GIT_REVISION").map(str::to_owned),
        ..StudyOptions::new(study, out)
    })
}
