//! `lrvd export`

use std::path::PathBuf;

use anyhow::bail;
use clap::{Args, ValueEnum};
use lrvd_bench::adapter::{Adapter, OpenOptions};
use lrvd_bench::export::{GgufExport, MergeReport, export_gguf, export_merged, export_peft};
use lrvd_bench::{Kind, Result, kind_of};
use lrvd_burn::device;
use lrvd_burn::peft::{CapReport, ExportLayout, ExportSummary};
use serde_json::json;

use super::Outcome;
use crate::args;
use crate::exit::ExitStatus;
use crate::printer::{Format, Printer};

/// Export formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportFormat {
    /// Hugging Face PEFT.
    Peft,
    /// The base model with the adapter merged in, as a Hugging Face folder.
    Merged,
    /// An adapter for llama.cpp.
    Gguf,
}

/// Options of `lrvd export`.
#[derive(Debug, Args)]
pub(crate) struct ExportArguments {
    /// Format.
    #[arg(long, value_enum)]
    pub(crate) to: ExportFormat,
    /// Output of `lrvd train`, one of its checkpoints, or an adapter folder.
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// Folder to write; it must not exist.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// Layout of modules with different ranks [PEFT only; default: ragged].
    #[arg(long, value_name = "LAYOUT", value_parser = args::one_of(&[ExportLayout::Ragged, ExportLayout::Uniform], ExportLayout::name))]
    pub(crate) layout: Option<ExportLayout>,
    /// Largest rank to write, for servers with a rank limit: larger modules keep their largest singular directions;
    /// the relative error is printed [PEFT only].
    #[arg(long, value_name = "R", value_parser = args::count(), allow_negative_numbers = true)]
    pub(crate) cap_rank: Option<usize>,
    /// Base model [merged and gguf only; default: the one named by the adapter].
    #[arg(long, value_name = "DIR|GGUF|HUB-ID")]
    pub(crate) model: Option<String>,
    /// Accept a base model with other weights than the adapter was trained on [merged and gguf only].
    #[arg(long)]
    pub(crate) allow_other_base: bool,
    /// Accept changed files: the adapter's, or the base model's configuration or tokenizer.
    #[arg(long)]
    pub(crate) allow_changed: bool,
    /// Compare the logits of the merged model with those of base and adapter [merged only].
    #[arg(long)]
    pub(crate) verify: bool,
    /// Largest difference allowed by `--verify`, in units of the largest logit.
    #[arg(long, value_name = "T", default_value = "1e-4", value_parser = args::positive, requires = "verify", allow_negative_numbers = true)]
    pub(crate) tolerance: f64,
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
    words.extend(arguments.layout.map(|layout| format!("--layout {}", layout.name())));
    words.extend(arguments.cap_rank.map(|rank| format!("--cap-rank {rank}")));
    words.extend(arguments.allow_other_base.then(|| "--allow-other-base".to_owned()));
    words.extend(arguments.allow_changed.then(|| "--allow-changed".to_owned()));
    words.extend(
        arguments.verify.then(|| format!("--verify --tolerance {:e}", arguments.tolerance)),
    );
    words.join(" ")
}

fn peft(arguments: &ExportArguments, source: &Adapter, printer: Printer) -> Result<()> {
    let layout = arguments.layout.unwrap_or_default();
    let export =
        export_peft(source, layout, arguments.cap_rank, &command(arguments), &arguments.out)?;
    let (summary, cut, posterior) = (export.summary, export.cut, export.posterior);
    let max_rank = summary.ranks.values().copied().max().unwrap_or(0);
    if printer.format() == Format::Json {
        let mut body = json!({
            "format": "peft",
            "layout": layout.name(),
            "out": arguments.out.display().to_string(),
            "max_rank": max_rank,
            "modules": summary.ranks.len(),
            "ranks": summary.ranks,
            "dropped": summary.dropped,
            "zero_module": summary.zero_module,
            "folded": summary.folded,
            "posterior": posterior,
        });
        if let Some(cut) = cut {
            body["cap_error"] = json!(cut.error);
            body["cap_errors"] = json!(cut.errors);
        }
        return printer.document("export", body);
    }
    printer.data(&describe(&summary, max_rank))?;
    if let Some(cut) = &cut {
        printer.data(&lost(cut))?;
    }
    if source.files.posterior.is_some() && !posterior {
        printer.data(LEFT_BEHIND)?;
    }
    Ok(())
}

const LEFT_BEHIND: &str = "without the posterior: this is the posterior mean alone";

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
    if printer.format() == Format::Json {
        let mut body = json!({
            "format": "merged",
            "out": arguments.out.display().to_string(),
            "modules": report.ranks.len(),
            "ranks": report.ranks,
            "tensors": report.tensors,
            "parameters": report.parameters,
            "untied": report.untied,
        });
        if let Some((difference, logits)) = report.difference {
            body["difference"] = json!(difference);
            body["logits"] = json!(logits);
        }
        printer.document("export", body)?;
        return Ok(true);
    }
    printer.data(&describe_merged(&report))?;
    if source.files.posterior.is_some() {
        printer.data(LEFT_BEHIND)?;
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

fn gguf(arguments: &ExportArguments, source: &Adapter, printer: Printer) -> Result<()> {
    let GgufExport { file, adapter, warnings } =
        export_gguf(source, &command(arguments), &arguments.out)?;
    for warning in &warnings {
        printer.note(warning);
    }
    if printer.format() == Format::Json {
        return printer.document(
            "export",
            json!({
                "format": "gguf",
                "out": arguments.out.display().to_string(),
                "file": file,
                "lora_alpha": adapter.lora_alpha,
                "modules": adapter.ranks.len(),
                "ranks": adapter.ranks,
                "dropped": adapter.dropped,
                "folded": adapter.folded,
            }),
        );
    }
    let mut lines =
        vec![format!("`{file}`: {} modules, alpha {}", adapter.ranks.len(), adapter.lora_alpha)];
    lines.extend(listed("left out, rank 0", &adapter.dropped));
    lines.extend(listed("scale multiplied into the factors", &adapter.folded));
    lines.extend(source.files.posterior.is_some().then(|| LEFT_BEHIND.to_owned()));
    printer.data(&lines.join("\n"))
}

/// The modules at `paths` in one line, if there are any.
fn listed(what: &str, paths: &[String]) -> Option<String> {
    (!paths.is_empty()).then(|| format!("{what}: {}", paths.join(", ")))
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
    lines.extend(listed("left out, rank 0", &summary.dropped));
    if let Some(path) = &summary.zero_module {
        lines.push(format!("all modules have rank 0; `{path}` is written with zeros"));
    }
    lines.extend(listed("scale multiplied into the factors", &summary.folded));
    lines.join("\n")
}
