//! `lrvd train`

use std::path::PathBuf;

use clap::Args;

use super::{ExampleArguments, LogArguments, SettingsArguments};

pub(crate) const TRAIN_EXAMPLES: &str = "\
Examples:
  lrvd train --model microsoft/deberta-v3-base --train reviews.csv --epochs 3 --out runs/mine
  lrvd train --model DIR --train train.tsv --validation dev.tsv --learning-rate 5e-4
  lrvd train --model DIR --train a.csv --validation b.csv --text-column question \\
      --pair-column answer --label-column verdict --method lora --rank 16
  lrvd train --model DIR --train reviews.csv --method bayeslora --out runs/ranks
  lrvd train --model DIR --task sst2 --data-dir GLUE --method bayeslora --set rank_search.margin=0.03
  lrvd train --model DIR --train t.jsonl --validation v.jsonl --config run.toml
  lrvd train --model LLAMA-DIR --train t.tsv --validation v.tsv --labels bad,good \
      --template 'Review: {text}\\nSentiment:' --answers negative,positive
  lrvd train --model DIR --train quiz.csv --choice-columns a,b,c,d --text-column question --label-column key
  lrvd train --model LLAMA-DIR --train chat.jsonl --epochs 3 --out runs/chat
  lrvd train ... --resume                          continue after an interruption

Data: `.tsv` (header; quotes are ordinary characters), `.csv` (header; quoted fields; `,`, `;` or `|` between them), `.jsonl`,
`.json` (an array of objects), `.parquet`. Without a column `text` or `label` the only one with another usual name is taken.
Labels are texts or integers, sorted by value or in the order of `--labels`.

A Llama classifier reads a prompt, and the logits of one word for each class are its answer. Words and template are in
`settings.json`; a word that is not one token after the prompt is an error. Texts that are too long are truncated; the
rest of the prompt is kept. For numbers (`--regression`, stsb) a new head reads the last token of the prompt.

A table with the columns `question`, `choices` (a list) and `answer` is multiple choice; `--choice-columns` names others, or
one column for each choice, and `--pair-column` a passage. The answer is the text of a choice, its letter (`A` is the first)
or its index counted from 0, and must match exactly one choice. The classes are the letters; a letter without a choice in a
row is never its answer.

A table with the columns `prompt` and `completion`, or with `messages` (a list of objects with `role` and `content`),
trains a language model on completions, or on the assistant's messages formatted by the model's chat template; the loss is
the mean over their tokens. `lrvd generate` uses the result. All linear layers of a Llama's blocks are adapted, its head is
not; texts are truncated at `--max-length` (1024). Methods: lora (the default), adalora, bayeslora and its variants.

The default method is LoRA of rank 8 with a temperature, fitted to a tenth of the training rows that is held out.
`--method bayeslora` learns the ranks and a posterior, so that predictions can be averaged over draws; it chooses the
ranks by a held-out tenth of the training rows.

Settings come from the preset (with 1000 steps, and rank 8 in `default`), then `--config`, then `--set`, then the
other options; later ones take precedence. A configuration file is TOML:

  preset = \"default\"
  steps = 2000
  gradient_clip = \"none\"
  [rank_search]
  margin = 0.03

The output folder gets `adapter/` (PEFT files, a description with the labels, and for BayesLoRA
`lrvd_posterior.safetensors`), `settings.json`, `labels.json`, `metrics.jsonl` (written during training; with
`--log tensorboard` also event files), the predictions on the validation rows and `record.json`. The folder must be new or
empty, or with `--resume` that of an earlier run. Two runs cannot use one folder at a time.

Ctrl-C, SIGTERM and SIGHUP finish the step, write a checkpoint and exit with 75; `--resume` continues, bit for bit
on the CPU.";

/// Options of `lrvd train`.
#[derive(Debug, Args)]
pub(crate) struct TrainArguments {
    /// Pretrained DeBERTa-v2 or -v3, or Llama: a folder, a repository `owner/name` on the Hugging Face Hub, or a Llama
    /// in a `.gguf` file.
    #[arg(long, value_name = "DIR|GGUF|HUB-ID")]
    pub(crate) model: String,
    #[command(flatten)]
    pub(crate) examples: ExampleArguments,
    /// Method: lora, adalora, bayeslora, or another that results in one adapter: map, mcd, bayeslora-fixed,
    /// lrvd-element, …; the suffix `+ts` fits a temperature to held-out rows [default: lora+ts; lora for a language
    /// model, for numbers and with `checkpoint=best`].
    #[arg(long, value_name = "NAME")]
    pub(crate) method: Option<String>,
    #[command(flatten)]
    pub(crate) settings: SettingsArguments,
    /// Optimiser steps [default: from the settings, 1000].
    #[arg(long, value_name = "N", value_parser = super::count(), allow_negative_numbers = true)]
    pub(crate) steps: Option<usize>,
    /// Passes over the training rows, instead of steps; may be a fraction.
    #[arg(long, value_name = "N", value_parser = super::positive, conflicts_with = "steps", allow_negative_numbers = true)]
    pub(crate) epochs: Option<f64>,
    /// Peak learning rate of the adapters.
    #[arg(long, value_name = "RATE", value_parser = super::positive, allow_negative_numbers = true)]
    pub(crate) learning_rate: Option<f64>,
    /// Examples per step.
    #[arg(long, value_name = "N", value_parser = super::count(), allow_negative_numbers = true)]
    pub(crate) batch_size: Option<usize>,
    /// Rank; the initial rank for BayesLoRA and AdaLoRA [default: from the settings, 8].
    #[arg(long, value_name = "N", value_parser = super::count(), allow_negative_numbers = true)]
    pub(crate) rank: Option<usize>,
    /// Average rank at the end, for adalora [default: half the initial rank].
    #[arg(long, value_name = "N", value_parser = super::count(), allow_negative_numbers = true)]
    pub(crate) target_rank: Option<usize>,
    /// Longest input in tokens.
    #[arg(long, value_name = "N", value_parser = super::count(), allow_negative_numbers = true)]
    pub(crate) max_length: Option<usize>,
    /// Seed of all random numbers.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = super::seed(), allow_negative_numbers = true)]
    pub(crate) seed: u64,
    /// Device: cpu, wgpu, cuda:0; the build must include the backend.
    #[arg(long, default_value = "cpu", value_name = "DEVICE")]
    pub(crate) device: String,
    /// Output folder.
    #[arg(long, default_value = "runs/train", value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// Stop after N evaluations without a smaller negative log-likelihood on the validation rows.
    #[arg(long, value_name = "N", value_parser = super::count(), allow_negative_numbers = true)]
    pub(crate) patience: Option<usize>,
    #[command(flatten)]
    pub(crate) logs: LogArguments,
    /// Continue an interrupted run in its output folder.
    #[arg(long)]
    pub(crate) resume: bool,
}
