//! `lrvd inspect`, `lrvd export`, `lrvd completions`

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use clap_complete::Shell;

pub(crate) const INSPECT_EXAMPLES: &str = "\
Examples:
  lrvd inspect runs/mine                           ranks and relevance by module
  lrvd inspect ADAPTER --format json
  lrvd inspect MODEL                               sizes of a base checkpoint: a folder or a .gguf file
  lrvd inspect MODEL --check                       reads all tensors and computes logits

  lrvd inspect runs/mine --format json | jq .lora_config > ranks.json
  python -c 'import json, peft; peft.LoraConfig(**json.load(open(\"ranks.json\")))'
                                                   the learnt ranks as settings of a plain LoRA

log_alpha is the relevance statistic ln(noise variance / signal) of a rank direction. A direction at or above
the threshold is noise: a method that prunes removes it at its next prune.

With --check the exit code is 1 if a tensor is missing, unexpected, misshapen or not finite, or if the logits are not
finite.

JSON: `lora_config` has r, lora_alpha, target_modules, rank_pattern and alpha_pattern. Modules of rank 0 are left out;
the others keep the scaling of the training (alpha over rank). It is null if all modules have rank 0.";

pub(crate) const EXPORT_EXAMPLES: &str = "\
Examples:
  lrvd export --to peft runs/mine --out adapter
  lrvd export --to peft runs/mine --out adapter-for-server --layout uniform
  lrvd export --to peft runs/mine --out adapter-r4 --cap-rank 4
  lrvd export --to peft runs/mine/checkpoints/step-00000400 --out adapter-400
  lrvd export --to merged runs/mine --out model --verify     a whole model, for transformers
  lrvd export --to gguf runs/mine --out for-llama-cpp        adapter.gguf, for `llama-cli --lora`; Llama only

`ragged` keeps each module's rank (rank_pattern, alpha_pattern) and the posterior; `uniform` pads all
modules to one rank, for servers that support only one, without the posterior. Both hold the posterior mean
exactly, unless `--cap-rank` truncates it, which also drops the posterior. Modules pruned to rank 0 are left out.
`merged` and `gguf` hold only the posterior mean, in single precision, and need the base model named by the adapter.
Every export has a README.md: base, method, data hashes, metrics, ranks, and how to load it.
The exit code is 1 if `--verify` finds a difference; nothing is written then.";

/// Options of `lrvd inspect`.
#[derive(Debug, Args)]
pub(crate) struct InspectArguments {
    /// Output of `lrvd train`, one of its checkpoints, an adapter folder, or a base checkpoint.
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// Check that all tensors in DIR can be read and are finite, and that the logits are finite.
    #[arg(long)]
    pub(crate) check: bool,
    /// Accept changed files of the adapter.
    #[arg(long)]
    pub(crate) allow_changed: bool,
}

/// Export formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportFormat {
    /// Hugging Face PEFT.
    Peft,
    /// The base model with the adapter merged in, as a Hugging Face folder.
    Merged,
    /// An adapter for llama.cpp.
    Gguf,
}

/// Layout of modules with different ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Layout {
    /// Each module at its rank.
    Ragged,
    /// All modules at the largest rank.
    Uniform,
}

/// Options of `lrvd export`.
#[derive(Debug, Args)]
pub(crate) struct ExportArguments {
    /// Format.
    #[arg(long, value_enum)]
    pub(crate) to: ExportFormat,
    /// Output of `lrvd train`, one of its checkpoints, or an adapter folder.
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// Folder to write; it must not exist.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// Layout of modules with different ranks [PEFT only; default: ragged].
    #[arg(long, value_enum)]
    pub(crate) layout: Option<Layout>,
    /// Largest rank to write, for servers with a rank limit: larger modules keep their largest singular directions;
    /// the relative error is printed [PEFT only].
    #[arg(long, value_name = "R", value_parser = super::count(), allow_negative_numbers = true)]
    pub(crate) cap_rank: Option<usize>,
    /// Base model [merged and gguf only; default: the one named by the adapter].
    #[arg(long, value_name = "DIR|GGUF|HUB-ID")]
    pub(crate) model: Option<String>,
    /// Accept a base model with other weights than the adapter was trained on [merged and gguf only].
    #[arg(long)]
    pub(crate) allow_other_base: bool,
    /// Accept changed files: the adapter's, or the base model's configuration or tokenizer.
    #[arg(long)]
    pub(crate) allow_changed: bool,
    /// Compare the logits of the merged model with those of base and adapter [merged only].
    #[arg(long)]
    pub(crate) verify: bool,
    /// Largest difference allowed by `--verify`, in units of the largest logit.
    #[arg(long, value_name = "T", default_value = "1e-4", value_parser = super::positive, requires = "verify", allow_negative_numbers = true)]
    pub(crate) tolerance: f64,
}

/// Options of `lrvd completions`.
#[derive(Debug, Args)]
pub(crate) struct CompletionsArguments {
    /// Shell.
    #[arg(value_enum)]
    pub(crate) shell: Shell,
}
