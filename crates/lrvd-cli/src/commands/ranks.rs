//! `lrvd ranks`

use std::collections::BTreeMap;

use lrvd_bench::SavedError;
use lrvd_bench::classify::{AdapterReport, AdapterSource, inspect_adapter};
use lrvd_burn::device;
use serde::Serialize;

use super::Outcome;
use crate::args::RanksCommand;
use crate::exit::ExitStatus;
use crate::printer::Printer;

/// Arguments of PEFT's `LoraConfig`. Patterns are matched at the end of a name, so the names are whole.
#[derive(Debug, PartialEq, Serialize)]
struct Suggestion<'a> {
    r: usize,
    lora_alpha: f64,
    target_modules: Vec<&'a str>,
    rank_pattern: BTreeMap<&'a str, usize>,
    alpha_pattern: BTreeMap<&'a str, f64>,
}

impl<'a> Suggestion<'a> {
    /// Of the modules that have a rank; `None` if none has.
    fn of(report: &'a AdapterReport) -> Option<Self> {
        let live = || report.modules.iter().filter(|module| module.rank > 0);
        let alpha = |rank: usize, scaling: Option<f64>| scaling.unwrap_or(1.0) * rank as f64;
        let largest = live().max_by_key(|module| module.rank)?;
        let (r, lora_alpha) = (largest.rank, alpha(largest.rank, largest.scaling));
        let others =
            || live().filter(|module| module.rank != r || module.scaling != largest.scaling);
        Some(Self {
            r,
            lora_alpha,
            target_modules: live().map(|module| module.path.as_str()).collect(),
            rank_pattern: others().map(|module| (module.path.as_str(), module.rank)).collect(),
            alpha_pattern: others()
                .map(|module| (module.path.as_str(), alpha(module.rank, module.scaling)))
                .collect(),
        })
    }
}

/// Prints the ranks of an adapter as the settings of a plain LoRA.
pub(super) fn run(command: RanksCommand, printer: Printer) -> Outcome {
    let RanksCommand::Suggest(arguments) = command;
    let source = AdapterSource::open(&arguments.dir, &device::open("cpu")?)?;
    let report = inspect_adapter(&source)?;
    let Some(suggestion) = Suggestion::of(&report) else {
        return Err(SavedError::Nothing {
            dir: arguments.dir,
            wanted: "rank",
            looked_for: "modules with a rank above 0: training left none".to_owned(),
        }
        .into());
    };
    printer.data(&serde_json::to_string_pretty(&suggestion)?)?;
    printer.note(&format!(
        "{} of {} modules keep a rank; {} ranks of {}",
        suggestion.target_modules.len(),
        report.modules.len(),
        report.total_rank,
        report.total_rank + report.pruned,
    ));
    Ok(ExitStatus::Done)
}
