//! `lrvd eval` and `lrvd predict`

use std::path::{Path, PathBuf};

use anyhow::bail;
use clap::{Args, Subcommand};
use lrvd_bench::Result;
use lrvd_burn::train::DrawPolicy;

use super::TextArguments;

pub(crate) const EVAL_EXAMPLES: &str = "\
Examples:
  lrvd eval runs/mine --data test.tsv
  lrvd eval runs/mine --data test.csv --draws 20 --out predictions.jsonl
  lrvd eval ADAPTER --task sst2 --data-dir GLUE --model microsoft/deberta-v3-base

DIR is the output of `lrvd train`, its adapter folder, or any PEFT adapter of a DeBERTa classifier. The metrics of a language
model are the negative log-likelihood per token, its exponential (the perplexity), next-token accuracy and calibration;
`--out` then has each text's number of tokens and their mean `nll`, by number of draws.

The row k = 0 is the posterior mean; the row k = K averages the probabilities of K fixed draws.
`--out` writes one JSON object a line with the keys of `lrvd predict`; those after `label` are by
number of draws:

  id                   the row, counted from 0, or the example's id
  label                the right answer: the number of a class, counted from 0, or a score
  probs                probabilities in label order, or the one score
  entropy              of the probabilities, nats
  mutual_information   between answer and weights, nats; absent without draws";

pub(crate) const PREDICT_EXAMPLES: &str = "\
Examples:
  lrvd predict runs/mine \"a fine film\" \"not my taste\"
  lrvd predict runs/pairs \"Who wrote it?\" --pair \"It was written by Mary Shelley.\"
  lrvd predict runs/mine < lines.txt
  lrvd predict runs/mine --input texts.csv --draws 10 --abstain-above 0.5 > answers.jsonl

Input: arguments; a table, with the column names of the training unless `--text-column`,
`--pair-column` and `--choice-columns` name others; or one text a line from a `.txt` file or
standard input, or one object a line with `--jsonl`. Questions with choices are rows of tables or
objects. Blank lines are skipped. Texts of similar length share a batch; the output has the order of
the input, one JSON object a line:

  text, pair           the input
  predicted            a label, null if the answer is withheld, or a number for regression
  choice               for a question with choices, whose labels are letters: the text of the choice
  probs                probabilities in label order
  entropy              of the probabilities, nats
  mutual_information   between answer and weights, nats; null without draws
  deviation            for regression: standard deviation over the draws
  abstained            whether the answer is withheld, if there is a threshold
  draws                number of draws averaged; 0 for the posterior mean

The posterior mean takes one pass. With `--draws 10` an answer is the average over ten weight draws, and
their disagreement is the mutual information. On the adapter measured in docs/guides/predict-with-draws.md
ten draws had a slightly higher NLL than the mean, and took 2 to 11 times as long. A threshold
of `lrvd abstain fit` is for one number of draws: pass the same number to both commands.

`lrvd eval --out` has the same keys, with the right answer under `label`.";

pub(crate) const ABSTAIN_EXAMPLES: &str = "\
Examples:
  lrvd abstain fit runs/mine --data held-out.csv                    at most 5 % wrong, with 95 % confidence
  lrvd abstain fit runs/mine --data held-out.csv --risk 0.01 --delta 0.1
  lrvd abstain fit runs/mine --data held-out.csv --draws 10 && lrvd predict runs/mine --draws 10 < lines.txt

The rows must not have been used to train or to select the model; files that were are an error. The threshold is the largest
entropy at which the error rate of given answers on further texts of the same kind is at most RISK, with confidence
1 - DELTA (fixed-sequence testing, Angelopoulos et al. 2021). RISK 0.05 needs at least 59 rows, RISK 0.01 at least 299. The
threshold is saved beside the adapter; `lrvd predict` gives no label above it.";

/// Commands of `lrvd abstain`.
#[derive(Debug, Subcommand)]
pub(crate) enum AbstainCommand {
    /// Fit the entropy above which no answer is given, for a target error rate.
    #[command(after_help = ABSTAIN_EXAMPLES)]
    Fit(Box<AbstainArguments>),
}

/// Options of `lrvd abstain fit`.
#[derive(Debug, Args)]
pub(crate) struct AbstainArguments {
    #[command(flatten)]
    pub(crate) eval: EvalArguments,
    /// Largest error rate of the answers that are given.
    #[arg(long, value_name = "RISK", default_value = "0.05", value_parser = super::share, allow_negative_numbers = true)]
    pub(crate) risk: f64,
    /// Probability that the error rate is larger than RISK; the confidence is 1 - DELTA.
    #[arg(long, value_name = "DELTA", default_value = "0.05", value_parser = super::share, allow_negative_numbers = true)]
    pub(crate) delta: f64,
}

/// Which adapter, on which base model.
#[derive(Debug, Args)]
pub(crate) struct ClassifierArguments {
    /// Output of `lrvd train`, or an adapter folder.
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// Base model [default: the one named by the adapter].
    #[arg(long, value_name = "DIR|GGUF|HUB-ID")]
    pub(crate) model: Option<String>,
    /// Accept a base model with other weights than the adapter was trained on.
    #[arg(long)]
    pub(crate) allow_other_base: bool,
    /// Accept changed files: the adapter's, or the base model's configuration or tokenizer.
    #[arg(long)]
    pub(crate) allow_changed: bool,
    /// Draws of the posterior, or of MC dropout's masks; 0 uses the posterior mean [default: 0; for `eval` the mean
    /// and the number of draws in the training settings]. Draws add the mutual information; ten cost 2 to 11 passes.
    #[arg(long, value_name = "K", value_parser = super::draws(), allow_negative_numbers = true)]
    pub(crate) draws: Option<usize>,
    /// Seed of the draws [default: the training's].
    #[arg(long, value_name = "N", value_parser = super::seed(), allow_negative_numbers = true)]
    pub(crate) seed: Option<u64>,
    #[command(flatten)]
    pub(crate) policy: PolicyArguments,
    /// Device: cpu, wgpu, cuda:0; the build must include the backend.
    #[arg(long, default_value = "cpu", value_name = "DEVICE")]
    pub(crate) device: String,
}

/// How draws are made, and when fewer are enough; `docs/guides/predict-with-draws.md`.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct PolicyArguments {
    /// Draw only if the two largest probabilities at the posterior mean differ by less than this, 0 to 1; other
    /// texts are answered at the mean.
    #[arg(long, value_name = "MARGIN", allow_negative_numbers = true)]
    pub(crate) cascade: Option<f64>,
    /// Stop drawing for a text when the standard error of its top probability is at most this.
    #[arg(long, value_name = "ERROR", allow_negative_numbers = true)]
    pub(crate) tolerance: Option<f64>,
    /// Draw in pairs of opposite noise.
    #[arg(long)]
    pub(crate) antithetic: bool,
}

impl PolicyArguments {
    /// The arguments as a policy, not yet validated.
    pub(crate) fn policy(self) -> DrawPolicy {
        let Self { cascade, tolerance, antithetic } = self;
        DrawPolicy { antithetic, cascade, tolerance, ..DrawPolicy::default() }
    }
}

/// Where the texts are in a table.
#[derive(Clone, Debug, Args)]
pub(crate) struct InputColumns {
    /// Column or key of the text or the question [default: as in training].
    #[arg(long, value_name = "NAME")]
    pub(crate) text_column: Option<String>,
    /// Column or key of the second text or the passage [default: as in training].
    #[arg(long, value_name = "NAME")]
    pub(crate) pair_column: Option<String>,
    /// Column or key of a list of choices, or one column for each choice, comma-separated [default: as in training].
    #[arg(long, value_delimiter = ',', value_name = "NAME|A,B")]
    pub(crate) choice_columns: Vec<String>,
}

/// Options of `lrvd eval`.
#[derive(Debug, Args)]
pub(crate) struct EvalArguments {
    #[command(flatten)]
    pub(crate) classifier: ClassifierArguments,
    /// Labelled examples: `.tsv`, `.csv`, `.jsonl`, `.json` or `.parquet`.
    #[arg(long, value_name = "FILE", required_unless_present = "task")]
    pub(crate) data: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) columns: InputColumns,
    /// Column or key of the label [default: as in training].
    #[arg(long, value_name = "NAME")]
    pub(crate) label_column: Option<String>,
    #[command(flatten)]
    pub(crate) language: TextArguments,
    /// The validation split of a GLUE task instead of a file.
    #[arg(long, value_name = "NAME", requires = "data_dir", conflicts_with_all = ["data", "text_column", "pair_column", "choice_columns", "label_column"])]
    pub(crate) task: Option<String>,
    /// Folder of the GLUE data.
    #[arg(long, value_name = "DIR", requires = "task")]
    pub(crate) data_dir: Option<PathBuf>,
    /// File for the predictions, one JSON object per line.
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Replace the file of `--out` if it exists.
    #[arg(long, requires = "out")]
    pub(crate) force: bool,
}

impl EvalArguments {
    /// The file for the predictions, which must not exist without `--force`.
    pub(crate) fn out(&self) -> Result<Option<&Path>> {
        match self.out.as_deref() {
            Some(file) if file.exists() && !self.force => {
                bail!("`{}` exists: `--force` replaces it", file.display())
            }
            file => Ok(file),
        }
    }
}

/// Options of `lrvd predict`.
#[derive(Debug, Args)]
pub(crate) struct PredictArguments {
    #[command(flatten)]
    pub(crate) classifier: ClassifierArguments,
    /// Texts [default: lines of standard input].
    #[arg(value_name = "TEXT")]
    pub(crate) texts: Vec<String>,
    /// Second text of each pair; once for each text.
    #[arg(long, value_name = "TEXT", requires = "texts")]
    pub(crate) pair: Vec<String>,
    /// A table (`.tsv`, `.csv`, `.jsonl`, `.json`, `.parquet`), or `.txt` with one text a line [default: standard input].
    #[arg(long, value_name = "FILE", conflicts_with = "texts")]
    pub(crate) input: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) columns: InputColumns,
    /// Read the input as JSONL, whatever its name.
    #[arg(long, conflicts_with = "texts")]
    pub(crate) jsonl: bool,
    /// Give no label if the entropy is above this many nats [default: the threshold of `lrvd abstain fit`, if any].
    #[arg(long, value_name = "NATS", value_parser = super::entropy, allow_negative_numbers = true)]
    pub(crate) abstain_above: Option<f64>,
}
