//! `lrvd bench glue` and `lrvd bench reasoning`

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use lrvd_bench::Result;
use lrvd_bench::UnknownName;
use lrvd_bench::method::MethodName;
use lrvd_bench::suite::{
    Arms, Profile, Suite, SuiteOptions, planned, planned_arms, run_arms, run_suite,
};

use super::Outcome;
use crate::args::{self, GlobalArguments, LogArguments};
use crate::exit::ExitStatus;
use crate::printer::{Format, Printer};
use crate::progress::{self, Journal};
use crate::signals::stop_flag;

/// The benchmarks.
#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// GLUE with LoRA, AdaLoRA and BayesLoRA: accuracy, learnt rank, time, calibration, a report.
    #[command(after_help = GLUE_EXAMPLES)]
    Glue(SuiteArguments),
    /// Six multiple-choice sets with every uncertainty method: accuracy, calibration, parameters.
    #[command(after_help = REASONING_EXAMPLES)]
    Reasoning(SuiteArguments),
}

const GLUE_EXAMPLES: &str = "\
Examples:
  lrvd bench glue                                  the quick profile on generated tasks
  lrvd bench glue --data-dir GLUE --tasks sst2,mrpc --seeds 1,2,3
  lrvd bench glue --tasks sst2 --methods all       all methods of `lrvd bench reasoning`
  lrvd bench glue --profile paper --data-dir GLUE --model microsoft/deberta-v3-base --device cuda:0
  lrvd bench glue --model LLAMA-DIR --data-dir GLUE --tasks sst2 --steps 60 --set batch_size=16
  lrvd bench glue --arms docs/results/arms/beta.toml --data-dir GLUE --out runs/beta
  lrvd bench glue --resume                         resume after an interruption

Presets: `default` (held-out training rows choose the ranks of BayesLoRA), `constant-weight` (the published KL weight),
`paper-glue` (the paper's text), `author-glue` (the authors' script, quirks included). Tasks: cola, sst2, mrpc, qqp, mnli, qnli, rte, stsb.

The architecture is read from the model's `config.json`. A Llama answers by one token for each class: `--dry-run` shows
templates and answers, and for one task `--set wording.template='Review: {text}\\nSentiment:'` and
`--set 'wording.answers=[\"bad\", \"good\"]'` change them. stsb, a regression, has a separate head.

Ctrl-C, SIGTERM and SIGHUP finish the step, write a checkpoint and exit with 75; `--resume` continues, bit for bit
on the CPU.";

const REASONING_EXAMPLES: &str = "\
Examples:
  lrvd bench reasoning                             one method of each kind on generated questions, in minutes
  lrvd bench reasoning --data-dir REASONING --tasks obqa,arc-e --seeds 1,2,3
  lrvd bench reasoning --methods lora,lora+ts,bayeslora --draws 1,2,5,10,20
  lrvd bench reasoning --set prompt=clean --set methods.laplace.prior=validation
  lrvd bench reasoning --profile paper --dry-run   runs and memory of the 7B reproduction

Presets: `default` (held-out training rows choose the ranks of BayesLoRA), `constant-weight` (the published KL weight),
`paper-reasoning` (the paper's text), `author-llm` (the authors' script for language models), `blob-compat` (the protocol of the
published baselines). Sets: wg-s, wg-m, arc-c, arc-e, obqa, boolq. `METHOD+ts` adds temperature scaling to any method.

Ctrl-C, SIGTERM and SIGHUP finish the step, write a checkpoint and exit with 75; `--resume` continues.";

/// What a suite keeps of trained models.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Keep {
    /// Adapter and posterior of every run whose method can be saved.
    Adapters,
    /// Nothing.
    None,
}

/// Options of the benchmarks.
#[derive(Debug, Args)]
pub(crate) struct SuiteArguments {
    /// `quick`: minutes on two cores with a shipped tiny model; `paper`: the full reproduction.
    #[arg(long, default_value = "quick", value_name = "quick|paper")]
    pub(crate) profile: String,
    /// Named settings; see below [default: `default`].
    #[arg(long, value_name = "NAME")]
    pub(crate) preset: Option<String>,
    /// Tasks or sets, by the names below [default: the profile's].
    #[arg(long, value_delimiter = ',', value_name = "A,B")]
    pub(crate) tasks: Vec<String>,
    /// Methods, e.g. lora, adalora, bayeslora, or `all` [default: the benchmark's].
    #[arg(long, value_delimiter = ',', value_name = "A,B")]
    pub(crate) methods: Vec<String>,
    /// Seeds [default: the profile's, three in `paper`].
    #[arg(long, value_delimiter = ',', value_name = "1,2,3", value_parser = args::seed(), allow_negative_numbers = true)]
    pub(crate) seeds: Vec<u64>,
    /// Numbers of draws to average predictions over, in addition to 0 [default: the preset's].
    #[arg(long, value_delimiter = ',', value_name = "5,10", value_parser = args::draws(), allow_negative_numbers = true)]
    pub(crate) draws: Vec<usize>,
    /// Device: cpu, wgpu, cuda:0; the build must include the backend.
    #[arg(long, default_value = "cpu", value_name = "DEVICE")]
    pub(crate) device: String,
    /// Pretrained model: a folder, a `.gguf` file, or a repository `owner/name` on the Hugging Face Hub.
    #[arg(long, value_name = "DIR|GGUF|HUB-ID")]
    pub(crate) model: Option<String>,
    /// Data in their original layouts, or Hub-style parquet or JSONL. By default cola, sst2, rte and all sets but
    /// boolq are generated.
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    /// Output folder [default: runs/glue or runs/reasoning].
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) logs: LogArguments,
    /// What to keep of trained models: adapters with their posteriors, for `lrvd predict`, `eval`, `inspect` and `export`.
    #[arg(long, value_enum, default_value_t = Keep::Adapters, value_name = "WHAT")]
    pub(crate) keep: Keep,
    /// Continue in an output folder with finished or interrupted runs.
    #[arg(long)]
    pub(crate) resume: bool,
    /// Published table (`metric,method,task,mean,std`) to compare with the measured one.
    #[arg(long, value_name = "CSV")]
    pub(crate) compare: Option<PathBuf>,
    /// Optimiser steps instead of the profile's.
    #[arg(long, value_name = "N", value_parser = args::count(), allow_negative_numbers = true)]
    pub(crate) steps: Option<usize>,
    /// Settings that differ from preset and profile; an unknown key is an error.
    #[arg(long, value_name = "FILE.toml")]
    pub(crate) config: Option<PathBuf>,
    /// One setting, e.g. `prompt=clean`, `prediction_draws=fresh`, `base_precision=f16` or
    /// `methods.laplace.predictive=probit`; may be repeated.
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Compare settings in pairs: one run of the suite for each arm of the file.
    #[arg(long, value_name = "FILE.toml", conflicts_with_all = ["profile", "preset", "methods", "compare"])]
    pub(crate) arms: Option<PathBuf>,
    /// Print runs, parameters, memory and settings without training; the paper's model need not be installed.
    #[arg(long)]
    pub(crate) dry_run: bool,
}

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
