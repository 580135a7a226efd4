//! `lrvd predict`

use std::path::{Path, PathBuf};

use anyhow::bail;
use clap::Args;
use lrvd_bench::adapter::{
    Abstaining, InputRow, JudgedAnswer, LabelSets, Reason, RowAnswer, SavedClassifier, read_inputs,
    stream_inputs,
};
use lrvd_bench::answers::AnswerSpace;
use lrvd_bench::data::{Input, KeptCells, Place, ReadOptions, table};
use lrvd_bench::method::Intervals;
use lrvd_bench::{Error, Kind as ErrorKind, Result, kind_of};
use serde::Serialize;
use serde_json::{Value, json};

use super::abstain::WithholdArguments;
use super::answers::{Answers, InputArguments, Origin, OutputArguments, Rows, Skipped, Window};
use super::eval::{OwnRows, draws, load};
use super::{Outcome, STDIN, decide};
use crate::args::{self, AdapterArguments, AnswerArguments, InputColumns, heading};
use crate::printer::Printer;

#[derive(Debug, Args)]
pub(crate) struct PredictArguments {
    #[command(flatten)]
    pub(crate) adapter: AdapterArguments,
    #[command(flatten)]
    pub(crate) input: InputArguments,
    #[command(flatten)]
    pub(crate) output: OutputArguments,
    #[command(flatten)]
    pub(crate) withhold: WithholdArguments,
    #[command(flatten)]
    pub(crate) sets: SetArguments,
    /// List all labels in a terminal, instead of the five most probable.
    #[arg(long, help_heading = heading::OUTPUT)]
    pub(crate) all: bool,
}

/// Sets of labels beside the answers.
#[derive(Clone, Debug, Args)]
pub(crate) struct SetArguments {
    /// Labels that miss the right one for a share ALPHA of the texts.
    ///
    /// ALPHA 0.1 gives sets that hold the right label in 90 %. They follow from the run's answers to its validation rows, or
    /// where these chose the model to rows that were held out for its temperature alone.
    #[arg(long, value_name = "ALPHA", value_parser = args::share, allow_negative_numbers = true, help_heading = heading::ANSWERS)]
    pub(crate) sets: Option<f64>,
    /// Labelled rows for `--sets`, which the run has not used, in place of those of the run.
    #[arg(long, value_name = "FILE", requires = "sets", help_heading = heading::ANSWERS, hide_short_help = true)]
    sets_data: Option<PathBuf>,
}

impl SetArguments {
    /// The rule of the sets that are asked for, with a note on it; `columns` are those of its rows.
    pub(super) fn rule(
        &self,
        classifier: &SavedClassifier,
        (answers, columns): (&AnswerArguments, &InputColumns),
        draws: usize,
        printer: Printer,
    ) -> Result<Option<LabelSets>> {
        let Some(alpha) = self.sets else { return Ok(None) };
        if answers.policy().needs_draws().is_some() {
            bail!(
                "`--sets` is for answers of one number of draws: leave out `--cascade` and `--antithetic`"
            );
        }
        let found = match &self.sets_data {
            None => LabelSets::of_run(classifier, alpha, draws)?,
            Some(file) => {
                let own = OwnRows {
                    columns,
                    label: None,
                    reading: &ReadOptions::default(),
                    strict: answers.open().strict,
                };
                let rows = own.read(classifier, file, printer)?;
                let seed = answers.seed.unwrap_or(classifier.info.run.seed);
                LabelSets::of_rows(classifier, &rows, alpha, draws, seed)?
            }
        };
        printer.note(&found.describe());
        Ok(Some(found))
    }
}

/// Labels of an answer in a terminal.
const SHOWN: usize = 5;

#[derive(Serialize)]
struct PredictedRow<'a> {
    #[serde(flatten)]
    origin: &'a Origin,
    text: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pair: Option<&'a str>,
    #[serde(flatten)]
    kind: Kind<'a>,
    draws: usize,
}

/// An answer as a line, which names what its probabilities are of.
#[derive(Serialize)]
struct Line<'a> {
    #[serde(flatten)]
    answer: &'a PredictedRow<'a>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    labels: &'a [String],
}

#[derive(Serialize)]
#[serde(untagged)]
enum Kind<'a> {
    Class {
        /// Null where the classifier abstains.
        predicted: Option<&'a str>,
        /// Of a question: the text of the choice, null where the classifier abstains.
        #[serde(skip_serializing_if = "Option::is_none")]
        choice: Option<Value>,
        probs: &'a [f64],
        entropy: f64,
        mutual_information: Option<f64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        abstained: Option<bool>,
        /// Reason for which the classifier abstains.
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<Reason>,
        /// Labels among which the right one is, where they are asked for.
        #[serde(skip_serializing_if = "Option::is_none")]
        set: Option<Vec<&'a str>>,
    },
    Labels {
        /// Labels from their thresholds on.
        predicted: Vec<&'a str>,
        probs: &'a [f64],
        entropy: f64,
        mutual_information: Option<f64>,
    },
    Score {
        predicted: f64,
        interval: Option<[f64; 2]>,
        interval_level: Option<f64>,
        draws_deviation: Option<f64>,
    },
}

pub(super) fn run(arguments: PredictArguments, printer: Printer) -> Outcome {
    arguments.input.check()?;
    let mut written = Answers::new("predict", printer).into_file(&arguments.output)?;
    let classifier = load(&arguments.adapter, printer)?;
    let asked = arguments.withhold.asked();
    let is_typed = matches!(
        classifier.info.goal.answers,
        AnswerSpace::Question { .. } | AnswerSpace::Questions { .. }
    );
    if is_typed {
        if arguments.sets.sets.is_some() {
            bail!("`--sets` is for classifiers with one class for each text");
        }
        let draws = draws(&arguments.adapter.answers, &classifier, asked)?;
        classifier.withheld(asked, draws)?;
        return decide::predict(arguments.input, &arguments.adapter, &classifier, written, printer);
    }
    let draws = draws(&arguments.adapter.answers, &classifier, asked)?;
    let abstaining = Abstaining::open(&classifier, asked, draws)?;
    printer.notes(&classifier.thresholds(asked, draws));
    let seed = arguments.adapter.answers.seed.unwrap_or(classifier.info.run.seed);
    let reading = (&arguments.adapter.answers, &arguments.input.columns);
    let sets = arguments.sets.rule(&classifier, reading, draws, printer)?;
    let most_labels = if arguments.all { usize::MAX } else { SHOWN };
    let labels = &classifier.info.goal.answers.names();
    let skipped = Skipped::new(&arguments.input);
    let strict = arguments.adapter.answers.open().strict;
    let inputs = inputs_of(arguments.input, &arguments.adapter.dir, &classifier, printer)?;
    let windows = Windows { classifier: &classifier, draws, skipped };
    let ask = |inputs: &[Input], done| {
        let found = classifier.predict(inputs, draws, seed, done)?;
        abstaining.judge(&classifier, inputs, found, (draws, done))
    };
    windows.run(inputs, (strict, printer), ask, |origin, found| {
        let (input, prediction) = match found {
            Ok(found) => found,
            Err(error) => return written.write_none(origin, error),
        };
        let answer = answer(&classifier, labels, origin, input, prediction, draws, sets.as_ref());
        let shown = || shown(&answer, labels, &input.choices, most_labels);
        written.write(&answer, &Line { answer: &answer, labels }, shown)
    })?;
    printer.notes(&classifier.cut_note());
    written.finish(|all| json!({ "labels": labels, "predictions": all }))
}

/// Inputs that are answered window by window: a long input needs little memory.
pub(super) struct Windows<'a> {
    pub(super) classifier: &'a SavedClassifier,
    pub(super) draws: usize,
    pub(super) skipped: Skipped,
}

impl Windows<'_> {
    /// Passes inputs to `ask`, with the number of rows before them, and what is found of every row in order to `write`, until it
    /// returns false.
    pub(super) fn run<A>(
        self,
        mut inputs: Rows<InputRow>,
        (strict, printer): (bool, Printer),
        mut ask: impl FnMut(&[Input], usize) -> Result<Vec<A>>,
        mut write: impl FnMut(&Origin, Result<(&Input, &A), &Error>) -> Result<bool>,
    ) -> Result<()> {
        let Self { classifier, draws, mut skipped } = self;
        let (most, mut done) = (classifier.window(draws), 0);
        // Where no row of a window can be read, there is nothing to ask.
        let mut ask = |inputs: &[Input], done: usize| {
            if inputs.is_empty() { Ok(Vec::new()) } else { ask(inputs, done) }
        };
        // The first answers need not wait for a whole window of inputs.
        let mut size = classifier.info.run.batch_size;
        loop {
            // Draws may depend on the rows of a batch.
            let rows = inputs.group(size, classifier.is_batch_free(draws))?;
            let mut window = Window::new(rows, &mut skipped)?;
            if window.rows() == 0 {
                break;
            }
            let found = match ask(&window.inputs, done) {
                // One input that the model cannot read must not cost the others.
                Err(error) if kind_of(&error) == Some(ErrorKind::Input) => {
                    window.leave_out(classifier.unreadable(&window.inputs, done)?, &mut skipped)?;
                    ask(&window.inputs, done)?
                }
                found => found?,
            };
            let pair = |place: usize| (&window.inputs[place], &found[place]);
            if !window.each(|origin, found| write(origin, found.map(pair)))? {
                return Ok(());
            }
            done += window.rows();
            size = most.min(2 * size);
        }
        if done == 0 {
            bail!("there is no text to answer");
        }
        skipped.report(done, strict, printer)
    }
}

/// An answer for reading: its text, and the labels with the largest probabilities, `most` of them at most.
fn shown(answer: &PredictedRow<'_>, labels: &[String], choices: &[String], most: usize) -> String {
    let draws = match answer.draws {
        0 => String::new(),
        n => format!(" over {n} draws"),
    };
    let mut lines = vec![
        [Some(answer.text), answer.pair].into_iter().flatten().collect::<Vec<_>>().join(" | "),
    ];
    lines.extend(answer.origin.kept().map(|(name, value)| format!("  {name}: {value}")));
    match &answer.kind {
        Kind::Score { predicted, interval, draws_deviation, .. } => {
            let percent = 100.0 * Intervals::LEVEL;
            let interval = interval.map_or_else(String::new, |[low, high]| {
                format!(", {percent} % interval {low:.4} to {high:.4}")
            });
            let spread = match draws_deviation {
                Some(deviation) => format!("; spread of {} draws {deviation:.4}", answer.draws),
                None => draws,
            };
            lines.push(format!("  {predicted:.4}{interval}{spread}"));
        }
        Kind::Labels { predicted, probs, .. } => {
            lines.push(match &predicted[..] {
                [] => "  no label".to_owned(),
                given => format!("  {}", given.join(", ")),
            });
            let mut ranked: Vec<(&String, f64)> =
                labels.iter().zip(probs.iter().copied()).collect();
            ranked.sort_by(|a, b| b.1.total_cmp(&a.1));
            ranked.truncate(most);
            let width = ranked.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
            lines.extend(
                ranked.iter().map(|(name, p)| format!("  {name:width$}  {:5.1} %", 100.0 * p)),
            );
        }
        Kind::Class { probs, entropy, mutual_information, reason, set, .. } => {
            lines.extend(reason.map(|reason| format!("  no answer: {}", reason.describe())));
            let mut ranked: Vec<(usize, f64)> = probs.iter().copied().enumerate().collect();
            // A letter without a choice is no answer.
            ranked.truncate(if choices.is_empty() { labels.len() } else { choices.len() });
            ranked.sort_by(|a, b| b.1.total_cmp(&a.1));
            let others = ranked.split_off(most.min(ranked.len()));
            let name = |id: usize| match choices.get(id) {
                Some(choice) => format!("{} {choice}", labels[id]),
                None => labels[id].clone(),
            };
            let width = ranked.iter().map(|(id, _)| name(*id).chars().count()).max().unwrap_or(0);
            lines.extend(
                ranked.iter().map(|(id, p)| format!("  {:width$}  {:5.1} %", name(*id), 100.0 * p)),
            );
            if !others.is_empty() {
                let rest: f64 = others.iter().map(|(_, p)| p).sum();
                let n = others.len();
                lines.push(format!(
                    "  and {n} more labels, {:.1} % together: `--all`",
                    100.0 * rest
                ));
            }
            let shared = mutual_information
                .map_or_else(String::new, |found| format!(", mutual information {found:.4}"));
            lines.extend(set.iter().map(|set| format!("  set: {}", set.join(", "))));
            lines.push(format!("  entropy {entropy:.4} nats{shared}{draws}"));
        }
    }
    lines.join("\n")
}

/// Arguments, the rows of a table, or lines of text, for the `classifier` in `dir`.
pub(super) fn inputs_of(
    arguments: InputArguments,
    dir: &Path,
    classifier: &SavedClassifier,
    printer: Printer,
) -> Result<Rows<InputRow>> {
    let keep = arguments.kept();
    let InputColumns { text_column, pair_column, choice_columns } = arguments.columns;
    let is_named = text_column.is_some() || pair_column.is_some() || !choice_columns.is_empty();
    let columns = classifier.columns().with(text_column, pair_column, None, choice_columns);
    let is_text = |path: &PathBuf| path.extension().is_some_and(|end| end == "txt");
    let format = arguments.jsonl.then_some(table::Format::Jsonl);
    let table = match (&arguments.input, arguments.jsonl) {
        (Some(path), false) if is_text(path) => None,
        (Some(path), _) => Some(read_inputs(path, format, columns, keep.clone())?),
        (None, true) => {
            let read = |reader| stream_inputs(reader, Path::new(STDIN), columns, keep);
            return Rows::coming(printer, read);
        }
        (None, false) => None,
    };
    if let Some(table) = table {
        return Ok(Rows::known(table));
    }
    if is_named || !keep.is_empty() {
        let found = match &arguments.input {
            Some(file) => format!("`{}` has one text a line", file.display()),
            None => "texts have none: pass `--input FILE`, or `--jsonl`".to_owned(),
        };
        bail!(
            "`--text-column`, `--pair-column`, `--choice-columns` and `--keep` name columns of a table, and {found}"
        );
    }
    if matches!(classifier.info.goal.answers, AnswerSpace::Choice { .. }) {
        bail!(
            "`{dir}` answers questions with choices, and a text has none: pass a table with choices",
            dir = dir.display()
        );
    }
    if !arguments.texts.is_empty() {
        let mut pairs = arguments.pair.into_iter();
        let inputs = arguments.texts.into_iter().map(move |text| {
            if text.trim().is_empty() {
                bail!("an empty text cannot be classified");
            }
            let input = Ok(Input { pair: pairs.next(), ..Input::text(text) });
            Ok(InputRow { id: None, at: None, kept: KeptCells::default(), input })
        });
        return Ok(Rows::known(inputs));
    }
    let row = |line: Result<(Place, String)>| match line {
        Ok((place, text)) => {
            let input = Ok(Input::text(text));
            Ok(InputRow { id: None, at: Some(place.at), kept: KeptCells::default(), input })
        }
        Err(error) => InputRow::unread(error),
    };
    match arguments.input {
        Some(path) => Ok(Rows::known(table::text_lines(&path)?.map(row))),
        None => {
            Rows::coming(printer, move |reader| Ok(table::texts(reader, Path::new(STDIN)).map(row)))
        }
    }
}

fn answer<'a>(
    classifier: &SavedClassifier,
    labels: &'a [String],
    origin: &'a Origin,
    input: &'a Input,
    judged: &'a JudgedAnswer,
    draws: usize,
    sets: Option<&LabelSets>,
) -> PredictedRow<'a> {
    let &JudgedAnswer { abstained, reason, .. } = judged;
    let (kind, draws) = match &judged.answer {
        &RowAnswer::Score { score, interval, draws_deviation } => {
            let interval_level = interval.map(|_| Intervals::LEVEL);
            (Kind::Score { predicted: score, interval, interval_level, draws_deviation }, draws)
        }
        RowAnswer::Labels { probabilities, given, entropy, mutual_information, draws } => {
            let kind = Kind::Labels {
                predicted: given.iter().map(|&label| labels[label].as_str()).collect(),
                probs: probabilities,
                entropy: *entropy,
                mutual_information: *mutual_information,
            };
            (kind, *draws)
        }
        RowAnswer::Class { probabilities, class, entropy, mutual_information, draws } => {
            let given = |names: &'a [String]| {
                names.get(*class).map(String::as_str).filter(|_| abstained != Some(true))
            };
            let kind = Kind::Class {
                predicted: given(labels),
                choice: matches!(classifier.info.goal.answers, AnswerSpace::Choice { .. })
                    .then(|| given(&input.choices).into()),
                probs: probabilities,
                entropy: *entropy,
                mutual_information: *mutual_information,
                abstained,
                reason,
                set: sets.map(|sets| {
                    let set = sets.of(probabilities, *class).into_iter();
                    set.filter_map(|id| labels.get(id)).map(String::as_str).collect()
                }),
            };
            (kind, *draws)
        }
    };
    PredictedRow { origin, text: &input.text, pair: input.pair.as_deref(), kind, draws }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_five_most_probable_labels_are_shown() {
        let labels: Vec<String> = (0..7).map(|i| format!("intent {i}")).collect();
        let probs = [0.02, 0.4, 0.1, 0.06, 0.3, 0.04, 0.08];
        let kind = |abstained| Kind::Class {
            predicted: Some("intent 1"),
            choice: None,
            probs: &probs,
            entropy: 1.5234,
            mutual_information: Some(0.25),
            abstained,
            reason: (abstained == Some(true)).then_some(Reason::Uncertain),
            set: None,
        };
        let origin = Origin::default();
        let answer = |kind, draws| {
            let origin = &origin;
            PredictedRow { origin, text: "where is my card", pair: None, kind, draws }
        };
        let five = "where is my card\n  intent 1   40.0 %\n  intent 4   30.0 %\n  intent 2   10.0 %\n  \
                    intent 6    8.0 %\n  intent 3    6.0 %\n  and 2 more labels, 6.0 % together: `--all`\n  \
                    entropy 1.5234 nats, mutual information 0.2500 over 3 draws";
        assert_eq!(shown(&answer(kind(None), 3), &labels, &[], SHOWN), five);
        let all = shown(&answer(kind(Some(true)), 3), &labels, &[], usize::MAX);
        assert_eq!(all.lines().count(), 10, "{all}");
        assert!(
            all.contains("\n  no answer: uncertain\n") && all.contains("intent 0    2.0 %"),
            "{all}"
        );
        let choices = ["yes".to_owned(), "no".to_owned()];
        let question = shown(&answer(kind(None), 0), &labels, &choices, SHOWN);
        assert!(question.contains("  intent 1 no    40.0 %\n  intent 0 yes"), "{question}");
        assert!(!question.contains("intent 2") && !question.contains("draws"), "{question}");
        let score = |interval, draws_deviation| {
            let interval_level = None;
            Kind::Score { predicted: 3.25, interval, interval_level, draws_deviation }
        };
        let found = shown(&answer(score(Some([1.5, 5.0]), Some(0.5)), 2), &[], &[], SHOWN);
        let words = "\n  3.2500, 95 % interval 1.5000 to 5.0000; spread of 2 draws 0.5000";
        assert!(found.ends_with(words), "{found}");
        let alone = shown(&answer(score(None, None), 0), &[], &[], SHOWN);
        assert!(alone.ends_with("\n  3.2500"), "{alone}");
    }
}
