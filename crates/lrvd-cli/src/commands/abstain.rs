//! `lrvd abstain`

use std::collections::BTreeMap;

use anyhow::bail;
use clap::{Args, Subcommand};
use lrvd_bench::adapter::{
    AbstainBy, Abstention, Calibration, Certificate, OUTSIDE, RiskTarget, SavedClassifier,
    evaluate, fit_abstention, fit_decisions,
};
use lrvd_bench::answers::{AnswerSpace, QuestionKind};
use lrvd_bench::data::Split;
use lrvd_bench::{Result, percent};
use serde_json::{Value, json};

use super::eval::{EvalArguments, draws, labelled, write};
use super::{Outcome, help};
use crate::args::{self, heading};
use crate::exit::ExitStatus;
use crate::printer::Printer;
use crate::rows::Row;

#[derive(Debug, Subcommand)]
pub(crate) enum AbstainCommand {
    /// Fit the entropy above which no answer is given, for a target error rate.
    #[command(after_long_help = help::text(include_str!("help/abstain-fit.txt")))]
    Fit(Box<AbstainArguments>),
}

#[derive(Debug, Args)]
pub(crate) struct AbstainArguments {
    #[command(flatten)]
    pub(crate) eval: EvalArguments,
    /// Largest error rate of the answers that are given.
    #[arg(long, value_name = "RISK", help_heading = heading::ANSWERS, default_value = "0.05", value_parser = args::share, allow_negative_numbers = true)]
    pub(crate) risk: f64,
    /// Leave out rows that trained or chose the model or fitted its temperature, which are an error otherwise.
    #[arg(long)]
    pub(crate) skip_seen: bool,
    /// Probability that the error rate is larger than RISK; the confidence is 1 - DELTA.
    #[arg(long, value_name = "DELTA", help_heading = heading::ANSWERS, default_value = "0.05", value_parser = args::share, allow_negative_numbers = true)]
    pub(crate) delta: f64,
}

/// Fits the threshold and keeps it beside the adapter.
pub(super) fn run(command: AbstainCommand, printer: Printer) -> Outcome {
    let AbstainCommand::Fit(arguments) = command;
    let AbstainArguments { eval, risk, skip_seen, delta } = *arguments;
    let out = eval.out()?;
    let (classifier, _, mut labelled) = labelled(&eval, printer)?;
    check_unseen(&classifier, &mut labelled, skip_seen, printer)?;
    // As many draws as the answers of `lrvd predict` have.
    let draws = draws(&eval.adapter.answers, &classifier, None)?;
    let target = RiskTarget { risk, delta };
    let seed = eval.adapter.answers.seed.unwrap_or(classifier.info.run.seed);
    let is_typed = matches!(
        classifier.info.goal.answers,
        AnswerSpace::Question { .. } | AnswerSpace::Questions { .. }
    );
    if is_typed {
        if out.is_some() {
            bail!(
                "`--out` is not for typed questions here: `lrvd eval --out` writes the predictions"
            );
        }
        let found = fit_decisions(&classifier, &labelled, (draws, seed), risk, delta)?;
        let body = json!({ "draws": draws, "risk": risk, "delta": delta, "types": found });
        let rows = |_: &Value| Row::keyed("type", &found);
        printer.report_rows("abstain fit", &body, rows, |_| by_type(&found, risk, delta))?;
        return Ok(ExitStatus::Done);
    }
    let evaluation = evaluate(&classifier, &labelled.examples, draws, seed)?;
    printer.notes(evaluation.notes());
    write(&evaluation, out, printer)?;
    let found = fit_abstention(&classifier, &labelled, &evaluation, draws, target)?;
    let body = json!({ "draws": draws, "abstention": found });
    let rows = |_: &Value| Row::keyed("draws", &BTreeMap::from([(draws, &found)]));
    printer.report_rows("abstain fit", &body, rows, |_| {
        let rows = format!("these {}", found.certificate.rows);
        let certified = certified(&rows, &found.certificate);
        format!("threshold: an entropy of {:.4} nats{}. {certified}", found.above, unlike(&found))
    })?;
    Ok(ExitStatus::Done)
}

/// Words for the detector that a threshold is fitted with.
fn unlike(found: &Abstention) -> String {
    if found.detector.is_none() {
        return String::new();
    }
    format!(
        ", for texts other than the {} % most unlike those of training, which are not answered",
        percent(OUTSIDE)
    )
}

/// Rules by which answers are withheld.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct WithholdArguments {
    /// Withhold uncertain answers, and those to texts unlike those of training.
    ///
    /// The threshold is the one that `lrvd train` or `lrvd abstain fit` has fitted for an error rate of the answers that are given. It
    /// comes with the detector of other texts, if there was one. Without such a threshold the option is an error.
    #[arg(long, conflicts_with = "abstain_above", help_heading = heading::ANSWERS)]
    abstain: bool,
    /// Withhold answers with an entropy above this many nats.
    #[arg(long, value_name = "NATS", value_parser = args::entropy, allow_negative_numbers = true, help_heading = heading::ANSWERS)]
    abstain_above: Option<f64>,
}

impl WithholdArguments {
    /// The rule that is asked for, if one is.
    pub(super) fn asked(self) -> Option<AbstainBy> {
        self.abstain.then_some(AbstainBy::Fitted).or(self.abstain_above.map(AbstainBy::Above))
    }

    /// The options, and whether each is given.
    #[cfg(feature = "serve")]
    pub(super) fn given(self) -> [(&'static str, bool); 2] {
        [("--abstain", self.abstain), ("--abstain-above", self.abstain_above.is_some())]
    }
}

/// Rejects rows of `labelled` that the run of the classifier has used, or leaves them out.
pub(super) fn check_unseen(
    classifier: &SavedClassifier,
    labelled: &mut Split,
    skip: bool,
    printer: Printer,
) -> Result<()> {
    if classifier.seen_rows()?.is_empty() {
        printer.note(&format!(
            "`{}` does not name the rows that trained or chose the model: pass rows that the run has not used",
            classifier.folder().display()
        ));
    }
    if !skip {
        return classifier.check_unseen(labelled);
    }
    match classifier.skip_seen(labelled)? {
        0 => {}
        rows => printer.note(&format!("{rows} rows that the run has used are left out")),
    }
    Ok(())
}

/// The error rate of the answers that are given, in words; `rows` is their number and which ones they are.
fn certified(rows: &str, found: &Certificate) -> String {
    format!(
        "Of {rows} rows {:.1} % are answered, and {:.2} % of the answers are wrong. With {} % confidence the error rate on \
         further rows of the same kind is at most the target, {} %.",
        100.0 * found.coverage,
        100.0 * found.risk,
        percent(1.0 - found.delta),
        percent(found.target),
    )
}

/// Description of the fit for each type of question.
fn by_type(found: &BTreeMap<QuestionKind, Calibration>, risk: f64, delta: f64) -> String {
    let confidence = percent(1.0 - delta);
    let line = |(kind, own): (&QuestionKind, &Calibration)| {
        let start =
            format!("{kind}: temperature {:.4}, fitted to {} rows", own.temperature, own.rows);
        match own.threshold {
            Some(found) => {
                let rows = format!("{} other", found.certificate.rows);
                let certified = certified(&rows, &found.certificate);
                format!("{start}; threshold: a confidence of {:.4}. {certified}", found.least)
            }
            None => format!(
                "{start}; no threshold has an error rate below {risk} with {confidence} % confidence on the other rows: every \
                 answer is given. Allow more errors with `--risk`, or pass more rows."
            ),
        }
    };
    found.iter().map(line).collect::<Vec<_>>().join("\n")
}
