//! `lrvd export`

use std::collections::BTreeMap;

use anyhow::bail;
use lrvd_bench::adapter::{Adapter, OpenOptions};
use lrvd_bench::export::{GgufExport, MergeReport, export_gguf, export_merged, export_peft};
use lrvd_bench::{Kind, Result, kind_of};
use lrvd_burn::device;
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

/// Writes the folder and says what a reader of it must be able to do.
pub(super) fn run(arguments: ExportArguments, printer: Printer) -> Outcome {
    check(&arguments)?;
    if arguments.out.exists() {
        return Err(lrvd_burn::Error::file(arguments.out, "already exists").into());
    }
    let device = device::open("cpu")?;
    let options = OpenOptions {
        model: arguments.model.clone(),
        allow_other_base: arguments.allow_other_base,
        allow_changed: arguments.allow_changed,
    };
    let source = Adapter::open(&arguments.dir, &options, &device)?;
    source.warnings.iter().for_each(|warning| printer.note(warning));
    match arguments.to {
        ExportFormat::Peft => peft(&arguments, &source, printer)?,
        ExportFormat::Gguf => gguf(&arguments, &source, printer)?,
        ExportFormat::Merged => {
            if !merged(&arguments, &source, printer)? {
                return Ok(ExitStatus::No);
            }
        }
    }
    printer.note(&format!("written: {}", arguments.out.display()));
    Ok(ExitStatus::Done)
}

impl ExportFormat {
    fn name(self) -> &'static str {
        match self {
            Self::Peft => "peft",
            Self::Merged => "merged",
            Self::Gguf => "gguf",
        }
    }
}

fn check(arguments: &ExportArguments) -> Result<()> {
    let peft = arguments.to == ExportFormat::Peft;
    let given = [
        ("--layout", arguments.layout.is_some(), peft, "--to peft"),
        ("--cap-rank", arguments.cap_rank.is_some(), peft, "--to peft"),
        ("--model", arguments.model.is_some(), !peft, "--to merged` and `--to gguf"),
        ("--allow-other-base", arguments.allow_other_base, !peft, "--to merged` and `--to gguf"),
        ("--verify", arguments.verify, arguments.to == ExportFormat::Merged, "--to merged"),
    ];
    match given.into_iter().find(|(_, given, right, _)| *given && !right) {
        Some((option, _, _, expected)) => {
            let found = arguments.to.name();
            bail!("`{option}` is for `{expected}` only, and this is `--to {found}`")
        }
        None => Ok(()),
    }
}

/// The command as a model card shows it: the options that decide what is written, not places on this machine.
fn command(arguments: &ExportArguments) -> String {
    let mut words = vec![format!("lrvd export --to {} DIR --out OUT", arguments.to.name())];
    words.extend(
        arguments.layout.map(|layout| format!("--layout {}", export_layout(layout).name())),
    );
    words.extend(arguments.cap_rank.map(|rank| format!("--cap-rank {rank}")));
    words.extend(arguments.allow_other_base.then(|| "--allow-other-base".to_owned()));
    words.extend(arguments.allow_changed.then(|| "--allow-changed".to_owned()));
    words.extend(
        arguments.verify.then(|| format!("--verify --tolerance {:e}", arguments.tolerance)),
    );
    words.join(" ")
}

fn export_layout(layout: Layout) -> ExportLayout {
    match layout {
        Layout::Ragged => ExportLayout::Ragged,
        Layout::Uniform => ExportLayout::Uniform,
    }
}

fn peft(arguments: &ExportArguments, source: &Adapter, printer: Printer) -> Result<()> {
    let layout = arguments.layout.map_or(ExportLayout::Ragged, export_layout);
    let export =
        export_peft(source, layout, arguments.cap_rank, &command(arguments), &arguments.out)?;
    let (summary, cut, posterior) = (export.summary, export.cut, export.posterior);
    let max_rank = summary.ranks.values().copied().max().unwrap_or(0);
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
            printer.json(&report)?;
        }
        Format::Text => {
            printer.data(&describe(&summary, max_rank))?;
            if let Some(cut) = &cut {
                printer.data(&lost(cut))?;
            }
            if source.files.posterior.is_some() && !posterior {
                printer.data(LEFT_BEHIND)?;
            }
        }
    }
    Ok(())
}

const LEFT_BEHIND: &str = "without the posterior: this is the posterior mean alone";

/// The JSON of `--to merged`.
#[derive(Serialize)]
struct MergedReport<'a> {
    schema_version: u32,
    format: &'static str,
    out: String,
    modules: usize,
    ranks: &'a BTreeMap<String, usize>,
    tensors: usize,
    parameters: usize,
    untied: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    difference: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    logits: Option<usize>,
}

/// Writes the merged model; whether it answers as base and adapter do.
fn merged(arguments: &ExportArguments, source: &Adapter, printer: Printer) -> Result<bool> {
    let verify = arguments.verify.then_some(arguments.tolerance);
    let (command, device) = (command(arguments), device::open("cpu")?);
    let report = match export_merged(source, verify, &command, &arguments.out, &device) {
        Ok(report) => report,
        Err(error) if kind_of(&error) == Some(Kind::Differs) => {
            printer.error(error.as_ref());
            return Ok(false);
        }
        Err(error) => return Err(error),
    };
    report.warnings.iter().for_each(|warning| printer.note(warning));
    match printer.format() {
        Format::Json => {
            let report = MergedReport {
                schema_version: 1,
                format: "merged",
                out: arguments.out.display().to_string(),
                modules: report.ranks.len(),
                ranks: &report.ranks,
                tensors: report.tensors,
                parameters: report.parameters,
                untied: report.untied,
                difference: report.difference.map(|(difference, _)| difference),
                logits: report.difference.map(|(_, logits)| logits),
            };
            printer.json(&report)?;
        }
        Format::Text => {
            printer.data(&describe_merged(&report))?;
            if source.files.posterior.is_some() {
                printer.data(LEFT_BEHIND)?;
            }
        }
    }
    Ok(true)
}

fn describe_merged(report: &MergeReport) -> String {
    let mut lines = vec![format!(
        "{} modules merged; {} tensors of {} values in single precision",
        report.ranks.len(),
        report.tensors,
        super::table::count(report.parameters),
    )];
    if report.untied {
        lines.push(
            "the head has separate weights now: it was adapted, the embedding was not".to_owned(),
        );
    }
    if let Some((difference, logits)) = report.difference {
        lines.push(format!(
            "largest difference of {logits} logits from base and adapter: {difference:.3e}"
        ));
    }
    lines.join("\n")
}

/// The JSON of `--to gguf`.
#[derive(Serialize)]
struct GgufReport<'a> {
    schema_version: u32,
    format: &'static str,
    out: String,
    file: &'static str,
    lora_alpha: f32,
    modules: usize,
    ranks: &'a BTreeMap<String, usize>,
    dropped: &'a [String],
    folded: &'a [String],
}

fn gguf(arguments: &ExportArguments, source: &Adapter, printer: Printer) -> Result<()> {
    let GgufExport { file, adapter, warnings } =
        export_gguf(source, &command(arguments), &arguments.out)?;
    for warning in &warnings {
        printer.note(warning);
    }
    match printer.format() {
        Format::Json => {
            let report = GgufReport {
                schema_version: 1,
                format: "gguf",
                out: arguments.out.display().to_string(),
                file,
                lora_alpha: adapter.lora_alpha,
                modules: adapter.ranks.len(),
                ranks: &adapter.ranks,
                dropped: &adapter.dropped,
                folded: &adapter.folded,
            };
            printer.json(&report)?;
        }
        Format::Text => {
            let mut lines = vec![format!(
                "`{file}`: {} modules, alpha {}",
                adapter.ranks.len(),
                adapter.lora_alpha
            )];
            let list = |what: &str, paths: &[String]| format!("{what}: {}", paths.join(", "));
            if !adapter.dropped.is_empty() {
                lines.push(list("left out, rank 0", &adapter.dropped));
            }
            if !adapter.folded.is_empty() {
                lines.push(list("scale multiplied into the factors", &adapter.folded));
            }
            if source.files.posterior.is_some() {
                lines.push(LEFT_BEHIND.to_owned());
            }
            printer.data(&lines.join("\n"))?;
        }
    }
    Ok(())
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
        lines.push(list("left out, rank 0", &summary.dropped));
    }
    if let Some(path) = &summary.zero_module {
        lines.push(format!("all modules have rank 0; `{path}` is written with zeros"));
    }
    if !summary.folded.is_empty() {
        lines.push(list("scale multiplied into the factors", &summary.folded));
    }
    lines.join("\n")
}
