//! `lrvd generate`

use std::path::PathBuf;

use clap::Args;
use lrvd_bench::language::NEW_TOKENS;

use super::TextArguments;

pub(crate) const EXAMPLES: &str = "\
Examples:
  lrvd generate runs/mine \"Question: Why is the sky blue?\"
  lrvd generate runs/chat \"Why is the sky blue?\" --draws 10 --unsure 0.3
  lrvd generate runs/mine --input prompts.jsonl --max-tokens 64 > answers.jsonl
  lrvd generate --model SmolLM2-135M \"Once upon a time\" --temperature 0.8 --top-p 0.95 --seed 3

DIR is the output of `lrvd train` on texts, one of its checkpoints, or any PEFT adapter of a Llama for the task
`CAUSAL_LM`. Without one `--model` names a base model, and all arguments are prompts.

A prompt is a plain text, or with `--chat`, and where the model was trained on conversations, what a user says: the
folder's chat template goes around it. Tables have a column `prompt` or `messages`; other prompts come one a line from
standard input.

With `--draws` the probabilities of K weight draws are averaged at every token; the same draws serve the whole text. One
prompt is answered by its text. More of them, and a table, are answered by one JSON object a line: prompt, text,
stopped, and the mean log-probability of a token. `--format json` has beside these for every token:

  text, id             the token
  probability          averaged over the draws, before temperature and truncation
  entropy              of the next token, nats
  mutual_information   between the next token and the weights, nats; null without several draws";

/// Options of `lrvd generate`.
#[derive(Debug, Args)]
pub(crate) struct GenerateArguments {
    /// The adapter, then prompts [default: lines of standard input].
    #[arg(value_name = "DIR] [PROMPT")]
    pub(crate) arguments: Vec<String>,
    /// Base model [default: the one that the adapter names]; without an adapter it answers alone.
    #[arg(long, value_name = "DIR|HUB-ID")]
    pub(crate) model: Option<String>,
    /// Use a base model whose weights are not those that the adapter was trained on.
    #[arg(long)]
    pub(crate) allow_other_base: bool,
    /// A table of prompts: `.jsonl`, `.parquet`, `.csv` or `.tsv`.
    #[arg(long, value_name = "FILE")]
    pub(crate) input: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) texts: TextArguments,
    /// Prompts are what a user says, by the model's chat template.
    #[arg(long, conflicts_with = "plain")]
    pub(crate) chat: bool,
    /// Prompts are plain texts, also where the model was trained on conversations.
    #[arg(long)]
    pub(crate) plain: bool,
    /// What the system says before the user.
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["plain", "input"])]
    pub(crate) system: Option<String>,
    /// Most new tokens.
    #[arg(long, value_name = "N", default_value_t = NEW_TOKENS, value_parser = super::count(), allow_negative_numbers = true)]
    pub(crate) max_tokens: usize,
    /// Draw tokens at this temperature [default: take the most likely one].
    #[arg(long, value_name = "T", value_parser = super::positive, allow_negative_numbers = true)]
    pub(crate) temperature: Option<f64>,
    /// Draw among the most likely tokens that together have this probability [default: 1].
    #[arg(long, value_name = "P", value_parser = super::positive, allow_negative_numbers = true)]
    pub(crate) top_p: Option<f64>,
    /// Draws of the posterior that are averaged at every token; 0 answers at the mean.
    #[arg(long, value_name = "K", default_value_t = 0, value_parser = super::draws(), allow_negative_numbers = true)]
    pub(crate) draws: usize,
    /// Seed of the draws, and of drawn tokens [default: that of the training].
    #[arg(long, value_name = "N", value_parser = super::seed(), allow_negative_numbers = true)]
    pub(crate) seed: Option<u64>,
    /// List the tokens that have less than this probability, with their entropy and mutual information.
    #[arg(long, value_name = "P", value_parser = super::share, allow_negative_numbers = true)]
    pub(crate) unsure: Option<f64>,
    /// Device: cpu, wgpu, cuda:0; a backend must be built in.
    #[arg(long, default_value = "cpu", value_name = "DEVICE")]
    pub(crate) device: String,
}
