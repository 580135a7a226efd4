//! `lrvd predict`

use std::path::{Path, PathBuf};

use anyhow::bail;
use lrvd_bench::Result;
use lrvd_bench::adapter::{Prediction, SavedClassifier, read_inputs, stream_inputs};
use lrvd_bench::data::{Input, table};
use serde::Serialize;

use super::eval::{draws, load};
use super::{Outcome, STDIN};
use crate::args::{InputColumns, PredictArguments};
use crate::exit::ExitStatus;
use crate::printer::{Format, Printer};

/// Version of one answer.
const SCHEMA_VERSION: u32 = 2;

/// One answer as it is written.
#[derive(Serialize)]
struct Answer<'a> {
    text: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pair: Option<&'a str>,
    #[serde(flatten)]
    kind: Kind<'a>,
    draws: usize,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Kind<'a> {
    Class {
        /// Null where the classifier abstains.
        predicted: Option<&'a str>,
        /// Of a question: the text of the choice, null where the classifier abstains.
        #[serde(skip_serializing_if = "Option::is_none")]
        choice: Option<serde_json::Value>,
        probs: &'a [f64],
        entropy: f64,
        mutual_information: Option<f64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        abstained: Option<bool>,
    },
    Score {
        predicted: f64,
        deviation: Option<f64>,
    },
}

#[derive(Serialize)]
struct Line<'a> {
    schema_version: u32,
    #[serde(flatten)]
    answer: Answer<'a>,
}

/// Answers window by window, so that a long input needs little memory.
pub(super) fn run(arguments: PredictArguments, printer: Printer) -> Outcome {
    let limit = arguments.abstain_above;
    if !arguments.pair.is_empty() && arguments.pair.len() != arguments.texts.len() {
        let (pairs, texts) = (arguments.pair.len(), arguments.texts.len());
        bail!("{pairs} `--pair` for {texts} texts; expected one for each");
    }
    let classifier = load(&arguments.classifier, printer)?;
    check_limit(&classifier, limit)?;
    let draws = draws(&arguments.classifier, &classifier)?;
    let limit = match limit {
        Some(limit) => Some(limit),
        None => classifier.abstention(draws)?.map(|fitted| fitted.above),
    };
    let seed = arguments.classifier.seed.unwrap_or(classifier.info.run.seed);
    let mut all = Vec::new();
    let mut done = 0;
    let mut inputs = inputs(arguments, &classifier)?;
    let most = classifier.window(draws);
    // The first answers need not wait for a whole window of inputs.
    let mut size = classifier.info.run.batch_size;
    loop {
        let window: Vec<Input> = inputs.by_ref().take(size).collect::<Result<_, _>>()?;
        if window.is_empty() {
            break;
        }
        let predictions = classifier.predict(&window, draws, seed, done)?;
        done += window.len();
        size = most.min(2 * size);
        for (input, prediction) in window.iter().zip(&predictions) {
            let answer = answer(&classifier, input, prediction, draws, limit);
            match printer.format() {
                Format::Text => {
                    let line = Line { schema_version: SCHEMA_VERSION, answer };
                    if !printer.json_line(&line)? {
                        return Ok(ExitStatus::Done);
                    }
                }
                Format::Json => all.push(serde_json::to_value(&answer)?),
            }
        }
    }
    if printer.format() == Format::Json {
        let document = serde_json::json!({
            "schema_version": SCHEMA_VERSION,
            "labels": classifier.info.goal.classes,
            "predictions": all,
        });
        printer.json(&document)?;
    }
    Ok(ExitStatus::Done)
}

/// A number has no entropy that could be too high.
pub(super) fn check_limit(classifier: &SavedClassifier, limit: Option<f64>) -> Result<()> {
    if limit.is_some() && classifier.info.goal.is_regression() {
        bail!("`--abstain-above` is for classifiers, and this one predicts numbers");
    }
    Ok(())
}

/// What is to be answered, one after the other.
type Inputs = Box<dyn Iterator<Item = Result<Input>>>;

/// Arguments, the rows of a table, or lines of text.
fn inputs(arguments: PredictArguments, classifier: &SavedClassifier) -> Result<Inputs> {
    let InputColumns { text_column, pair_column, choice_columns } = arguments.columns;
    let is_named = text_column.is_some() || pair_column.is_some() || !choice_columns.is_empty();
    let columns = classifier.columns().with(text_column, pair_column, None, choice_columns);
    let is_text = |path: &PathBuf| path.extension().is_some_and(|end| end == "txt");
    let table = match (&arguments.input, arguments.jsonl) {
        (Some(path), true) => Some(read_inputs(path, table::Format::Jsonl, columns)?),
        (Some(path), false) if is_text(path) => None,
        (Some(path), false) => Some(read_inputs(path, table::Format::of(path)?, columns)?),
        (None, true) => {
            let reader = Box::new(std::io::stdin().lock());
            Some(stream_inputs(reader, Path::new(STDIN), columns)?)
        }
        (None, false) => None,
    };
    if let Some(table) = table {
        return Ok(table);
    }
    if is_named {
        bail!(
            "`--text-column`, `--pair-column` and `--choice-columns` need a table: pass `--input FILE`, or `--jsonl`"
        );
    }
    if classifier.info.has_choices() {
        bail!(
            "`{dir}` answers questions with choices, and a text has none; `lrvd predict {dir} --input FILE` answers them",
            dir = arguments.classifier.dir.display()
        );
    }
    if !arguments.texts.is_empty() {
        let mut pairs = arguments.pair.into_iter();
        let inputs = arguments.texts.into_iter().map(move |text| {
            if text.trim().is_empty() {
                bail!("an empty text cannot be classified");
            }
            Ok(Input { pair: pairs.next(), ..Input::text(text) })
        });
        return Ok(Box::new(inputs));
    }
    let lines = match arguments.input {
        Some(path) => table::text_lines(&path)?,
        None => table::texts(Box::new(std::io::stdin().lock()), Path::new(STDIN)),
    };
    Ok(Box::new(lines.map(|line| line.map(Input::text))))
}

fn answer<'a>(
    classifier: &'a SavedClassifier,
    input: &'a Input,
    prediction: &'a Prediction,
    draws: usize,
    limit: Option<f64>,
) -> Answer<'a> {
    let (kind, draws) = match prediction {
        Prediction::Score { score, deviation } => {
            (Kind::Score { predicted: *score, deviation: *deviation }, draws)
        }
        Prediction::Class { probabilities, class, entropy, mutual_information, draws } => {
            let abstained = limit.map(|limit| *entropy > limit);
            let given = |names: &'a [String]| {
                names.get(*class).map(String::as_str).filter(|_| abstained != Some(true))
            };
            let kind = Kind::Class {
                predicted: given(&classifier.info.goal.classes),
                choice: classifier.info.has_choices().then(|| given(&input.choices).into()),
                probs: probabilities,
                entropy: *entropy,
                mutual_information: *mutual_information,
                abstained,
            };
            (kind, *draws)
        }
    };
    Answer { text: &input.text, pair: input.pair.as_deref(), kind, draws }
}
