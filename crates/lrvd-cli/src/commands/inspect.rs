//! `lrvd inspect`

use std::path::PathBuf;

use anyhow::bail;
use clap::Args;
use lrvd_bench::adapter::{
    Adapter, AdapterReport, BaseReport, ModelCheck, ModuleReport, OpenOptions, check_model,
    inspect_adapter, inspect_base, is_base,
};
use lrvd_burn::device;
use lrvd_burn::files::is_dir;

use super::Outcome;
use super::table::{count, table};
use crate::exit::ExitStatus;
use crate::printer::Printer;
use crate::rows::Row;

#[derive(Debug, Args)]
pub(crate) struct InspectArguments {
    /// Output of `lrvd train`, one of its checkpoints, an adapter folder, or a base checkpoint.
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// Check that all tensors in DIR can be read and are finite, and that the logits are finite.
    #[arg(long)]
    pub(crate) check: bool,
    /// Accept changed files of the adapter.
    #[arg(long)]
    pub(crate) allow_changed: bool,
}

pub(super) fn run(arguments: InspectArguments, printer: Printer) -> Outcome {
    let dir = arguments.dir.as_path();
    let is_adapter = Adapter::is_at(dir)?;
    let is_base = is_base(dir)?;
    if arguments.check && (is_adapter || is_base) {
        let check = match check_model(dir, &device::open("cpu")?, arguments.allow_changed) {
            Ok(check) => check,
            Err(error) => {
                printer.error(error.as_ref());
                return Ok(ExitStatus::CheckFailed);
            }
        };
        printer.report("inspect", &check, checked)?;
        return Ok(if check.finite == Some(false) {
            ExitStatus::CheckFailed
        } else {
            ExitStatus::Done
        });
    }
    if is_base && !is_adapter {
        let part = |(part, values): (&String, &usize)| {
            Row::default().with("part", part.as_str()).with("values", *values)
        };
        let rows = |report: &BaseReport| Ok(report.parameters.iter().map(part).collect());
        printer.report_rows("inspect", &inspect_base(dir)?, rows, base)?;
        return Ok(ExitStatus::Done);
    }
    if is_dir(dir)? && !is_adapter {
        bail!(
            "`{}` holds no adapter or checkpoint; looked for `adapter_config.json`, \
             `adapter/adapter_config.json`, `settings.json`, `state.json`, `config.json`, `*.gguf`",
            dir.display()
        );
    }
    let options = OpenOptions { allow_changed: arguments.allow_changed, ..OpenOptions::default() };
    let source = Adapter::open(dir, &options, &device::open("cpu")?)?;
    printer.notes(&source.warnings);
    let rows = |report: &AdapterReport| Row::each(&report.modules);
    let report = inspect_adapter(&source)?;
    printer.report_rows("inspect", &report, rows, adapter)?;
    if let Some(text) = report.low_scale() {
        printer.note(&text);
    }
    Ok(ExitStatus::Done)
}

fn checked(check: &ModelCheck) -> String {
    let read = |n: usize, what: &str| format!("{n} tensors of the {what} were read and are finite");
    let mut lines = Vec::new();
    lines.extend(check.base_tensors.map(|n| read(n, "base model")));
    if check.unused_tensors > 0 {
        lines.push(format!("{} tensors of the checkpoint are not used", check.unused_tensors));
    }
    if !check.fresh.is_empty() {
        lines.push(format!("not in the checkpoint: {}", check.fresh.join(", ")));
    }
    lines.extend(check.adapter_tensors.map(|n| read(n, "adapter")));
    lines.push(match check.finite {
        Some(true) => "the logits of a built-in batch are finite".to_owned(),
        Some(false) => "the logits of a built-in batch are not finite".to_owned(),
        None => "there is no base model beside the adapter: nothing was computed".to_owned(),
    });
    lines.join("\n")
}

fn adapter(report: &AdapterReport) -> String {
    let relevance = report.modules.iter().any(|m| !m.log_alpha.is_empty());
    let mut header = vec!["module", "rank", "of", "in", "out", "values", "scaling", "norm"];
    if relevance {
        header.extend(["log_alpha min", "median", "max"]);
    }
    let (empty, ranked): (Vec<_>, Vec<_>) = report.modules.iter().partition(|m| m.rank == 0);
    let rows: Vec<_> = ranked.into_iter().map(|m| module(m, relevance)).collect();
    let mut lines = vec![
        format!("{} {} ({})", report.method, report.kind, report.folder),
        format!("base model: {}", report.base_model.as_deref().unwrap_or("not named")),
    ];
    if !report.labels.is_empty() {
        lines.push(format!("labels: {}", report.labels.join(", ")));
    }
    if !rows.is_empty() {
        lines.push(table(&header, rows));
    }
    if let Some(first) = empty.first() {
        let n = empty.len();
        let all = report.modules.len();
        lines.push(format!("{n} of {all} modules have no rank left, `{}` among them", first.path));
    }
    lines.push(format!(
        "total rank {}, {:.2} per module, largest {}{}; {} values in adapters, {} in the posterior, \
         {} in pooler and head",
        report.total_rank,
        report.average_rank,
        report.max_rank,
        report.scale().map_or_else(String::new, |scale| format!(", {scale}")),
        count(report.adapter_parameters),
        count(report.posterior_parameters),
        count(report.saved_parameters.values().sum()),
    ));
    let pruned = count(report.pruned);
    match report.log_alpha_threshold.zip(report.above_threshold) {
        Some((threshold, above)) => lines.push(format!(
            "{pruned} directions were pruned; {} of those left have a log_alpha of {threshold} or more",
            count(above),
        )),
        None if report.pruned > 0 => lines.push(format!("{pruned} directions were removed")),
        None => {}
    }
    lines.extend(report.temperatures.describe().or_else(|| report.intervals.describe()));
    lines.extend(report.abstentions.iter().map(|(draws, own)| own.describe(*draws)));
    lines.join("\n")
}

fn module(m: &ModuleReport, relevance: bool) -> Vec<String> {
    let width = |i: usize| m.shape.map_or_else(|| "-".to_owned(), |shape| shape[i].to_string());
    let mut row = vec![
        m.path.clone(),
        m.rank.to_string(),
        m.initial_rank.to_string(),
        width(0),
        width(1),
        count(m.parameters),
        m.scaling.map_or_else(|| "-".to_owned(), |scaling| format!("{scaling:.4}")),
        format!("{:.4}", m.update_norm),
    ];
    if relevance {
        let at =
            |i: usize| m.log_alpha.get(i).map_or_else(|| "-".to_owned(), |v| format!("{v:.3}"));
        // In rising order.
        let last = m.log_alpha.len().saturating_sub(1);
        let middle = |i: usize| m.log_alpha.get(i).copied();
        let median = middle(last / 2).zip(middle(last.div_ceil(2)));
        let median = median.map_or_else(
            || "-".to_owned(),
            |(low, high)| format!("{:.3}", f64::midpoint(low, high)),
        );
        row.extend([at(0), median, at(last)]);
    }
    row
}

fn base(report: &BaseReport) -> String {
    let rows = report.parameters.iter().map(|(part, n)| vec![part.clone(), count(*n)]).collect();
    let types: Vec<String> =
        report.dtypes.iter().map(|(name, n)| format!("{} in {name}", count(*n))).collect();
    [
        format!("{} base checkpoint ({})", report.architecture, report.folder),
        format!(
            "{} layers, hidden size {}, {} heads, feed-forward {}, {} tokens",
            report.layers,
            report.hidden_size,
            report.attention_heads,
            report.intermediate_size,
            count(report.vocab_size),
        ),
        table(&["part", "values"], rows),
        format!("{} values: {}", count(report.total_parameters), types.join(", ")),
    ]
    .join("\n")
}
