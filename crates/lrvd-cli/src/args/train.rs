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
  lrvd train --model DIR --task sst2 --data-dir GLUE --steps 2000 --set prune.log_alpha_threshold=3
  lrvd train --model DIR --train t.jsonl --validation v.jsonl --config run.toml
  lrvd train --model LLAMA-DIR --train t.tsv --validation v.tsv --labels bad,good \
      --template 'Review: {text}\\nSentiment:' --answers negative,positive
  lrvd train --model DIR --train quiz.csv --choice-columns a,b,c,d --text-column question --label-column key
  lrvd train --model LLAMA-DIR --train chat.jsonl --epochs 3 --out runs/chat
  lrvd train ... --resume                          go on after an interruption

Data: `.tsv` (header, a quote is a letter), `.csv` (header, quoted fields), `.jsonl`, `.parquet`.
Labels are any texts or whole numbers; their order is by value, or the one of `--labels`.

A Llama is asked in words: it reads a prompt and answers by the logits of one word for each class. The words and the
template are in `settings.json`; a word that is not one token after the prompt is refused by name. Too long texts
lose their ends, the question never. A number (`--regression`, stsb) is what a new head makes of the prompt's last token.

A table with the columns `question`, `choices` (a list) and `answer` is multiple choice; `--choice-columns` names others, or
one column for each choice, and `--pair-column` a passage. The answer is the text of a choice, its letter (`A` is the first)
or its place counted from 0, and must mean one choice. The classes are the letters, and one that a row does not have is never
answered.

A table with the columns `prompt` and `completion`, or with `messages` (a list of objects with `role` and `content`),
trains a language model: on completions, or on what the assistant says by the model's chat template, averaged over their
tokens. `lrvd generate` then continues texts. All layers of a Llama's blocks are adapted, but not its head; texts beyond
`--max-length` (1024) lose their ends. Methods: lora (the default), adalora, bayeslora and its variants.

By default the method is LoRA of rank 8. A tenth of the training rows is held out of training, and one temperature is
fitted to them. `--method bayeslora` learns the ranks and a posterior, so that predictions can be averaged over draws; it
also holds a tenth of the rows out, by which it chooses the ranks.

Settings come from the preset (with 1000 steps, and rank 8 in `default`), then `--config`, then `--set`, then the
other options; what comes later wins. A configuration file is TOML:

  preset = \"default\"
  steps = 2000
  gradient_clip = \"none\"
  [prune]
  log_alpha_threshold = 3.0

The output folder gets `adapter/` (PEFT files, a description with the labels, and of BayesLoRA `lrvd_posterior.safetensors`), `settings.json`, `labels.json`, `metrics.jsonl` as it trains (`--log tensorboard`: event files too), the
predictions on the validation file and `record.json`. It must be new or empty, or with `--resume` that of an earlier run; it takes one run at a time.

Ctrl-C, SIGTERM and SIGHUP finish the step, write a checkpoint and exit with 75; `--resume` goes on, with the
same numbers bit for bit on the CPU.";

/// Options of `lrvd train`.
#[derive(Debug, Args)]
pub(crate) struct TrainArguments {
    /// Pretrained DeBERTa-v2 or -v3, or Llama: a folder, or a repository `owner/name` on the Hugging Face Hub, whose
    /// `config.json` says which; or a Llama in one `.gguf` file.
    #[arg(long, value_name = "DIR|GGUF|HUB-ID")]
    pub(crate) model: String,
    #[command(flatten)]
    pub(crate) examples: ExampleArguments,
    /// Method: lora, adalora, bayeslora, or any other whose outcome is one adapter: map, mcd,
    /// bayeslora-fixed, lrvd-element, …; `+ts` behind it fits a temperature to held-out rows [default: lora+ts; lora for
    /// a language model, for numbers and with `checkpoint=best`].
    #[arg(long, value_name = "NAME")]
    pub(crate) method: Option<String>,
    #[command(flatten)]
    pub(crate) settings: SettingsArguments,
    /// Optimiser steps [default: the settings', 1000].
    #[arg(long, value_name = "N", value_parser = super::count(), allow_negative_numbers = true)]
    pub(crate) steps: Option<usize>,
    /// Passes over the training rows instead of steps; parts of one are fine.
    #[arg(long, value_name = "N", value_parser = super::positive, conflicts_with = "steps", allow_negative_numbers = true)]
    pub(crate) epochs: Option<f64>,
    /// Peak learning rate of the adapters.
    #[arg(long, value_name = "RATE", value_parser = super::positive, allow_negative_numbers = true)]
    pub(crate) learning_rate: Option<f64>,
    /// Examples per step.
    #[arg(long, value_name = "N", value_parser = super::count(), allow_negative_numbers = true)]
    pub(crate) batch_size: Option<usize>,
    /// Rank; of BayesLoRA and AdaLoRA the one at the start [default: the settings', 8].
    #[arg(long, value_name = "N", value_parser = super::count(), allow_negative_numbers = true)]
    pub(crate) rank: Option<usize>,
    /// Average rank at the end, for adalora [default: half the rank at the start].
    #[arg(long, value_name = "N", value_parser = super::count(), allow_negative_numbers = true)]
    pub(crate) target_rank: Option<usize>,
    /// Longest input in tokens.
    #[arg(long, value_name = "N", value_parser = super::count(), allow_negative_numbers = true)]
    pub(crate) max_length: Option<usize>,
    /// Seed of everything random.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = super::seed(), allow_negative_numbers = true)]
    pub(crate) seed: u64,
    /// Device: cpu, wgpu, cuda:0; a backend must be built in.
    #[arg(long, default_value = "cpu", value_name = "DEVICE")]
    pub(crate) device: String,
    /// Output folder.
    #[arg(long, default_value = "runs/train", value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// End early after N evaluations without a smaller negative log-likelihood on the validation rows; for a KL weight
    /// that is a number.
    #[arg(long, value_name = "N", value_parser = super::count(), allow_negative_numbers = true)]
    pub(crate) patience: Option<usize>,
    #[command(flatten)]
    pub(crate) logs: LogArguments,
    /// Go on in an output folder that holds an interrupted run.
    #[arg(long)]
    pub(crate) resume: bool,
}
