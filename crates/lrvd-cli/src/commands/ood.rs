//! `lrvd ood`

use std::path::{Path, PathBuf};

use anyhow::bail;
use clap::{Args, Subcommand};
use lrvd_bench::adapter::{
    OUTSIDE, Oddness, OodDetector, OodReport, OodRow, OodScore, SavedClassifier, fit_ood,
};
use lrvd_bench::data::{Input, ReadOptions};
use lrvd_bench::{Result, decimals};
use serde::Serialize;
use serde_json::json;

use super::abstain::check_unseen;
use super::answers::{Answers, InputArguments, Origin, OutputArguments, Skipped};
use super::eval::{OwnRows, draws, load};
use super::predict::{Windows, inputs_of};
use super::{Outcome, help, table};
use crate::args::{self, AdapterArguments, InputColumns, heading};
use crate::exit::ExitStatus;
use crate::printer::Printer;
use crate::rows::Row;

#[derive(Debug, Subcommand)]
pub(crate) enum OodCommand {
    /// Choose the score that tells other texts apart best, on held-out rows.
    #[command(after_long_help = help::text(include_str!("help/ood-fit.txt")))]
    Fit(Box<FitArguments>),
    /// Score texts: how unlike those of training each one is.
    #[command(after_long_help = help::text(include_str!("help/ood-score.txt")))]
    Score(Box<ScoreArguments>),
}

#[derive(Debug, Args)]
pub(crate) struct FitArguments {
    #[command(flatten)]
    adapter: AdapterArguments,
    /// Labelled rows of the distribution: `.tsv`, `.csv`, `.jsonl`, `.json` or `.parquet`.
    #[arg(long, value_name = "FILE", help_heading = heading::DATA)]
    data: PathBuf,
    /// Other texts: a table with the same columns, without labels, or `.txt` with one text a line.
    #[arg(long, value_name = "FILE", help_heading = heading::DATA)]
    outside: PathBuf,
    /// Labelled rows that the distance is fitted to, which may be those of training [default: a third of `--data`].
    #[arg(long, value_name = "FILE", help_heading = heading::DATA)]
    reference: Option<PathBuf>,
    #[command(flatten)]
    columns: InputColumns,
    /// Column or key of the label [default: as in training].
    #[arg(long, value_name = "NAME")]
    label_column: Option<String>,
    /// Leave out rows of `--data` that trained or chose the model or fitted its temperature, which are an error otherwise.
    #[arg(long)]
    skip_seen: bool,
    #[command(flatten)]
    reading: ReadOptions,
}

#[derive(Debug, Args)]
pub(crate) struct ScoreArguments {
    #[command(flatten)]
    adapter: AdapterArguments,
    #[command(flatten)]
    input: InputArguments,
    #[command(flatten)]
    output: OutputArguments,
    /// Share of texts like those of training that may count as outside.
    #[arg(long, value_name = "ALPHA", help_heading = heading::ANSWERS, default_value_t = OUTSIDE, value_parser = args::share, allow_negative_numbers = true)]
    alpha: f64,
}

pub(super) fn run(command: OodCommand, printer: Printer) -> Outcome {
    match command {
        OodCommand::Fit(arguments) => fit(*arguments, printer),
        OodCommand::Score(arguments) => score(*arguments, printer),
    }
}

/// The classifier, whose draws are all made.
fn opened(arguments: &AdapterArguments, printer: Printer) -> Result<SavedClassifier> {
    if let Some(setting) = arguments.answers.policy().needs_draws() {
        bail!(
            "`{setting}` spares draws, and scores are compared at the same number of draws: leave it out"
        );
    }
    load(arguments, printer)
}

fn fit(arguments: FitArguments, printer: Printer) -> Outcome {
    let classifier = opened(&arguments.adapter, printer)?;
    let draws = draws(&arguments.adapter.answers, &classifier, None)?;
    let seed = arguments.adapter.answers.seed.unwrap_or(classifier.info.run.seed);
    let own = OwnRows {
        columns: &arguments.columns,
        label: arguments.label_column.as_ref(),
        reading: &arguments.reading,
        strict: arguments.adapter.answers.open().strict,
    };
    let rows = |file: &Path| own.read(&classifier, file, printer);
    let mut labelled = rows(&arguments.data)?;
    check_unseen(&classifier, &mut labelled, arguments.skip_seen, printer)?;
    let reference = arguments.reference.as_deref().map(rows).transpose()?;
    let input = InputArguments {
        input: Some(arguments.outside),
        columns: arguments.columns.clone(),
        ..InputArguments::default()
    };
    let outside = inputs_of(input, &arguments.adapter.dir, &classifier, printer)?;
    let outside: Vec<Input> = outside.map(|row| row?.input).collect::<Result<_>>()?;
    let found = fit_ood(&classifier, &labelled, reference.as_ref(), &outside, draws, seed)?;
    found.write(classifier.folder())?;
    let rows = |report: &OodReport| Row::keyed("score", &report.scores);
    printer.report_rows("ood fit", &found.report, rows, shown)?;
    Ok(ExitStatus::Done)
}

fn shown(report: &OodReport) -> String {
    let interval = |value: f64, (low, high): (f64, f64)| {
        format!("{} ({} to {})", decimals(value, 4), decimals(low, 4), decimals(high, 4))
    };
    let row = |(score, row): (&OodScore, &OodRow)| {
        let over = match score {
            OodScore::Entropy => "-".to_owned(),
            _ => interval(row.over_entropy, row.over_entropy_interval),
        };
        let mark = if *score == report.score { "* " } else { "  " };
        let area = interval(row.auroc, row.interval);
        vec![format!("{mark}{}", score.name()), decimals(row.selection, 4), area, over]
    };
    let header = ["score", "selection AUROC", "AUROC (95 % interval)", "difference to entropy"];
    let [inside, outside] = report.report_rows;
    let verdict = match report.score {
        OodScore::Entropy => "No other score has a larger area there.".to_owned(),
        score => format!(
            "On the {inside} + {outside} report rows it is {} than the entropy.",
            match report.scores[&score].over_entropy_interval {
                (low, _) if low > 0.0 => "better",
                (_, high) if high < 0.0 => "worse",
                _ => "not shown to be better",
            }
        ),
    };
    format!(
        "{}\nchosen on {} + {} rows: {}. {verdict}",
        table::table(&header, report.scores.iter().map(row).collect()),
        report.selection_rows[0],
        report.selection_rows[1],
        report.score.name(),
    )
}

#[derive(Serialize)]
struct Scored<'a> {
    #[serde(flatten)]
    origin: &'a Origin,
    text: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pair: Option<&'a str>,
    score: f64,
    p: f64,
    outside: bool,
}

fn score(arguments: ScoreArguments, printer: Printer) -> Outcome {
    let ScoreArguments { adapter, input, output, alpha } = arguments;
    input.check()?;
    let mut written = Answers::new("ood score", printer).into_file(&output)?;
    let classifier = opened(&adapter, printer)?;
    let detector = OodDetector::read(classifier.folder())?;
    let OodReport { score, draws, seed, .. } = detector.report;
    for (name, asked, fitted) in [
        ("--draws", adapter.answers.draws.map(|draws| draws as u64), draws as u64),
        ("--seed", adapter.answers.seed, seed),
    ] {
        if asked.is_some_and(|asked| asked != fitted) {
            bail!(
                "the score was fitted with `{name} {fitted}`: leave the option out, or run `lrvd ood fit` with it"
            );
        }
    }
    let skipped = Skipped::new(&input);
    let strict = adapter.answers.open().strict;
    let inputs = inputs_of(input, &adapter.dir, &classifier, printer)?;
    let windows = Windows { classifier: &classifier, draws, skipped };
    let ask = |texts: &[Input], done| detector.score(&classifier, texts, done);
    windows.run(inputs, (strict, printer), ask, |origin, found| {
        let (Input { text, pair, .. }, Oddness { score, p }) = match found {
            Ok(found) => found,
            Err(error) => return written.write_none(origin, error),
        };
        let outside = *p <= alpha;
        let scored = Scored { origin, text, pair: pair.as_deref(), score: *score, p: *p, outside };
        let mark = if outside { "outside" } else { "" };
        written.write(&scored, &scored, || format!("{p:.4}  {mark:7}  {text}"))
    })?;
    written.finish(|all| json!({ "score": score, "draws": draws, "alpha": alpha, "texts": all }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_verdict_follows_the_choice_and_the_interval_of_the_difference() {
        let report = |score: OodScore, over_entropy_interval: (f64, f64)| {
            let row = OodRow {
                selection: 0.5,
                auroc: 1.0,
                interval: (0.6, 1.0),
                over_entropy: 0.0,
                over_entropy_interval: (0.0, 0.0),
            };
            let other = OodRow { over_entropy_interval, ..row };
            shown(&OodReport {
                schema_version: 1,
                adapter: String::new(),
                score,
                draws: 0,
                seed: 1,
                reference_rows: 20,
                selection_rows: [4, 3],
                report_rows: [5, 3],
                scores: [(OodScore::Entropy, row), (OodScore::Distance, other)].into(),
            })
        };
        // Both separate all rows: the areas have no variation, and the chosen score is not the entropy.
        for (score, interval, words) in [
            (OodScore::Distance, (-0.2, 0.3), "it is not shown to be better than the entropy."),
            (OodScore::Distance, (0.1, 0.3), "it is better than the entropy."),
            (OodScore::Distance, (-0.3, -0.1), "it is worse than the entropy."),
            (OodScore::Entropy, (0.1, 0.3), "entropy. No other score has a larger area there."),
        ] {
            let found = report(score, interval);
            assert!(found.ends_with(words), "{found}");
            assert!(found.contains("1.0000 (0.6000 to 1.0000)"), "{found}");
        }
    }
}
