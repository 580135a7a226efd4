//! `lrvd bench glue` and `lrvd bench reasoning`

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::bail;
use clap::{ArgAction, Args, Subcommand};
use lrvd_bench::Result;
use lrvd_bench::adapter::named_at;
use lrvd_bench::method::MethodName;
use lrvd_bench::suite::{
    Arms, DEAD_AFTER, DryRun, Profile, RunState, RunStatus, Step, Suite, SuiteOptions,
    SuiteOutcome, Worker, WorkerName, WorkerOptions, collect, run_suite, status, write_plan,
};
use lrvd_burn::files::{host_name, is_there};
use serde_json::json;

use super::table::table;
use super::{Outcome, help};
use crate::args::{self, DeviceArgument, GlobalArguments, heading};
use crate::exit::{ExitStatus, run_flag};
use crate::printer::{Format, Printer};
use crate::progress::{self, Journal};
use crate::rows::Row;

#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// GLUE with LoRA, AdaLoRA and BayesLoRA: accuracy, learnt rank, time, calibration, a report.
    #[command(after_long_help = help::text(include_str!("help/bench-glue.txt")))]
    Glue(SuiteArguments),
    /// Six multiple-choice sets with every uncertainty method: accuracy, calibration, parameters.
    #[command(after_long_help = help::text(include_str!("help/bench-reasoning.txt")))]
    Reasoning(SuiteArguments),
    /// Make one run of a plan, or all that no other worker has.
    #[command(after_long_help = help::text(include_str!("help/bench-run.txt")))]
    Run(RunArguments),
    /// Show what has become of the runs of a plan.
    #[command(after_long_help = help::text(include_str!("help/bench-status.txt")))]
    Status {
        /// Folder of the plan.
        #[arg(value_name = "DIR")]
        out: PathBuf,
        #[command(flatten)]
        alive: AliveArguments,
    },
    /// Write the report of the runs of a plan that are finished.
    #[command(after_long_help = help::text(include_str!("help/bench-collect.txt")))]
    Collect {
        /// Folder of the plan.
        #[arg(value_name = "DIR")]
        out: PathBuf,
    },
}

#[derive(Debug, Args)]
pub(crate) struct SuiteArguments {
    /// Size of the benchmark.
    ///
    /// `quick`: minutes on two cores with a shipped tiny model; `paper`: the full reproduction.
    #[arg(long, default_value = "quick", value_parser = args::one_of(&Profile::ALL, Profile::name), help_heading = heading::TRAINING)]
    pub(crate) profile: Profile,
    /// Named settings, of the list in `--help` [default: `default`].
    #[arg(long, value_name = "NAME", help_heading = heading::TRAINING)]
    pub(crate) preset: Option<String>,
    /// Tasks or sets, of the list in `--help` [default: the profile's].
    #[arg(long, value_delimiter = ',', value_name = "A,B", help_heading = heading::DATA)]
    pub(crate) tasks: Vec<String>,
    /// Methods, of `lrvd methods`, or `all` [default: the benchmark's].
    #[arg(long, value_delimiter = ',', value_name = "A,B", help_heading = heading::METHOD)]
    pub(crate) methods: Vec<String>,
    /// Seeds [default: the profile's, three in `paper`].
    #[arg(long, value_delimiter = ',', value_name = "1,2,3", value_parser = args::seed(), allow_negative_numbers = true, help_heading = heading::TRAINING)]
    pub(crate) seeds: Vec<u64>,
    /// Numbers of draws, in addition to 0 [default: the preset's].
    ///
    /// Predictions are averaged over the draws.
    #[arg(long, value_delimiter = ',', value_name = "5,10", value_parser = args::draws(), allow_negative_numbers = true, help_heading = heading::TRAINING)]
    pub(crate) draws: Vec<usize>,
    #[command(flatten)]
    pub(crate) device: DeviceArgument,
    /// Pretrained model: a folder, a `.gguf` file or `owner/name`.
    ///
    /// `owner/name` is a repository on the Hugging Face Hub.
    #[arg(long, value_name = "DIR|GGUF|HUB-ID", help_heading = heading::MODEL)]
    pub(crate) model: Option<String>,
    /// Revision of the repository: a branch, a tag or a commit [default: main].
    #[arg(long, value_name = "REVISION", requires = "model", help_heading = heading::MODEL, hide_short_help = true)]
    pub(crate) revision: Option<String>,
    /// Folder of the data [default: generated].
    ///
    /// Data in their original layouts, or Hub-style parquet or JSONL. By default cola, sst2, rte and all sets but boolq are
    /// generated.
    #[arg(long, value_name = "DIR", help_heading = heading::DATA)]
    pub(crate) data_dir: Option<PathBuf>,
    /// Output folder [default: runs/glue or runs/reasoning].
    #[arg(long, value_name = "DIR", help_heading = heading::OUTPUT)]
    pub(crate) out: Option<PathBuf>,
    /// Parts of trained models to keep.
    ///
    /// Adapters with their posteriors are for `lrvd predict`, `eval`, `inspect` and `export`.
    #[arg(long, action = ArgAction::Set, default_value = "adapters", value_name = "WHAT", value_parser = args::one_of(&[true, false], kept), help_heading = heading::OUTPUT)]
    pub(crate) keep: bool,
    /// Continue in an output folder with finished or interrupted runs.
    #[arg(long, help_heading = heading::OUTPUT)]
    pub(crate) resume: bool,
    /// Published table (`metric,method,task,mean,std`) to compare with the measured one.
    #[arg(long, value_name = "CSV", help_heading = heading::OUTPUT, hide_short_help = true)]
    pub(crate) compare: Option<PathBuf>,
    /// Optimizer steps instead of the profile's.
    #[arg(long, value_name = "N", value_parser = args::count(), allow_negative_numbers = true, help_heading = heading::TRAINING)]
    pub(crate) steps: Option<usize>,
    /// Settings that differ from preset and profile; an unknown key is an error.
    #[arg(long, value_name = "FILE.toml", help_heading = heading::TRAINING)]
    pub(crate) config: Option<PathBuf>,
    /// One setting, as in `prompt=clean`; may be repeated.
    ///
    /// Others are `prediction_draws=fresh`, `base_precision=f16` or `methods.laplace.predictive=probit`.
    #[arg(long, value_name = "KEY=VALUE", help_heading = heading::TRAINING)]
    pub(crate) set: Vec<String>,
    /// Compare settings in pairs: a run of the suite for each arm.
    #[arg(long, value_name = "FILE.toml", conflicts_with_all = ["profile", "preset", "methods", "compare"], help_heading = heading::TRAINING)]
    pub(crate) arms: Option<PathBuf>,
    /// Write the plan of all runs into this folder; nothing is trained.
    ///
    /// Workers share the folder.
    #[arg(long, value_name = "DIR", conflicts_with = "out", help_heading = heading::CLUSTER)]
    pub(crate) plan: Option<PathBuf>,
    /// Print runs, parameters, memory and settings without training.
    ///
    /// The paper's model need not be installed.
    #[arg(long, help_heading = heading::OUTPUT)]
    pub(crate) dry_run: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RunArguments {
    /// Folder of the plan.
    #[arg(long, value_name = "DIR")]
    pub(crate) plan: PathBuf,
    /// Index or id of the run [default: `SLURM_ARRAY_TASK_ID` or `JOB_COMPLETION_INDEX`, otherwise all].
    #[arg(long, value_name = "INDEX|ID")]
    pub(crate) index: Option<String>,
    /// All runs, also within a job array.
    #[arg(long, conflicts_with = "index")]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) alive: AliveArguments,
}

/// When a worker counts as dead.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct AliveArguments {
    /// Seconds without a sign of life after which another worker counts as dead.
    #[arg(long, value_name = "SECONDS", default_value_t = DEAD_AFTER.as_secs(), value_parser = clap::value_parser!(u64).range(1..=86_400))]
    dead_after: u64,
}

/// The values of `--keep`: adapters with their posteriors, or nothing.
fn kept(adapters: bool) -> &'static str {
    if adapters { "adapters" } else { "none" }
}

pub(super) fn run(command: BenchCommand, global: GlobalArguments, printer: Printer) -> Outcome {
    match command {
        BenchCommand::Glue(arguments) => suite(Suite::Glue, arguments, global, printer),
        BenchCommand::Reasoning(arguments) => suite(Suite::Reasoning, arguments, global, printer),
        BenchCommand::Run(arguments) => work(arguments, global, printer),
        BenchCommand::Status { out, alive } => {
            show_status(&out, Duration::from_secs(alive.dead_after), printer)
        }
        BenchCommand::Collect { out } => {
            let outcome = collect(&out)?;
            report(&outcome, &out, printer)?;
            if !outcome.is_complete() {
                let SuiteOutcome { finished, planned, .. } = outcome;
                printer.note(&format!("{finished} of {planned} rows are finished"));
            }
            Ok(ExitStatus::Done)
        }
    }
}

fn suite(
    suite: Suite,
    arguments: SuiteArguments,
    global: GlobalArguments,
    printer: Printer,
) -> Outcome {
    let dry_run = arguments.dry_run;
    let arms = arguments.arms.as_deref().map(Arms::read).transpose()?;
    let plans = arguments.plan.is_some();
    if plans && arguments.device.is_automatic() {
        bail!(
            "`--device auto` is the device of this machine, and workers run elsewhere: name a device"
        );
    }
    let device = arguments.device.name(printer);
    let options = options(suite, device, arguments)?;
    if dry_run {
        return describe(&options, arms.as_ref(), printer);
    }
    let stop = run_flag(printer)?;
    let out = options.out.clone();
    let mut shown = progress::sink(printer, global.progress_style(), &stop);
    if plans {
        let plan = write_plan(&options, arms.as_ref(), &mut *shown)?;
        drop(shown);
        let place = out.display();
        printer.note(&format!("{} runs are planned: {place}/plan/runs.jsonl", plan.runs.len()));
        printer.note(&format!("`lrvd bench run --plan {place} --all` makes them"));
        return Ok(ExitStatus::Done);
    }
    let folder = out.clone();
    let mut sink = Journal::new(shown, printer, move |_| folder.clone());
    let worker = WorkerOptions::alone(worker_name());
    let outcome =
        run_suite(&options, arms.as_ref(), worker, &stop, &mut |event| sink.event(event))?;
    drop(sink); // gives the screen back
    report(&outcome, &out, printer)?;
    if outcome.is_complete() {
        return Ok(ExitStatus::Done);
    }
    let SuiteOutcome { finished, planned, .. } = outcome;
    printer.note(&format!(
        "interrupted after a checkpoint, {finished} of {planned} rows finished; run the same command with --resume"
    ));
    Ok(ExitStatus::Requeue)
}

/// Prints what would be trained.
fn describe(options: &SuiteOptions, arms: Option<&Arms>, printer: Printer) -> Outcome {
    let plans = DryRun::of(options, arms)?;
    if arms.is_some() {
        printer.show(&BTreeMap::from([("arms", &plans)]), |_| {
            let runs = plans.iter().flat_map(|plan| {
                let arm = plan.arm.iter().cloned();
                arm.chain(plan.runs.iter().map(|run| format!("  {run}")))
            });
            Ok(runs.collect::<Vec<_>>().join("\n"))
        })?;
    } else if let [plan] = &plans[..] {
        printer.show(plan, |plan| {
            let settings = serde_json::to_string_pretty(&plan.settings)?;
            Ok(format!("{}\n{settings}", plan.render_text()?))
        })?;
    }
    Ok(ExitStatus::Done)
}

/// Prints the tables, and where the report is.
fn report(outcome: &SuiteOutcome, out: &Path, printer: Printer) -> Result<()> {
    match printer.format() {
        Format::Json => printer.json_text(&fs::read_to_string(out.join("results.json"))?)?,
        _ => {
            for text in outcome.table.iter().chain(&outcome.comparison).chain(&outcome.verdict) {
                printer.data(text)?;
            }
        }
    }
    printer.note(&format!("report: {}", outcome.report.display()));
    Ok(())
}

fn work(arguments: RunArguments, global: GlobalArguments, printer: Printer) -> Outcome {
    let RunArguments { plan: out, index, all, alive } = arguments;
    let of_engine = ["SLURM_ARRAY_TASK_ID", "JOB_COMPLETION_INDEX"];
    let index = index.or_else(|| of_engine.into_iter().filter(|_| !all).find_map(variable));
    let stop = run_flag(printer)?;
    let options = WorkerOptions {
        name: worker_name(),
        dead_after: Duration::from_secs(alive.dead_after),
        continues: true,
    };
    let mut worker = Worker::open(&out, options, &stop)?;
    let plan = worker.plan().clone();
    let place = index.map(|index| plan.find(&index)).transpose()?;
    let shown = progress::sink(printer, global.progress_style(), &stop);
    let runs = plan.clone();
    let folder = move |label: &str| out.join(runs.folder_of(label));
    let mut sink = Journal::new(shown, printer, folder);
    let step = match place {
        Some(place) => worker.run(place, &mut |event| sink.event(event))?,
        None => worker.run_all(&mut |event| sink.event(event))?,
    };
    drop(sink); // gives the screen back
    let run = place.map(|place| format!("{}: ", plan.runs[place].label())).unwrap_or_default();
    let (status, what) = match step {
        Step::Done => (ExitStatus::Done, "finished".to_owned()),
        Step::Needs(other) => {
            (ExitStatus::Requeue, format!("needs {other}, which is not finished"))
        }
        Step::Claimed(worker) => (ExitStatus::Requeue, format!("{worker} makes it")),
        Step::InUse(why) => (ExitStatus::Requeue, format!("waits: {why}")),
        Step::Stopped => (ExitStatus::Requeue, "interrupted after a checkpoint".to_owned()),
    };
    printer.note(&format!("{run}{what}"));
    Ok(status)
}

fn show_status(out: &Path, dead_after: Duration, printer: Printer) -> Outcome {
    let runs = status(out, worker_name(), dead_after)?;
    let body = BTreeMap::from([("runs", &runs)]);
    printer.report_rows(
        "bench status",
        &body,
        |_| Row::each(&runs),
        |_| {
            let mut counts = BTreeMap::new();
            let mut row = |run: &RunStatus| {
                *counts.entry(run.state).or_insert(0) += 1;
                let step = format!("{} of {}", run.step, run.steps);
                vec![
                    run.run.clone(),
                    run.index.to_string(),
                    state(run.state),
                    step,
                    run.note.clone(),
                ]
            };
            let rows = runs.iter().map(&mut row).collect();
            let rows = table(&["run", "index", "state", "steps", "note"], rows);
            let counts = counts.iter().map(|(kind, count)| format!("{count} {}", state(*kind)));
            format!("{rows}\n\n{} runs: {}", runs.len(), counts.collect::<Vec<_>>().join(", "))
        },
    )?;
    Ok(ExitStatus::Done)
}

/// The name of a state, as in JSON.
fn state(state: RunState) -> String {
    json!(state).as_str().unwrap_or_default().to_owned()
}

/// This process, as its claims name it.
fn worker_name() -> WorkerName {
    let host = host_name().or_else(|| variable("HOSTNAME")).or_else(|| variable("COMPUTERNAME"));
    let host = host.map_or_else(|| "localhost".to_owned(), |host| host.trim().to_owned());
    // Hosts may share a name. Elsewhere than on Linux nothing better tells them apart.
    let kernel = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok();
    let kernel = kernel.or_else(|| Some(host.clone()));
    let starts = || variable("SLURM_RESTART_COUNT").and_then(|count| count.parse().ok());
    let job = variable("SLURM_JOB_ID").map(|id| (id, starts().unwrap_or(0)));
    WorkerName { host, kernel, process: std::process::id(), job }
}

#[expect(clippy::disallowed_methods, reason = "how an engine tells a job which part of it this is")]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn options(suite: Suite, device: String, arguments: SuiteArguments) -> Result<SuiteOptions> {
    let plans = arguments.plan.is_some();
    let preset = arguments.preset.as_deref().map(|name| suite.preset(name)).transpose()?;
    let tasks =
        arguments.tasks.iter().map(|name| suite.task(name)).collect::<Result<Vec<_>, _>>()?;
    let mut methods = Vec::new();
    for name in &arguments.methods {
        if name.eq_ignore_ascii_case("all") {
            methods.extend(suite.methods());
            continue;
        }
        methods.push(MethodName::named(name)?);
    }
    // Workers have other working directories.
    let lasting = |path: PathBuf| if plans { std::path::absolute(path) } else { Ok(path) };
    let out = arguments.plan.or(arguments.out);
    let out = lasting(out.unwrap_or_else(|| ["runs", suite.name()].iter().collect()))?;
    let mut options = SuiteOptions::new(suite, arguments.profile, out);
    options.preset = preset.unwrap_or(options.preset);
    options.tasks = tasks;
    options.methods = methods;
    options.seeds = arguments.seeds;
    options.device = device;
    let revision = arguments.revision.as_deref();
    let model = arguments.model.map(|model| named_at(&model, revision)).transpose()?;
    options.model = match model {
        Some(model) if plans && is_there(Path::new(&model))? => {
            Some(lasting(model.into())?.display().to_string())
        }
        model => model,
    };
    options.data_dir = arguments.data_dir.map(lasting).transpose()?;
    options.resume = arguments.resume;
    options.keep = arguments.keep;
    options.compare = arguments.compare.map(lasting).transpose()?;
    options.steps = arguments.steps;
    options.config = arguments.config;
    options.set = arguments.set;
    options.draws = (!arguments.draws.is_empty()).then_some(arguments.draws);
    // Set by `cargo xtask`; a build by hand does not know.
    options.git_revision = option_env!("LRVD_GIT_REVISION").map(str::to_owned);
    let words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    options.command = words.collect::<Vec<_>>().join(" ");
    Ok(options)
}
