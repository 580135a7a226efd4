//! `lrvd eval`

use std::path::{Path, PathBuf};

use anyhow::bail;
use clap::Args;
use lrvd_bench::Result;
use lrvd_bench::adapter::{Adapter, Evaluation, OpenOptions, SavedClassifier, evaluate};
use lrvd_bench::data::Split;
use lrvd_bench::task::Task;
use lrvd_burn::device;
use serde_json::json;

use super::{Outcome, language, table};
use crate::args::{AdapterArguments, InputColumns, TextArguments};
use crate::exit::ExitStatus;
use crate::printer::{Format, Printer};

pub(super) const EXAMPLES: &str = "\
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

/// Options of `lrvd eval`.
#[derive(Debug, Args)]
pub(crate) struct EvalArguments {
    #[command(flatten)]
    pub(crate) adapter: AdapterArguments,
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

/// Evaluates and prints.
pub(super) fn run(arguments: EvalArguments, printer: Printer) -> Outcome {
    if Adapter::is_for_texts(&arguments.adapter.dir)? {
        return language::eval(arguments, printer);
    }
    let asked = arguments.adapter.draws;
    let numbers = |classifier: &SavedClassifier| classifier.draws(asked);
    let Evaluated { classifier, data, seed, evaluation, .. } =
        evaluated(&arguments, |_, _| Ok(()), numbers, printer)?;
    let (metrics, reliability) = evaluation.measures();
    match printer.format() {
        Format::Text => printer.data(&table::metrics(&metrics, &reliability))?,
        Format::Json => {
            let body = json!({
                "adapter": classifier.folder().display().to_string(),
                "data": data,
                "rows": evaluation.rows(),
                "labels": classifier.info.goal.classes,
                "seed": seed,
                "metrics": metrics,
                "reliability": reliability,
            });
            printer.document("eval", body)?;
        }
    }
    Ok(ExitStatus::Done)
}

/// A classifier with its answers to labelled examples.
pub(super) struct Evaluated {
    pub(super) classifier: SavedClassifier,
    /// Name of the examples.
    pub(super) data: String,
    pub(super) labelled: Split,
    pub(super) draws: usize,
    pub(super) seed: u64,
    pub(super) evaluation: Evaluation,
}

/// Evaluates what the command line names at the mean and at as many draws as `numbers` says, if `check` passes, and writes the
/// predictions if it asks for them.
pub(super) fn evaluated(
    arguments: &EvalArguments,
    check: impl FnOnce(&SavedClassifier, &Split) -> Result<()>,
    numbers: impl FnOnce(&SavedClassifier) -> Result<usize>,
    printer: Printer,
) -> Result<Evaluated> {
    let out = arguments.out()?;
    let classifier = load(&arguments.adapter, printer)?;
    let (data, labelled) = labelled(&classifier, arguments)?;
    check(&classifier, &labelled)?;
    let draws = numbers(&classifier)?;
    let seed = arguments.adapter.seed.unwrap_or(classifier.info.run.seed);
    let evaluation = evaluate(&classifier, &labelled.examples, draws, seed)?;
    if let Some(file) = out {
        evaluation.write_predictions(file)?;
        printer.note(&format!("predictions: {}", file.display()));
    }
    Ok(Evaluated { classifier, data, labelled, draws, seed, evaluation })
}

/// The labelled examples that the command line names, and their name.
fn labelled(classifier: &SavedClassifier, arguments: &EvalArguments) -> Result<(String, Split)> {
    Ok(match (&arguments.task, &arguments.data_dir, &arguments.data) {
        (Some(task), Some(folder), _) => {
            let task = Task::named_glue(task)?;
            (task.name().to_owned(), classifier.read_task(task, folder)?)
        }
        (_, _, Some(file)) => {
            let label = arguments.label_column.as_ref();
            let rows = read_rows(classifier, file, &arguments.columns, label)?;
            (file.display().to_string(), rows)
        }
        _ => bail!("pass --data, or --task and --data-dir"),
    })
}

/// The labelled rows of `file`, in the columns that the command line names.
pub(super) fn read_rows(
    classifier: &SavedClassifier,
    file: &Path,
    columns: &InputColumns,
    label: Option<&String>,
) -> Result<Split> {
    let InputColumns { text_column, pair_column, choice_columns } = columns.clone();
    let label = label.cloned();
    let columns = classifier.columns().with(text_column, pair_column, label, choice_columns);
    classifier.read_examples(file, &columns)
}

/// Draws of an answer that is given: the mean where the command line names no number, unless it says how draws are made.
pub(super) fn draws(arguments: &AdapterArguments, classifier: &SavedClassifier) -> Result<usize> {
    let is_spared = arguments.policy.policy().asked().is_some();
    classifier.draws(arguments.draws.or((!is_spared).then_some(0)))
}

/// Loads the classifier that the command line names.
pub(super) fn load(arguments: &AdapterArguments, printer: Printer) -> Result<SavedClassifier> {
    let device = device::open(&arguments.device)?;
    let (options, policy) = (open_options(arguments), arguments.policy.policy());
    let classifier = SavedClassifier::load(&arguments.dir, &options, policy, &device)?;
    classifier.warnings.iter().for_each(|note| printer.note(note));
    Ok(classifier)
}

/// How the adapter that the command line names is opened.
pub(super) fn open_options(arguments: &AdapterArguments) -> OpenOptions {
    OpenOptions {
        model: arguments.model.clone(),
        allow_other_base: arguments.allow_other_base,
        allow_changed: arguments.allow_changed,
    }
}
