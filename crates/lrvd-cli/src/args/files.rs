//! `lrvd inspect`, `lrvd export`, `lrvd completions`

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use clap_complete::Shell;

pub(crate) const INSPECT_EXAMPLES: &str = "\
Examples:
  lrvd inspect runs/mine                           ranks and relevance by module
  lrvd inspect ADAPTER --format json
  lrvd inspect MODEL                               sizes of a base checkpoint: a folder or a .gguf file
  lrvd inspect MODEL --check                       read all of it, and compute with it

  lrvd inspect runs/mine --format json | jq .lora_config > ranks.json
  python -c 'import json, peft; peft.LoraConfig(**json.load(open(\"ranks.json\")))'
                                                   the learnt ranks as the settings of a plain LoRA

log_alpha is the relevance statistic ln(noise variance / signal) of a rank direction. One at or above
the threshold is noise: a method that prunes removes it at its next prune.

With --check exit code 1 if a tensor is missing, left over, of another shape or not finite, or if the logits are not
finite.

JSON: `lora_config` has r, lora_alpha, target_modules, rank_pattern and alpha_pattern. Modules of rank 0 are left out;
the others keep the scaling that they were trained with (alpha over rank). It is null if no module has a rank.";

pub(crate) const EXPORT_EXAMPLES: &str = "\
Examples:
  lrvd export --to peft runs/mine --out adapter
  lrvd export --to peft runs/mine --out adapter-for-server --layout uniform
  lrvd export --to peft runs/mine --out adapter-r4 --cap-rank 4
  lrvd export --to peft runs/mine/checkpoints/step-00000400 --out adapter-400
  lrvd export --to merged runs/mine --out model --verify     a whole model, for transformers and all that read its folders
  lrvd export --to gguf runs/mine --out for-llama-cpp        adapter.gguf, for `llama-cli --lora`; Llama only

`ragged` keeps every module's own rank (rank_pattern, alpha_pattern) and brings the posterior along;
`uniform` pads all modules to one rank, for servers that know only one, and has no posterior. Both
give the posterior mean exactly, unless `--cap-rank` cuts it, which leaves the posterior behind; modules whose rank was pruned to 0 are left out.
`merged` and `gguf` hold the posterior mean alone, in single precision, and need the base model that the adapter names.
Every export has a README.md: base, method, data hashes, metrics, ranks, and how it is loaded.
Exit code 1 if `--verify` finds a difference; nothing is written then.";

/// Options of `lrvd inspect`.
#[derive(Debug, Args)]
pub(crate) struct InspectArguments {
    /// Output of `lrvd train`, one of its checkpoints, an adapter folder, or a base checkpoint.
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// Check instead that everything in DIR can be read, is finite, and computes.
    #[arg(long)]
    pub(crate) check: bool,
}

/// Formats that adapters are written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportFormat {
    /// Hugging Face PEFT.
    Peft,
    /// The base model with the adapter multiplied in, as a Hugging Face folder.
    Merged,
    /// An adapter of llama.cpp.
    Gguf,
}

/// How modules of different ranks are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Layout {
    /// Every module at its own rank.
    Ragged,
    /// Every module at the largest rank.
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
    /// How modules of different ranks are written [PEFT only; default: ragged].
    #[arg(long, value_enum)]
    pub(crate) layout: Option<Layout>,
    /// Largest rank that is written, for servers that allow no more: modules above it keep their largest singular
    /// directions, and what that loses is printed [PEFT only].
    #[arg(long, value_name = "R", value_parser = super::count(), allow_negative_numbers = true)]
    pub(crate) cap_rank: Option<usize>,
    /// Base model [merged and gguf only; default: the one that the adapter names].
    #[arg(long, value_name = "DIR|GGUF|HUB-ID")]
    pub(crate) model: Option<String>,
    /// Use a base model whose weights are not those that the adapter was trained on [merged and gguf only].
    #[arg(long)]
    pub(crate) allow_other_base: bool,
    /// Compare logits of the merged model with those of base and adapter [merged only].
    #[arg(long)]
    pub(crate) verify: bool,
    /// Largest difference that `--verify` lets pass, in units of the largest logit.
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
