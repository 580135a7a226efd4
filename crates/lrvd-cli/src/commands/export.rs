//! `lrvd export`

use std::path::PathBuf;

use anyhow::bail;
use burn::tensor::Device;
use clap::{Args, ValueEnum};
use lrvd_bench::adapter::{Adapter, OpenOptions};
use lrvd_bench::export::{
    GgufExport, MergeReport, OnnxPrecision, PeftExport, export_gguf, export_merged, export_onnx,
    export_peft, export_sentence_transformers,
};
use lrvd_bench::{Kind, Result, kind_of};
use lrvd_burn::device;
use lrvd_burn::files::is_there;
use lrvd_burn::peft::{Cap, CapReport, ExportLayout};
use serde_json::{Value, json};

use super::Outcome;
use crate::args::{self, heading};
use crate::exit::ExitStatus;
use crate::printer::Printer;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportFormat {
    /// Hugging Face PEFT.
    Peft,
    /// The base model with the adapter merged in, as a Hugging Face folder.
    Merged,
    /// An adapter for llama.cpp.
    Gguf,
    /// A classifier on an encoder as one ONNX file, from token ids to probabilities, for ONNX Runtime and transformers.js.
    Onnx,
    /// A classifier on an encoder as a folder of sentence-transformers, whose embeddings are the logits.
    SentenceTransformers,
}

#[derive(Debug, Args)]
pub(crate) struct ExportArguments {
    /// Format.
    #[arg(long, value_enum, help_heading = heading::OUTPUT)]
    pub(crate) to: ExportFormat,
    /// Output of `lrvd train`, one of its checkpoints, or an adapter folder.
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// Folder to write; it must not exist.
    #[arg(long, value_name = "DIR", help_heading = heading::OUTPUT)]
    pub(crate) out: PathBuf,
    /// Layout of modules with different ranks [PEFT only; default: ragged].
    #[arg(long, value_name = "LAYOUT", help_heading = heading::OUTPUT, value_parser = args::one_of(&[ExportLayout::Ragged, ExportLayout::Uniform], ExportLayout::name))]
    pub(crate) layout: Option<ExportLayout>,
    /// Largest rank to write, for servers with a rank limit: larger modules keep their largest singular directions;
    /// the relative error is printed [PEFT only].
    #[arg(long, value_name = "R", help_heading = heading::OUTPUT, value_parser = args::count(), allow_negative_numbers = true)]
    pub(crate) cap_rank: Option<usize>,
    /// Share of each update to write, 0 to 1: a module keeps the fewest singular directions that hold this share of its
    /// squared singular values [PEFT only].
    ///
    /// No data are read: an update of the right size in the wrong direction is kept. `lrvd prune` decides by held-out rows.
    #[arg(long, value_name = "SHARE", help_heading = heading::OUTPUT, value_parser = args::share, allow_negative_numbers = true)]
    pub(crate) energy: Option<f64>,
    /// Store products and word embedding in 8 bits: a quarter of the size, and other answers by a little, which `--verify` shows
    /// [ONNX only].
    #[arg(long, help_heading = heading::OUTPUT)]
    pub(crate) int8: bool,
    #[command(flatten, next_help_heading = heading::MODEL)]
    pub(crate) base: OpenOptions,
    /// Compare the logits of what was written with those of base and adapter; an ONNX file is executed without another program
    /// [merged and ONNX only].
    #[arg(long, help_heading = heading::OUTPUT)]
    pub(crate) verify: bool,
    /// Largest difference allowed by `--verify`, in units of the largest logit.
    #[arg(long, value_name = "T", help_heading = heading::OUTPUT, default_value = "1e-4", value_parser = args::positive, requires = "verify", allow_negative_numbers = true)]
    pub(crate) tolerance: f64,
}

/// Files that were written, as JSON and as text.
type Written = (Value, Vec<String>);

/// Writes the folder and says what a reader of it must be able to do.
pub(super) fn run(arguments: ExportArguments, printer: Printer) -> Outcome {
    check(&arguments)?;
    if is_there(&arguments.out)? {
        return Err(lrvd_burn::Error::file(arguments.out, "already exists").into());
    }
    let device = device::open("cpu")?;
    let source = Adapter::open(&arguments.dir, &arguments.base, &device)?;
    printer.notes(&source.warnings);
    let command = command(&arguments);
    let written = match arguments.to {
        ExportFormat::Peft => peft(&arguments, &source, &command, printer),
        ExportFormat::Gguf => gguf(&arguments, &source, &command, printer),
        ExportFormat::Merged | ExportFormat::Onnx | ExportFormat::SentenceTransformers => {
            whole(&arguments, &source, &command, &device, printer)
        }
    };
    let (mut body, mut lines) = match written {
        Err(error) if kind_of(&error) == Some(Kind::Differs) => {
            printer.error(error.as_ref());
            return Ok(ExitStatus::CheckFailed);
        }
        written => written?,
    };
    body["format"] = name(arguments.to).into();
    body["out"] = arguments.out.display().to_string().into();
    if source.files.posterior.is_some() && body["posterior"] != true {
        lines.push("without the posterior: this is the posterior mean alone".to_owned());
    }
    printer.report("export", &body, |_| lines.join("\n"))?;
    printer.note(&format!("written: {}", arguments.out.display()));
    Ok(ExitStatus::Done)
}

fn name(format: ExportFormat) -> String {
    format.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

fn check(arguments: &ExportArguments) -> Result<()> {
    let peft = arguments.to == ExportFormat::Peft;
    let (base, other) =
        (&arguments.base, "--to merged`, `gguf`, `onnx` and `sentence-transformers");
    let verified = [ExportFormat::Merged, ExportFormat::Onnx].contains(&arguments.to);
    let given = [
        ("--layout", arguments.layout.is_some(), peft, "--to peft"),
        ("--cap-rank", arguments.cap_rank.is_some(), peft, "--to peft"),
        ("--energy", arguments.energy.is_some(), peft, "--to peft"),
        ("--int8", arguments.int8, arguments.to == ExportFormat::Onnx, "--to onnx"),
        ("--model", base.model.is_some(), !peft, other),
        ("--allow-other-base", base.allow_other_base, !peft, other),
        ("--verify", arguments.verify, verified, "--to merged` and `--to onnx"),
    ];
    match given.into_iter().find(|(_, given, right, _)| *given && !right) {
        Some((option, _, _, expected)) => {
            let found = name(arguments.to);
            bail!("`{option}` is for `{expected}` only, and this is `--to {found}`")
        }
        None => Ok(()),
    }
}

/// The command as a model card shows it: the options that decide what is written, not places on this machine.
fn command(arguments: &ExportArguments) -> String {
    let mut words = vec![format!("lrvd export --to {} DIR --out OUT", name(arguments.to))];
    words.extend(arguments.layout.map(|layout| format!("--layout {}", layout.name())));
    words.extend(arguments.cap_rank.map(|rank| format!("--cap-rank {rank}")));
    words.extend(arguments.energy.map(|share| format!("--energy {share}")));
    words.extend(arguments.int8.then(|| "--int8".to_owned()));
    words.extend(arguments.base.allow_other_base.then(|| "--allow-other-base".to_owned()));
    words.extend(arguments.base.allow_changed.then(|| "--allow-changed".to_owned()));
    words.extend(
        arguments.verify.then(|| format!("--verify --tolerance {:e}", arguments.tolerance)),
    );
    words.join(" ")
}

fn peft(
    arguments: &ExportArguments,
    source: &Adapter,
    command: &str,
    printer: Printer,
) -> Result<Written> {
    let layout = arguments.layout.unwrap_or_default();
    let cap = Cap { rank: arguments.cap_rank, energy: arguments.energy };
    let cap = (cap != Cap::default()).then_some(cap);
    let PeftExport { summary, cut, posterior, warnings } =
        export_peft(source, layout, cap, command, &arguments.out)?;
    let max_rank = summary.ranks.values().copied().max().unwrap_or(0);
    let mut lines = vec![format!(
        "{} modules, {} layout; a server must allow a rank of {max_rank}",
        summary.ranks.len(),
        layout.name(),
    )];
    lines.extend(listed("left out, rank 0", &summary.dropped));
    if let Some(path) = &summary.zero_module {
        lines.push(format!("all modules have rank 0; `{path}` is written with zeros"));
    }
    lines.extend(listed("scale multiplied into the factors", &summary.folded));
    let mut body = json!({
        "layout": layout.name(),
        "max_rank": max_rank,
        "modules": summary.ranks.len(),
        "ranks": summary.ranks,
        "dropped": summary.dropped,
        "zero_module": summary.zero_module,
        "folded": summary.folded,
        "posterior": posterior,
    });
    if let Some(CapReport { error, errors, .. }) = cut {
        let percent = |error: f64| format!("{:.2} %", 100.0 * error);
        lines.push(format!("cut to these ranks: {} of the update's norm is lost", percent(error)));
        lines.extend(errors.iter().map(|(path, error)| format!("  {path}: {}", percent(*error))));
        body["cap_error"] = json!(error);
        body["cap_errors"] = json!(errors);
    }
    printer.notes(&warnings);
    Ok((body, lines))
}

/// Writes base and adapter as one model; an error if it does not answer as they do.
fn whole(
    arguments: &ExportArguments,
    source: &Adapter,
    command: &str,
    device: &Device,
    printer: Printer,
) -> Result<Written> {
    let verify = arguments.verify.then_some(arguments.tolerance);
    let out = &arguments.out;
    let report: MergeReport = match arguments.to {
        ExportFormat::Onnx => {
            let precision =
                if arguments.int8 { OnnxPrecision::Int8 } else { OnnxPrecision::Single };
            export_onnx(source, precision, verify, command, out, device)?
        }
        ExportFormat::SentenceTransformers => export_sentence_transformers(source, command, out)?,
        _ => export_merged(source, verify, command, out, device)?,
    };
    let mut lines = vec![format!(
        "{} modules merged; {} tensors of {} values in {}",
        report.ranks.len(),
        report.tensors,
        super::table::count(report.parameters),
        if arguments.int8 { "8 bits and single precision" } else { "single precision" },
    )];
    if report.untied {
        lines.push(
            "the head has separate weights now: the adapter does not change it as the embedding"
                .to_owned(),
        );
    }
    let mut body = json!({
        "modules": report.ranks.len(),
        "ranks": report.ranks,
        "tensors": report.tensors,
        "parameters": report.parameters,
        "untied": report.untied,
    });
    if let Some((difference, logits)) = report.difference {
        lines.push(format!(
            "largest difference of {logits} logits from base and adapter: {difference:.3e}"
        ));
        body["difference"] = json!(difference);
        body["logits"] = json!(logits);
    }
    printer.notes(&report.warnings);
    Ok((body, lines))
}

fn gguf(
    arguments: &ExportArguments,
    source: &Adapter,
    command: &str,
    printer: Printer,
) -> Result<Written> {
    let GgufExport { file, adapter, warnings } = export_gguf(source, command, &arguments.out)?;
    let mut lines =
        vec![format!("`{file}`: {} modules, alpha {}", adapter.ranks.len(), adapter.lora_alpha)];
    lines.extend(listed("left out, rank 0", &adapter.dropped));
    lines.extend(listed("scale multiplied into the factors", &adapter.folded));
    let body = json!({
        "file": file,
        "lora_alpha": adapter.lora_alpha,
        "modules": adapter.ranks.len(),
        "ranks": adapter.ranks,
        "dropped": adapter.dropped,
        "folded": adapter.folded,
    });
    printer.notes(&warnings);
    Ok((body, lines))
}

/// The modules at `paths` in one line, if there are any.
fn listed(what: &str, paths: &[String]) -> Option<String> {
    (!paths.is_empty()).then(|| format!("{what}: {}", paths.join(", ")))
}
