//! `lrvd verify`

use lrvd_bench::verify::{Check, Precision, VerifyError, VerifyOptions, VerifyReport, verify};
use lrvd_burn::device;
use lrvd_burn::files::must_exist;
use serde::Serialize;
use serde_json::json;

use super::Outcome;
use crate::args::{PrecisionName, VerifyArguments};
use crate::exit::ExitStatus;
use crate::printer::{Format, Printer};

/// Lines that a person still reads; the rest is in `--format json`.
const MOST_LINES: usize = 40;
/// Version of the JSON on standard output.
const SCHEMA_VERSION: u32 = 1;

/// One check in JSON. A difference that is not a number is null, and does not hold.
#[derive(Serialize)]
struct Line<'a> {
    name: &'a str,
    difference: f64,
    tolerance: f64,
    holds: bool,
    compared: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<&'a str>,
}

/// Recomputes the folder.
pub(super) fn run(arguments: VerifyArguments, printer: Printer) -> Outcome {
    let device = device::open(&arguments.device)?;
    must_exist(&arguments.dir)?;
    if !arguments.dir.is_dir() {
        return Err(format!("`{}` is not a folder", arguments.dir.display()).into());
    }
    let precision = match arguments.precision {
        PrecisionName::F32 => Precision::F32,
        PrecisionName::F64 => Precision::F64,
    };
    let json = printer.format() == Format::Json;
    match verify(&arguments.dir, VerifyOptions { precision, device: &device }) {
        Ok(report) => {
            printer.data(&if json { document(&report)? } else { text(&report) })?;
            Ok(if report.holds() { ExitStatus::Done } else { ExitStatus::No })
        }
        Err(error) => {
            let unsupported = matches!(error, VerifyError::Unsupported { .. });
            if json {
                let kind = if unsupported { "unsupported" } else { "error" };
                let document = json!({
                    "schema_version": SCHEMA_VERSION,
                    "holds": false,
                    kind: error.to_string(),
                });
                printer.data(&serde_json::to_string_pretty(&document)?)?;
            } else if unsupported {
                printer.data(&error.to_string())?;
            }
            if !unsupported {
                printer.error(&error);
            }
            Ok(ExitStatus::No)
        }
    }
}

fn document(report: &VerifyReport) -> Result<String, serde_json::Error> {
    let line = |check: &'_ Check| {
        serde_json::to_value(Line {
            name: &check.name,
            difference: check.difference,
            tolerance: check.tolerance,
            holds: check.holds,
            compared: check.compared,
            note: check.note.as_deref(),
        })
    };
    let checks = report.checks.iter().map(line).collect::<Result<Vec<_>, _>>()?;
    serde_json::to_string_pretty(&json!({
        "schema_version": SCHEMA_VERSION,
        "kind": report.kind,
        "case": report.case,
        "precision": report.precision.name(),
        "holds": report.holds(),
        "worst": report.worst().map(|check| &check.name),
        "checks": checks,
        "notes": report.notes,
    }))
}

/// All checks in file order, or where they are many the ones nearest to failing, worst first.
fn text(report: &VerifyReport) -> String {
    let mut shown: Vec<&Check> = report.checks.iter().collect();
    let left_out = shown.len().saturating_sub(MOST_LINES);
    let failed = report.checks.iter().filter(|check| !check.holds).count();
    if left_out > 0 {
        let ratio = |check: &Check| {
            let ratio = check.ratio();
            if ratio.is_nan() { f64::INFINITY } else { ratio }
        };
        shown.sort_by(|a, b| a.holds.cmp(&b.holds).then(ratio(b).total_cmp(&ratio(a))));
        // A failure is never left out.
        shown.truncate(MOST_LINES.max(failed));
    }
    let mut lines = vec![format!("{} ({}, {})", report.case, report.kind, report.precision.name())];
    lines.extend(shown.iter().map(|check| format!("  {check}")));
    if shown.len() < report.checks.len() {
        let more = report.checks.len() - shown.len();
        lines.push(format!("  ... and {more} more that hold; `--format json` lists all"));
    }
    lines.extend(report.notes.iter().map(|note| format!("  note: {note}")));
    let total = report.checks.len();
    lines.push(match report.worst() {
        Some(worst) => format!(
            "{} of {total} hold; largest difference for its tolerance: {} ({:.2e} of {:.2e})",
            total - failed,
            worst.name,
            worst.difference,
            worst.tolerance
        ),
        None => "nothing was compared".to_owned(),
    });
    lines.join("\n")
}
