//! `lrvd predict`

use std::error::Error;
use std::io::BufRead;
use std::path::{Path, PathBuf};

use lrvd_bench::classify::{Input, Prediction, SavedClassifier, parse_input};
use lrvd_bench::data::{At, Place};
use serde::Serialize;

use super::Outcome;
use super::eval::load;
use crate::args::PredictArguments;
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

/// Answers batch by batch, so that a long input needs little memory.
pub(super) fn run(arguments: PredictArguments, printer: Printer) -> Outcome {
    let limit = arguments.abstain_above;
    if limit.is_some_and(|limit| limit.is_nan() || limit < 0.0) {
        return Err("`--abstain-above` wants an entropy of 0 or more".into());
    }
    if !arguments.pair.is_empty() && arguments.pair.len() != arguments.texts.len() {
        let (pairs, texts) = (arguments.pair.len(), arguments.texts.len());
        return Err(format!("{pairs} `--pair` for {texts} texts; wanted one for each").into());
    }
    let classifier = load(&arguments.classifier)?;
    if limit.is_some() && classifier.info.goal.is_regression() {
        return Err("`--abstain-above` is for classifiers, and this one predicts numbers".into());
    }
    let draws = classifier.draws(arguments.classifier.draws)?;
    let seed = arguments.classifier.seed.unwrap_or(classifier.info.seed);
    let mut all = Vec::new();
    let mut done = 0;
    let mut inputs = inputs(arguments)?;
    loop {
        let batch: Vec<Input> =
            inputs.by_ref().take(classifier.info.batch_size).collect::<Result<_, _>>()?;
        if batch.is_empty() {
            break;
        }
        let predictions = classifier.predict(&batch, draws, seed, done)?;
        done += batch.len();
        for (input, prediction) in batch.iter().zip(&predictions) {
            let answer = answer(&classifier, input, prediction, draws, limit);
            match printer.format() {
                Format::Text => {
                    let line = Line { schema_version: SCHEMA_VERSION, answer };
                    if !printer.line(&serde_json::to_string(&line)?)? {
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
        printer.data(&serde_json::to_string_pretty(&document)?)?;
    }
    Ok(ExitStatus::Done)
}

type Inputs = Box<dyn Iterator<Item = Result<Input, Box<dyn Error>>>>;

/// Arguments, or the lines of a file or of standard input; blank lines are passed over.
fn inputs(arguments: PredictArguments) -> Result<Inputs, Box<dyn Error>> {
    if !arguments.texts.is_empty() {
        let mut pairs = arguments.pair.into_iter();
        let inputs = arguments.texts.into_iter().map(move |text| {
            if text.trim().is_empty() {
                return Err("an empty text cannot be classified".into());
            }
            Ok(Input { text, pair: pairs.next() })
        });
        return Ok(Box::new(inputs));
    }
    let (name, reader): (PathBuf, Box<dyn BufRead>) = match arguments.input {
        Some(path) => {
            let file = std::fs::File::open(&path)
                .map_err(|error| format!("cannot read `{}`: {error}", path.display()))?;
            (path, Box::new(std::io::BufReader::new(file)))
        }
        None => ("standard input".into(), Box::new(std::io::stdin().lock())),
    };
    let ending = |path: &Path, wanted| path.extension().is_some_and(|e| e == wanted);
    let jsonl = arguments.jsonl || ending(&name, "jsonl") || ending(&name, "ndjson");
    let lines = reader.lines().enumerate().filter_map(move |(i, line)| {
        let place = Place { file: name.clone(), at: At::Line(i + 1) };
        let line = match line {
            Ok(line) => line,
            Err(error) => return Some(Err(format!("{place}: {error}").into())),
        };
        if line.trim().is_empty() {
            return None;
        }
        Some(if jsonl {
            parse_input(&line, &place).map_err(Into::into)
        } else {
            Ok(Input { text: line, pair: None })
        })
    });
    Ok(Box::new(lines))
}

fn answer<'a>(
    classifier: &'a SavedClassifier,
    input: &'a Input,
    prediction: &'a Prediction,
    draws: usize,
    limit: Option<f64>,
) -> Answer<'a> {
    let kind = match prediction {
        Prediction::Score { score, deviation } => {
            Kind::Score { predicted: *score, deviation: *deviation }
        }
        Prediction::Class { probabilities, class, entropy, mutual_information } => {
            let abstained = limit.map(|limit| *entropy > limit);
            let label = classifier.info.goal.classes.get(*class).map(String::as_str);
            Kind::Class {
                predicted: label.filter(|_| abstained != Some(true)),
                probs: probabilities,
                entropy: *entropy,
                mutual_information: *mutual_information,
                abstained,
            }
        }
    };
    Answer { text: &input.text, pair: input.pair.as_deref(), kind, draws }
}
