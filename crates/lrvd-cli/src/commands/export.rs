//! `lrvd export`

use std::collections::BTreeMap;

use lrvd_bench::classify::AdapterSource;
use lrvd_burn::device;
use lrvd_burn::files::FileError;
use lrvd_burn::peft::{CapReport, ExportLayout, ExportSummary};
use serde::Serialize;

use super::Outcome;
use crate::args::{ExportArguments, ExportFormat, Layout};
use crate::exit::ExitStatus;
use crate::printer::{Format, Printer};

/// The JSON on standard output.
#[derive(Serialize)]
struct Report<'a> {
    schema_version: u32,
    format: &'static str,
    layout: &'static str,
    out: String,
    max_rank: usize,
    modules: usize,
    ranks: &'a BTreeMap<String, usize>,
    dropped: &'a [String],
    zero_module: Option<&'a str>,
    folded: &'a [String],
    posterior: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    cap_error: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cap_errors: Option<BTreeMap<String, f64>>,
}

/// Writes the folder and says what a server must be able to do.
pub(super) fn run(arguments: ExportArguments, printer: Printer) -> Outcome {
    if arguments.out.exists() {
        return Err(FileError::Exists { path: arguments.out }.into());
    }
    let ExportFormat::Peft = arguments.to;
    let layout = match arguments.layout {
        Layout::Ragged => ExportLayout::Ragged,
        Layout::Uniform => ExportLayout::Uniform,
    };
    let source = AdapterSource::open(&arguments.dir, &device::open("cpu")?)?;
    let had_posterior = source.saved.posterior.is_some();
    let (saved, cut) = match arguments.cap_rank {
        Some(rank) => {
            let (saved, cut) = source.saved.capped(rank)?;
            (saved, Some(cut))
        }
        None => (source.saved, None),
    };
    let summary = saved.write(&arguments.out, layout)?;
    let max_rank = summary.ranks.values().copied().max().unwrap_or(0);
    let posterior = saved.posterior.is_some()
        && layout == ExportLayout::Ragged
        && summary.zero_module.is_none();
    match printer.format() {
        Format::Json => {
            let report = Report {
                schema_version: 1,
                format: "peft",
                layout: layout.name(),
                out: arguments.out.display().to_string(),
                max_rank,
                modules: summary.ranks.len(),
                ranks: &summary.ranks,
                dropped: &summary.dropped,
                zero_module: summary.zero_module.as_deref(),
                folded: &summary.folded,
                posterior,
                cap_error: cut.as_ref().map(|cut| cut.error),
                cap_errors: cut.map(|cut| cut.errors),
            };
            printer.data(&serde_json::to_string_pretty(&report)?)?;
        }
        Format::Text => {
            printer.data(&describe(&summary, max_rank))?;
            if let Some(cut) = &cut {
                printer.data(&lost(cut))?;
            }
            if had_posterior && !posterior {
                printer.data("the posterior stays behind: this is the posterior mean alone")?;
            }
        }
    }
    printer.note(&format!("written: {}", arguments.out.display()));
    Ok(ExitStatus::Done)
}

fn lost(cut: &CapReport) -> String {
    let mut lines =
        vec![format!("cut to that rank: {:.2} % of the update's norm is lost", 100.0 * cut.error)];
    let modules = cut.errors.iter();
    lines.extend(modules.map(|(path, error)| format!("  {path}: {:.2} %", 100.0 * error)));
    lines.join("\n")
}

fn describe(summary: &ExportSummary, max_rank: usize) -> String {
    let mut lines = vec![format!(
        "{} modules, {} layout; a server must allow a rank of {max_rank}",
        summary.ranks.len(),
        summary.layout.name(),
    )];
    let list = |what: &str, paths: &[String]| format!("{what}: {}", paths.join(", "));
    if !summary.dropped.is_empty() {
        lines.push(list("left out, since no rank is left", &summary.dropped));
    }
    if let Some(path) = &summary.zero_module {
        lines.push(format!("no module has a rank left; `{path}` is written with zeros"));
    }
    if !summary.folded.is_empty() {
        lines.push(list("scale multiplied into the factors", &summary.folded));
    }
    lines.join("\n")
}
