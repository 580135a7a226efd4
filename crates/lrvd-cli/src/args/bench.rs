//! `lrvd bench ...`

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// The benchmarks.
#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// GLUE with LoRA, AdaLoRA and BayesLoRA: accuracy, learnt rank, time, calibration, a report.
    #[command(after_help = GLUE_EXAMPLES)]
    Glue(GlueArguments),
}

const GLUE_EXAMPLES: &str = "\
Examples:
  lrvd bench glue                                  the quick profile on generated tasks
  lrvd bench glue --data-dir GLUE --tasks sst2,mrpc --seeds 1,2,3
  lrvd bench glue --profile paper --data-dir GLUE --model microsoft/deberta-v3-base --device cuda:0
  lrvd bench glue --resume                         go on after an interruption

Ctrl-C and SIGTERM finish the step, write a checkpoint and exit with 75; `--resume` goes on, with the
same numbers bit for bit on the CPU.";

/// Options of `lrvd bench glue`.
#[derive(Debug, Args)]
pub(crate) struct GlueArguments {
    /// `quick`: minutes on two cores with the shipped tiny model; `paper`: the full reproduction.
    #[arg(long, default_value = "quick", value_name = "quick|paper")]
    pub(crate) profile: String,
    /// Settings: `default` (recommended), `paper-glue` (the paper's text), `author-glue` (the
    /// authors' script, quirks included).
    #[arg(long, default_value = "default", value_name = "NAME")]
    pub(crate) preset: String,
    /// Tasks: cola, sst2, mrpc, qqp, mnli, qnli, rte, stsb [default: the profile's].
    #[arg(long, value_delimiter = ',', value_name = "A,B")]
    pub(crate) tasks: Vec<String>,
    /// Methods: lora, adalora, bayeslora [default: all].
    #[arg(long, value_delimiter = ',', value_name = "A,B")]
    pub(crate) methods: Vec<String>,
    /// Seeds [default: 1,2 (quick) or 1,2,3 (paper)].
    #[arg(long, value_delimiter = ',', value_name = "1,2,3")]
    pub(crate) seeds: Vec<u64>,
    /// Device: cpu, wgpu, cuda:0; a backend must be built in.
    #[arg(long, default_value = "cpu", value_name = "DEVICE")]
    pub(crate) device: String,
    /// Pretrained model: a folder, or a repository `owner/name` on the Hugging Face Hub.
    #[arg(long, value_name = "DIR|HUB-ID")]
    pub(crate) model: Option<String>,
    /// GLUE data: original TSV folders, Hub-style parquet or JSONL; generated tasks if left out.
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    /// Output folder.
    #[arg(long, default_value = "runs/glue", value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// Go on in an output folder that holds finished or interrupted runs.
    #[arg(long)]
    pub(crate) resume: bool,
    /// Published table (`metric,method,task,mean,std`) to set beside the measured one.
    #[arg(long, value_name = "CSV")]
    pub(crate) compare: Option<PathBuf>,
    /// Optimiser steps instead of the profile's.
    #[arg(long, value_name = "N")]
    pub(crate) steps: Option<usize>,
    /// Print the runs, their sizes and settings, and train nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
}
