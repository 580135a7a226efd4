//! Sources of examples, and `lrvd data`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use lrvd_bench::data::NamedColumns;

pub(crate) const CHECK_EXAMPLES: &str = "\
Examples:
  lrvd data check --train reviews.csv              rows, classes, lengths, duplicates
  lrvd data check --train t.tsv --validation v.tsv --model DIR
  lrvd data check --train t.jsonl --model LLAMA-DIR --labels bad,good \\
      --template 'Review: {text}\\nSentiment:' --answers negative,positive
  lrvd data check --train quiz.jsonl --model DIR   rows with `question`, `choices` and `answer`
  lrvd data check --task sst2 --data-dir GLUE --model DIR --max-length 64
  lrvd data check --train chat.jsonl --model LLAMA-DIR   texts for a language model; learnt parts in «»

Takes the data options of `lrvd train`. Reads the data files, and the model's configuration and tokenizer but not its
weights; writes nothing. With a model, lengths are also in tokens and examples are shown with special tokens.";

/// Examples for training and evaluation.
#[derive(Clone, Debug, Args)]
pub(crate) struct ExampleArguments {
    /// Training examples.
    #[arg(long, value_name = "FILE", required_unless_present = "task")]
    pub(crate) train: Option<PathBuf>,
    /// Validation examples [default: a part of the training file, `--validation-split`].
    #[arg(long, value_name = "FILE", requires = "train")]
    pub(crate) validation: Option<PathBuf>,
    /// Share of the training rows to validate on instead of training on; the same rows for every seed [default: 0.1].
    #[arg(long, value_name = "SHARE", value_parser = super::share, requires = "train", conflicts_with = "validation")]
    pub(crate) validation_split: Option<f64>,
    /// Column or key of the text [default: `text`, or else the only one of `sentence`, `query` and `question`; `question` for
    /// questions with choices].
    #[arg(long, value_name = "NAME")]
    pub(crate) text_column: Option<String>,
    /// Column or key of the second text of a pair, or of the passage of a question with choices.
    #[arg(long, value_name = "NAME", conflicts_with = "task")]
    pub(crate) pair_column: Option<String>,
    /// Column or key of the label [default: `label`, or else the only one of `category`, `intent`, `class` and `target`; `answer`
    /// for questions with choices].
    #[arg(long, value_name = "NAME")]
    pub(crate) label_column: Option<String>,
    /// Column or key of a list of choices, one of which is the label; or one column for each choice, comma-separated
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
    /// Prompt of a Llama classifier, with `{text}` and, for pairs, `{pair}`; `\n` is a line break
    /// [default: the task's, or a plain one].
    #[arg(long, value_name = "TEXT")]
    pub(crate) template: Option<String>,
    /// Answers of a Llama classifier: one word for each class in order, one token each after the prompt
    /// [default: the task's, or the labels].
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

/// Columns of a language model's texts.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct TextArguments {
    /// Column or key of a language model's prompt [default: `prompt`].
    #[arg(id = "prompt_column", long = "prompt-column", value_name = "NAME")]
    pub(crate) prompt: Option<String>,
    /// Column or key of the completion, which is learnt [default: `completion`].
    #[arg(id = "completion_column", long = "completion-column", value_name = "NAME")]
    pub(crate) completion: Option<String>,
    /// Key of a conversation, a list of objects with `role` and `content`, or `from` and `value`: the assistant's messages are
    /// learnt [default: `messages`, or else `conversations`, or else `instruction`, `input` and `output`].
    #[arg(
        id = "messages_column",
        long = "messages-column",
        value_name = "NAME",
        conflicts_with_all = ["prompt_column", "completion_column"]
    )]
    pub(crate) messages: Option<String>,
}

impl TextArguments {
    /// The named columns.
    pub(crate) fn named(&self) -> NamedColumns {
        NamedColumns {
            prompt: self.prompt.clone(),
            completion: self.completion.clone(),
            messages: self.messages.clone(),
            ..NamedColumns::default()
        }
    }
}

/// Commands of `lrvd data`.
#[derive(Debug, Subcommand)]
pub(crate) enum DataCommand {
    /// Read the data as training would, and describe them.
    #[command(after_help = CHECK_EXAMPLES)]
    Check(Box<CheckArguments>),
}

/// Options of `lrvd data check`.
#[derive(Debug, Args)]
pub(crate) struct CheckArguments {
    #[command(flatten)]
    pub(crate) examples: ExampleArguments,
    /// The model to be trained: a folder, a `.gguf` file, or a repository `owner/name` on the Hugging Face Hub.
    #[arg(long, value_name = "DIR|GGUF|HUB-ID")]
    pub(crate) model: Option<String>,
    /// Longest input in tokens [default: 128; 1024 for a language model].
    #[arg(long, value_name = "N", value_parser = super::count(), allow_negative_numbers = true)]
    pub(crate) max_length: Option<usize>,
}
