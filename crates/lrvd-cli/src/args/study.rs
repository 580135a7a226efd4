//! `lrvd study NAME`

use std::path::PathBuf;

use clap::Args;

use super::LogArguments;

pub(crate) const EXAMPLES: &str = "\
Examples:
  lrvd study beta                                  generated text, the shipped tiny DeBERTa, one seed
  lrvd study tau --data-dir GLUE --size full       SST-2, three seeds of 1000 steps
  lrvd study beta --dry-run --size full            the runs and about how long they take
  lrvd study rule --arms 'auto;LoRA, rank 8'       two of its arms
  lrvd study k --data-dir GLUE --model DIR --tasks sst2,qnli --seeds 1,2 --resume

Studies: beta, confidence, families, k, proportion, published, rule, schemes, symmetry, tau.

In the output folder: NAME.md, the page with the verdicts; NAME.csv, every number by arm, task and seed; NAME-*.svg,
the figures; arms/, the runs. A claim holds or fails by two standard errors of the difference, paired by task and
seed; one seed says neither. Ctrl-C finishes the step, writes a checkpoint and exits with 75; --resume goes on.";

/// Options of `lrvd study`.
#[derive(Debug, Args)]
pub(crate) struct StudyArguments {
    /// Which study; see below.
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// `quick`: one seed of 250 steps; `full`: three seeds of 1000.
    #[arg(long, default_value = "quick", value_name = "quick|full")]
    pub(crate) size: String,
    /// GLUE data in their original layouts, or Hub-style parquet or JSONL; if left out, text is generated.
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    /// Pretrained model: a folder, or a repository `owner/name` on the Hugging Face Hub [default: the
    /// shipped tiny DeBERTa].
    #[arg(long, value_name = "DIR|GGUF|HUB-ID")]
    pub(crate) model: Option<String>,
    /// Arms, by the labels of the page; claims about others cannot be said then [default: all].
    #[arg(long, value_delimiter = ';', value_name = "A;B")]
    pub(crate) arms: Vec<String>,
    /// Tasks of GLUE [default: sst2].
    #[arg(long, value_delimiter = ',', value_name = "A,B")]
    pub(crate) tasks: Vec<String>,
    /// Seeds [default: the size's].
    #[arg(long, value_delimiter = ',', value_name = "1,2,3", value_parser = super::seed(), allow_negative_numbers = true)]
    pub(crate) seeds: Vec<u64>,
    /// Optimiser steps instead of the size's.
    #[arg(long, value_name = "N", value_parser = super::count(), allow_negative_numbers = true)]
    pub(crate) steps: Option<usize>,
    /// One setting of every arm, e.g. `train_rows=2000`; may be repeated.
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Device: cpu, wgpu, cuda:0; a backend must be built in.
    #[arg(long, default_value = "cpu", value_name = "DEVICE")]
    pub(crate) device: String,
    /// Output folder [default: runs/study-NAME].
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) logs: LogArguments,
    /// Go on in an output folder that holds this study.
    #[arg(long)]
    pub(crate) resume: bool,
    /// Print the runs and about how long they take, and train nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
}
