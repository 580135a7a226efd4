//! `lrvd abstain`

use lrvd_bench::classify::fit_abstention;

use super::Outcome;
use super::eval::{Evaluated, evaluated};
use crate::args::{AbstainArguments, AbstainCommand};
use crate::exit::ExitStatus;
use crate::printer::{Format, Printer};

/// Fits the threshold and keeps it beside the adapter.
pub(super) fn run(command: AbstainCommand, printer: Printer) -> Outcome {
    let AbstainCommand::Fit(arguments) = command;
    let AbstainArguments { eval, risk, delta } = *arguments;
    let Evaluated { classifier, examples, draws, evaluation, .. } = evaluated(&eval, printer)?;
    let found = fit_abstention(&classifier, &examples, &evaluation, draws, risk, delta)?;
    printer.data(&match printer.format() {
        Format::Json => serde_json::to_string_pretty(&serde_json::json!({
            "schema_version": 1,
            "draws": draws,
            "abstention": found,
        }))?,
        Format::Text => format!(
            "no answer above an entropy of {:.4} nats: {:.1} % of {} rows are answered, {:.2} % of those wrongly; on other \
             texts of this kind at most {:.2} %, but with probability {delta}",
            found.above,
            100.0 * found.coverage,
            found.rows,
            100.0 * found.risk,
            100.0 * found.bound,
        ),
    })?;
    Ok(ExitStatus::Done)
}
