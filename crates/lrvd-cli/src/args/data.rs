//! Where examples come from, and `lrvd data`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use lrvd_bench::language::NamedColumns;

pub(crate) const CHECK_EXAMPLES: &str = "\
Examples:
  lrvd data check --train reviews.csv              rows, classes, lengths, what is there twice
  lrvd data check --train t.tsv --validation v.tsv --model DIR
  lrvd data check --train t.jsonl --model LLAMA-DIR --labels bad,good \\
      --template 'Review: {text}\\nSentiment:' --answers negative,positive
  lrvd data check --train quiz.jsonl --model DIR   rows with `question`, `choices` and `answer`
  lrvd data check --task sst2 --data-dir GLUE --model DIR --max-length 64
  lrvd data check --train chat.jsonl --model LLAMA-DIR   texts for a language model, what is learnt in «»

Takes what `lrvd train` takes and reads the files, and of a model its configuration and tokenizer: no weights, nothing
is written. With a model lengths are in tokens too, and the examples are what it reads, special tokens included.";

/// Examples for training and for measuring.
#[derive(Debug, Args)]
pub(crate) struct ExampleArguments {
    /// Training examples.
    #[arg(long, value_name = "FILE", required_unless_present = "task")]
    pub(crate) train: Option<PathBuf>,
    /// Examples to measure on [default: a part of the training file, `--validation-split`].
    #[arg(long, value_name = "FILE", requires = "train")]
    pub(crate) validation: Option<PathBuf>,
    /// Share of the training rows that are measured on and not trained on, drawn once, the same ones for every seed
    /// [default: 0.1].
    #[arg(long, value_name = "SHARE", value_parser = super::share, requires = "train", conflicts_with = "validation")]
    pub(crate) validation_split: Option<f64>,
    /// Column or key of the text [default: `text`, of a question with choices `question`].
    #[arg(long, value_name = "NAME")]
    pub(crate) text_column: Option<String>,
    /// Column or key of the second text, for pairs; of the passage that a question with choices is about.
    #[arg(long, value_name = "NAME", conflicts_with = "task")]
    pub(crate) pair_column: Option<String>,
    /// Column or key of the label [default: `label`, of the right choice `answer`].
    #[arg(long, value_name = "NAME")]
    pub(crate) label_column: Option<String>,
    /// Column or key of a list of choices, of which the label is one; or the column of each, by commas
    /// [default: `choices`, if a row has `question`, `choices` and `answer`].
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "NAME|A,B",
        conflicts_with_all = ["task", "regression", "labels", "template", "answers"]
    )]
    pub(crate) choice_columns: Vec<String>,
    /// Labels in the order of their class ids [default: those of the training file, sorted].
    #[arg(long, value_delimiter = ',', value_name = "A,B", conflicts_with_all = ["task", "regression"])]
    pub(crate) labels: Vec<String>,
    /// Learn numbers instead of classes.
    #[arg(long, conflicts_with = "task")]
    pub(crate) regression: bool,
    /// Prompt of a Llama: `{text}` and, for pairs, `{pair}` stand for the texts, `\n` for a line break
    /// [default: the task's own, or a plain one].
    #[arg(long, value_name = "TEXT")]
    pub(crate) template: Option<String>,
    /// Words by which a Llama answers, one for each class in its order, each one token after the prompt
    /// [default: the task's own, or the labels].
    #[arg(long, value_delimiter = ',', value_name = "A,B", conflicts_with = "regression")]
    pub(crate) answers: Vec<String>,
    #[command(flatten)]
    pub(crate) texts: TextArguments,
    /// A GLUE task instead of files: cola, sst2, mrpc, qqp, mnli, qnli, rte, stsb.
    #[arg(long, value_name = "NAME", requires = "data_dir", conflicts_with = "train")]
    pub(crate) task: Option<String>,
    /// Folder of the GLUE data.
    #[arg(long, value_name = "DIR", requires = "task")]
    pub(crate) data_dir: Option<PathBuf>,
}

/// Columns of texts that a language model learns.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct TextArguments {
    /// Column or key of a language model's prompt [default: `prompt`].
    #[arg(id = "prompt_column", long = "prompt-column", value_name = "NAME")]
    pub(crate) prompt: Option<String>,
    /// Column or key of what should follow it, which is learnt [default: `completion`].
    #[arg(id = "completion_column", long = "completion-column", value_name = "NAME")]
    pub(crate) completion: Option<String>,
    /// Key of a conversation, a list of objects with `role` and `content`: what the assistant says is learnt
    /// [default: `messages`].
    #[arg(
        id = "messages_column",
        long = "messages-column",
        value_name = "NAME",
        conflicts_with_all = ["prompt_column", "completion_column"]
    )]
    pub(crate) messages: Option<String>,
}

impl TextArguments {
    /// The columns that are named.
    pub(crate) fn named(&self) -> NamedColumns {
        NamedColumns {
            prompt: self.prompt.clone(),
            completion: self.completion.clone(),
            messages: self.messages.clone(),
        }
    }
}

/// What `lrvd data` can do.
#[derive(Debug, Subcommand)]
pub(crate) enum DataCommand {
    /// Read the data as training would, and say what is in them.
    #[command(after_help = CHECK_EXAMPLES)]
    Check(Box<CheckArguments>),
}

/// Options of `lrvd data check`.
#[derive(Debug, Args)]
pub(crate) struct CheckArguments {
    #[command(flatten)]
    pub(crate) examples: ExampleArguments,
    /// The model that is to read them: a folder, a `.gguf` file, or a repository `owner/name` on the Hugging Face Hub.
    #[arg(long, value_name = "DIR|GGUF|HUB-ID")]
    pub(crate) model: Option<String>,
    /// Longest input in tokens [default: 128, for a language model 1024].
    #[arg(long, value_name = "N", value_parser = super::count(), allow_negative_numbers = true)]
    pub(crate) max_length: Option<usize>,
}
