//! `lrvd abstain`

use lrvd_bench::adapter::{SavedClassifier, fit_abstention};
use lrvd_bench::data::Split;

use super::Outcome;
use super::eval::{Evaluated, draws, evaluated};
use crate::args::{AbstainArguments, AbstainCommand};
use crate::exit::ExitStatus;
use crate::printer::{Format, Printer};

/// Fits the threshold and keeps it beside the adapter.
pub(super) fn run(command: AbstainCommand, printer: Printer) -> Outcome {
    let AbstainCommand::Fit(arguments) = command;
    let AbstainArguments { eval, risk, delta } = *arguments;
    let check = |classifier: &SavedClassifier, labelled: &Split| {
        if classifier.info.seen.is_empty() {
            printer.note(&format!(
                "the description of `{}` does not name the files that trained or chose the model: pass rows that the run \
                 has not used",
                classifier.folder().display()
            ));
        }
        classifier.check_unseen(labelled)
    };
    // As many draws as the answers of `lrvd predict` have.
    let numbers = |classifier: &SavedClassifier| draws(&eval.classifier, classifier);
    let Evaluated { classifier, labelled, draws, evaluation, .. } =
        evaluated(&eval, check, numbers, printer)?;
    let found = fit_abstention(&classifier, &labelled, &evaluation, draws, risk, delta)?;
    match printer.format() {
        Format::Json => printer.json(&serde_json::json!({
            "schema_version": 1,
            "draws": draws,
            "abstention": found,
        }))?,
        Format::Text => printer.data(&format!(
            "threshold: an entropy of {:.4} nats. Of these {} rows {:.1} % are answered, and {:.2} % of the answers are \
             wrong. With {} % confidence the error rate on further rows of the same kind is at most {:.2} %.",
            found.above,
            found.rows,
            100.0 * found.coverage,
            100.0 * found.risk,
            100.0 * (1.0 - delta),
            100.0 * found.bound,
        ))?,
    }
    Ok(ExitStatus::Done)
}
