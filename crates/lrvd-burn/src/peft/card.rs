//! The `README.md` of an exported adapter.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use super::adapter::PeftModule;
use super::export::ExportSummary;
use crate::text::{cell, code, printable_json};

/// The card: what the adapter belongs to, how it is laid out, and the rank and scale of every
/// module.
pub(super) fn write_card(
    summary: &ExportSummary,
    modules: &BTreeMap<String, PeftModule>,
) -> String {
    let config = &summary.config;
    let base = config.base_model_name_or_path.as_deref().map(Path::new);
    // A place on this machine says nothing elsewhere: its last part is the name.
    let id = base.filter(|base| !base.is_absolute()).and_then(Path::to_str);
    let name =
        base.and_then(|base| if base.is_absolute() { base.file_name()?.to_str() } else { id });
    let mut card = String::from("---\n");
    if let Some(base) = id {
        // A JSON text is a YAML text, whatever is in it.
        let json = serde_json::Value::from(base).to_string();
        let _ = writeln!(card, "base_model: {}", printable_json(&json));
    }
    card.push_str("library_name: peft\ntags:\n- lora\n- lrvd\n---\n\n# Low-rank adapter\n\n");
    let total: usize = summary.ranks.values().sum();
    let _ = writeln!(
        card,
        "Adapter of the type {} for {}, layout `{}`: {} modules, {total} ranks in all.",
        config.method.name(),
        name.map_or_else(|| "an unnamed base model".to_owned(), code),
        summary.layout.name(),
        modules.len(),
    );
    if let Some(path) = &summary.zero_module {
        let _ = writeln!(
            card,
            "\nNo module has a rank left. {} is there with zeros, because PEFT demands a module.",
            code(path)
        );
    }
    if !summary.dropped.is_empty() {
        let _ = writeln!(
            card,
            "\n{} modules were pruned to rank 0 and are left out.",
            summary.dropped.len()
        );
    }
    if !summary.folded.is_empty() {
        let _ = writeln!(
            card,
            "\nThe scale of {} modules differs from the common one and is multiplied into `lora_B`.",
            summary.folded.len()
        );
    }
    card.push_str("\n| Module | Rank | Scale |\n|---|---|---|\n");
    for (path, module) in modules {
        let path = cell(&code(path));
        let _ = writeln!(card, "| {path} | {} | {} |", module.rank, module.scaling);
    }
    card
}
