//! `lrvd generate`

use std::path::PathBuf;

use clap::Args;
use lrvd_bench::adapter::NEW_TOKENS;

use super::TextArguments;

pub(crate) const EXAMPLES: &str = "\
Examples:
  lrvd generate runs/mine \"Question: Why is the sky blue?\"
  lrvd generate runs/chat \"Why is the sky blue?\" --draws 10 --unsure 0.3
  lrvd generate runs/mine --input prompts.jsonl --max-tokens 64 > answers.jsonl
  lrvd generate --model SmolLM2-135M \"Once upon a time\" --temperature 0.8 --top-p 0.95 --seed 3

DIR is the output of `lrvd train` on texts, one of its checkpoints, or any PEFT adapter of a Llama for the task
`CAUSAL_LM`. Without an adapter, `--model` names a base model and all arguments are prompts.

A prompt is a plain text. With `--chat`, and by default for a model trained on conversations, it is a user's message and is
formatted by the chat template of the folder. Tables have a column `prompt` or `messages`; otherwise prompts are read from
standard input, one a line.

With `--draws` the probabilities of K weight draws are averaged at every token; the same draws are used for the whole text.
The output for one prompt is its text. For several prompts and for a table it is one JSON object a line: prompt, text,
stopped, and the mean log-probability per token. `--format json` adds for every token:

  text, id             the token
  probability          averaged over the draws, before temperature and truncation
  entropy              of the next token, nats
  mutual_information   between the next token and the weights, nats; null without several draws";

/// Options of `lrvd generate`.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(crate) struct GenerateArguments {
    /// The adapter, then prompts [default: lines of standard input].
    #[arg(value_name = "DIR] [PROMPT")]
    pub(crate) arguments: Vec<String>,
    /// Base model [default: the one named by the adapter]; may be used without an adapter.
    #[arg(long, value_name = "DIR|HUB-ID")]
    pub(crate) model: Option<String>,
    /// Accept a base model with other weights than the adapter was trained on.
    #[arg(long)]
    pub(crate) allow_other_base: bool,
    /// Accept changed files: the adapter's, or the base model's configuration or tokenizer.
    #[arg(long)]
    pub(crate) allow_changed: bool,
    /// A table of prompts: `.jsonl`, `.json`, `.parquet`, `.csv` or `.tsv`.
    #[arg(long, value_name = "FILE")]
    pub(crate) input: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) texts: TextArguments,
    /// Prompts are user messages, formatted by the model's chat template.
    #[arg(long, conflicts_with = "plain")]
    pub(crate) chat: bool,
    /// Prompts are plain texts, even if the model was trained on conversations.
    #[arg(long)]
    pub(crate) plain: bool,
    /// System message before the prompt.
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["plain", "input"])]
    pub(crate) system: Option<String>,
    /// Largest number of new tokens.
    #[arg(long, value_name = "N", default_value_t = NEW_TOKENS, value_parser = super::count(), allow_negative_numbers = true)]
    pub(crate) max_tokens: usize,
    /// Sample tokens at this temperature [default: take the most likely token].
    #[arg(long, value_name = "T", value_parser = super::positive, allow_negative_numbers = true)]
    pub(crate) temperature: Option<f64>,
    /// Sample among the most likely tokens that together have this probability [default: 1].
    #[arg(long, value_name = "P", value_parser = super::positive, allow_negative_numbers = true)]
    pub(crate) top_p: Option<f64>,
    /// Number of posterior draws averaged at every token; 0 uses the posterior mean.
    #[arg(long, value_name = "K", default_value_t = 0, value_parser = super::draws(), allow_negative_numbers = true)]
    pub(crate) draws: usize,
    /// Seed of the draws and of sampled tokens [default: the training's].
    #[arg(long, value_name = "N", value_parser = super::seed(), allow_negative_numbers = true)]
    pub(crate) seed: Option<u64>,
    /// List tokens below this probability, with their entropy and mutual information.
    #[arg(long, value_name = "P", value_parser = super::share, allow_negative_numbers = true)]
    pub(crate) unsure: Option<f64>,
    /// Device: cpu, wgpu, cuda:0; the build must include the backend.
    #[arg(long, default_value = "cpu", value_name = "DEVICE")]
    pub(crate) device: String,
}
