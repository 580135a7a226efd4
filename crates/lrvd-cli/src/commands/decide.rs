//! `lrvd decide`, and how answers to typed questions are written.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, anyhow, bail};
use burn::tensor::Device;
use clap::Args;
use lrvd_bench::adapter::{Adapter, AskedRows, Base, Decided, SavedClassifier};
use lrvd_bench::answers::Readout;
use lrvd_bench::answers::{Invalid, Question, QuestionKind, questions, state};
use lrvd_bench::data::table::BadRow;
use lrvd_bench::data::{Asked, At, Example, Place, table};
use lrvd_bench::{Kind, Result, decimals, kind_of, read_unique};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::answers::{Answers, InputArguments, Origin, Skipped, waits_for_lines};
use super::eval::{draws, load};
use super::table::table;
use super::{Outcome, STDIN};
use crate::args::{self, AdapterArguments, AnswerArguments, InputColumns, heading};
use crate::exit::ExitStatus;
use crate::printer::Printer;
use crate::rows::Row;

#[derive(Debug, Args)]
pub(crate) struct DecideArguments {
    #[command(flatten)]
    pub(crate) adapter: AdapterArguments,
    /// State that the questions are about: a text or `@FILE`.
    ///
    /// A `.json` file is an object, a list or a string.
    #[arg(long, value_name = "TEXT|@FILE", help_heading = heading::DATA)]
    pub(crate) state: String,
    /// Questions by their ids [default: the question of the training].
    ///
    /// An object, each of whose questions has `type`, `instructions` and `criteria`. There is a default if the training had one
    /// question.
    #[arg(long, value_name = "FILE.json", help_heading = heading::DATA)]
    pub(crate) questions: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) readout: ReadoutArguments,
}

/// Readout of a language model without an adapter.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct ReadoutArguments {
    /// Readout of a language model without an adapter [default: options].
    ///
    /// The answer is read at the texts of the options, or at letters. An adapter has the readout of its training.
    #[arg(long, help_heading = heading::MODEL, value_name = "NAME", value_parser = args::one_of(&Readout::OF_OPTIONS, Readout::name))]
    pub(crate) readout: Option<Readout>,
}

/// An answer as it is written.
#[derive(Serialize)]
struct DecidedRow<'a> {
    /// The row's own id or its number from 0, where there are rows.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    /// Its line or row in a file.
    #[serde(flatten)]
    at: Option<At>,
    question: &'a str,
    r#type: QuestionKind,
    /// The name of the most probable option; null if it is withheld.
    answer: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    score: Option<f64>,
    probabilities: Map<String, Value>,
    confidence: f64,
    entropy: f64,
    mutual_information: Option<f64>,
    draws_deviation: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    threshold: Option<f64>,
    abstained: bool,
    draws: usize,
    calibrated: bool,
}

impl<'a> DecidedRow<'a> {
    fn new(id: Option<&'a str>, at: Option<At>, question: &'a str, decided: &'a Decided) -> Self {
        let pairs = decided.names.iter().zip(&decided.probabilities);
        let name = decided.names.get(decided.choice).map(String::as_str);
        Self {
            id,
            at,
            question,
            r#type: decided.kind,
            answer: name.filter(|_| !decided.abstained),
            score: decided.score,
            probabilities: pairs.map(|(name, &p)| (name.clone(), json!(p))).collect(),
            confidence: decided.confidence,
            entropy: decided.entropy,
            mutual_information: decided.mutual_information,
            draws_deviation: decided.draws_deviation,
            threshold: decided.threshold,
            abstained: decided.abstained,
            draws: decided.draws,
            calibrated: decided.calibrated,
        }
    }
}

pub(super) fn run(arguments: DecideArguments, printer: Printer) -> Outcome {
    let DecideArguments { adapter, state: given, questions: file, readout } = arguments;
    let text = read_state(&given)?;
    let asked = file.as_deref().map(read_questions).transpose()?;
    let classifier = open(&adapter, readout, printer)?;
    let asked = match (asked, &classifier.usual_question()) {
        (Some(asked), _) => asked,
        (None, Some(question)) => vec![("answer".to_owned(), question.clone())],
        (None, None) => bail!("pass --questions: this model answers any typed question"),
    };
    let draws = draws(&adapter.answers, &classifier, None)?;
    printer.notes(&classifier.thresholds(None, draws));
    let seed = adapter.answers.seed.unwrap_or(classifier.info.run.seed);
    let (ids, questions): (Vec<String>, Vec<Question>) = asked.into_iter().unzip();
    let found = classifier.decide(&text, &questions, draws, seed, None)?;
    let named = |(id, found): (&String, Result<Decided, Invalid>)| {
        found.map_err(|wrong| {
            let file =
                file.as_ref().map_or_else(String::new, |file| format!("`{}`, ", file.display()));
            anyhow!("{file}key {}", wrong.below(id))
        })
    };
    let found = ids.iter().zip(found).map(named).collect::<Result<Vec<_>>>()?;
    printer.notes(&classifier.cut_note());
    let answers: Vec<DecidedRow<'_>> = ids
        .iter()
        .zip(&found)
        .map(|(id, decided)| DecidedRow::new(None, None, id, decided))
        .collect();
    let tokens: usize = found.iter().map(|decided| decided.tokens).sum();
    let body = json!({ "seed": seed, "answers": answers, "input_tokens": tokens });
    let rows = |_: &Value| Row::each(&answers);
    printer.report_rows("decide", &body, rows, |_| shown(&ids, &questions, &found))?;
    Ok(ExitStatus::Done)
}

/// The classifier in a folder, or a language model without an adapter.
fn open(
    adapter: &AdapterArguments,
    readout: ReadoutArguments,
    printer: Printer,
) -> Result<SavedClassifier> {
    let AdapterArguments { dir, answers } = adapter;
    match base_alone(dir, answers, readout)? {
        Some(base) => untrained(&base, readout, &answers.device.open(printer)?, printer),
        None => load(adapter, printer),
    }
}

/// The language model that `dir` is, if it holds no adapter.
pub(super) fn base_alone(
    dir: &Path,
    answers: &AnswerArguments,
    readout: ReadoutArguments,
) -> Result<Option<Base>> {
    if Adapter::is_at(dir)? || answers.open().model.is_some() {
        if readout.readout.is_some() {
            bail!(
                "`--readout` is for a language model without an adapter, and `{}` has the readout of its training",
                dir.display()
            );
        }
        return Ok(None);
    }
    if answers.policy().needs_draws().is_some() {
        bail!("`--cascade` and `--antithetic`: a model without an adapter has no draws");
    }
    Base::open(&dir.display().to_string(), answers.open().packing).map(Some)
}

pub(super) fn untrained(
    base: &Base,
    readout: ReadoutArguments,
    device: &Device,
    printer: Printer,
) -> Result<SavedClassifier> {
    let model = SavedClassifier::untrained(base, readout.readout.unwrap_or_default(), device)?;
    printer.note("the model has no adapter: its probabilities are not calibrated");
    Ok(model)
}

/// A text, or that of a file; a `.json` file is rendered.
fn read_state(given: &str) -> Result<String> {
    let Some(name) = given.strip_prefix('@') else {
        let text = given.trim();
        return if text.is_empty() {
            Err(anyhow!("`--state` is empty"))
        } else {
            Ok(text.to_owned())
        };
    };
    let file = Path::new(name);
    if file.extension().is_some_and(|end| end == "json") {
        return state(&read_unique(file)?).map_err(|error| anyhow!("`{name}`, key {error}"));
    }
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read `{name}`"))?;
    match text.trim() {
        "" => Err(anyhow!("`{name}` is empty")),
        text => Ok(text.to_owned()),
    }
}

fn read_questions(file: &Path) -> Result<Vec<(String, Question)>> {
    questions(&read_unique(file)?).map_err(|error| {
        let at = if error.path.is_empty() {
            String::new()
        } else {
            format!(", key `{}`", error.path.join("."))
        };
        anyhow!("`{}`{at}: {}", file.display(), error.message)
    })
}

/// The option that is answered, of a score with its words.
fn named(question: &Question, decided: &Decided) -> String {
    let option = &question.options[decided.choice];
    match (&option.description, decided.score) {
        (Some(words), Some(score)) => format!("{}: {words} ({score:.2})", option.name),
        _ => option.name.clone(),
    }
}

/// The answers as a table.
fn shown(ids: &[String], questions: &[Question], found: &[Decided]) -> String {
    let mut header = vec!["question", "answer", "probability", "confidence", "entropy"];
    let drawn = found.iter().any(|decided| decided.mutual_information.is_some());
    header.extend(drawn.then_some("mutual inf."));
    let withheld = found.iter().any(|decided| decided.abstained);
    header.extend(withheld.then_some("withheld below"));
    let row = |((id, question), decided): ((&String, &Question), &Decided)| {
        let answer = named(question, decided);
        let answer = if decided.abstained { format!("withheld ({answer})") } else { answer };
        let probability = 100.0 * decided.probabilities[decided.choice];
        let mut cells = vec![id.clone(), answer, format!("{probability:.1} %")];
        cells.extend([decided.confidence, decided.entropy].map(|value| decimals(value, 4)));
        let or = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |v| decimals(v, 4));
        cells.extend(drawn.then(|| or(decided.mutual_information)));
        cells.extend(withheld.then(|| or(decided.threshold)));
        cells
    };
    table(&header, ids.iter().zip(questions).zip(found).map(row).collect())
}

/// Writes the answers to the rows of a file, to texts or to lines.
pub(super) fn predict(
    input: InputArguments,
    adapter: &AdapterArguments,
    classifier: &SavedClassifier,
    mut written: Answers,
    printer: Printer,
) -> Outcome {
    if !input.kept().is_empty() {
        bail!(
            "`--keep` is not for typed questions: their answers have the `id` and the line of the row"
        );
    }
    let draws = draws(&adapter.answers, classifier, None)?;
    printer.notes(&classifier.thresholds(None, draws));
    let seed = adapter.answers.seed.unwrap_or(classifier.info.run.seed);
    let mut skipped = Skipped::new(&input);
    let mut rows = 0;
    let strict = adapter.answers.open().strict;
    if input.input.is_none() && input.texts.is_empty() {
        waits_for_lines(printer);
    }
    for row in rows_of(input, classifier)? {
        rows += 1;
        let answered = row.and_then(|row| {
            let asked = std::slice::from_ref(&row.input.question);
            let found = classifier.decide(&row.input.state, asked, draws, seed, None);
            let wrong = |reason: String| {
                let error = anyhow!("{}: question `{}`, key {reason}", row.place, row.id);
                BadRow::error(&row.place, error)
            };
            let found = found.map_err(|error| match kind_of(&error) {
                Some(Kind::Input) => BadRow::error(&row.place, anyhow!("{}: {error:#}", row.place)),
                _ => error,
            })?;
            let found = found.into_iter().next();
            let found = found.transpose().map_err(|error| wrong(error.to_string()))?;
            Ok((row, found))
        });
        let (row, found) = match answered {
            Ok(answered) => answered,
            Err(error) => {
                let Some(at) = BadRow::at(&error) else { return Err(error) };
                let error = skipped.add(error)?;
                if !written.write_none(&Origin::of(at), &error)? {
                    return Ok(ExitStatus::Done);
                }
                continue;
            }
        };
        let Example { id, place, input: Asked { state, id: key, question }, .. } = row;
        let Some(decided) = found else { continue };
        let row = id.strip_suffix(&format!("/{key}")).unwrap_or(&id);
        let key = if key.is_empty() { "answer" } else { &key };
        let answer = DecidedRow::new(Some(row), Some(place.at), key, &decided);
        let shown = || {
            let answer = named(&question, &decided);
            let state = state.lines().next().unwrap_or_default();
            let note = if decided.abstained { "withheld: " } else { "" };
            format!("{state}\n  {key}: {note}{answer}, confidence {:.4}", decided.confidence)
        };
        if !written.write(&answer, &answer, shown)? {
            return Ok(ExitStatus::Done);
        }
    }
    printer.notes(&classifier.cut_note());
    if rows == 0 {
        bail!("there is no text to answer");
    }
    skipped.report(rows, strict, printer)?;
    written.finish(|all| json!({ "predictions": all }))
}

/// The questions of a table or a stream, or the one of the training for texts and lines.
fn rows_of(arguments: InputArguments, classifier: &SavedClassifier) -> Result<AskedRows> {
    let InputColumns { text_column, pair_column, choice_columns } = arguments.columns;
    if !arguments.pair.is_empty() || pair_column.is_some() {
        bail!("a typed question is about one state: leave out pairs");
    }
    let columns = classifier.columns().with(text_column, None, None, choice_columns);
    let is_text = |path: &PathBuf| path.extension().is_some_and(|end| end == "txt");
    match (&arguments.input, arguments.jsonl) {
        (Some(path), is_jsonl) if is_jsonl || !is_text(path) => {
            let format = is_jsonl.then_some(table::Format::Jsonl);
            return classifier.read_asked(path, format, columns);
        }
        (None, true) => {
            let reader = Box::new(std::io::stdin().lock());
            return classifier.stream_asked(reader, Path::new(STDIN), columns);
        }
        _ => {}
    }
    let dir = classifier.folder().display();
    let Some(question) = classifier.usual_question() else {
        bail!(
            "`{dir}` answers typed questions, and a text has none: pass rows with `state` and `questions` by `--input FILE`, \
             or `lrvd decide {dir} --state TEXT --questions FILE.json`"
        );
    };
    let lines: table::TextLines = match (arguments.input, arguments.texts) {
        (Some(path), _) => table::text_lines(&path)?,
        (None, texts) if !texts.is_empty() => {
            let file: Arc<Path> = Path::new("the arguments").into();
            let place = move |row: usize| Place { file: Arc::clone(&file), at: At::Line(row + 1) };
            Box::new(texts.into_iter().enumerate().map(move |(row, text)| Ok((place(row), text))))
        }
        (None, _) => table::texts(Box::new(std::io::stdin().lock()), Path::new(STDIN)),
    };
    Ok(Box::new(lines.enumerate().map(move |(row, line)| {
        let ((place, state), id, question) = (line?, String::new(), question.clone());
        if state.trim().is_empty() {
            return Err(BadRow::error(
                &place,
                anyhow!("{place}: an empty text cannot be decided on"),
            ));
        }
        Ok(Example { id: row.to_string(), place, input: Asked { state, id, question }, label: () })
    })))
}
