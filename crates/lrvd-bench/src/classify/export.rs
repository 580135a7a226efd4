//! Adapters for other programs: PEFT and llama.cpp.

use std::path::Path;

use anyhow::bail;
use lrvd_burn::files::AtomicDir;
use lrvd_burn::peft::{CapReport, ExportLayout, ExportSummary};
use lrvd_models::llama::gguf::{GgufAdapter, write_gguf_adapter};

use super::card::{CARD_FILE, Card, CardFormat};
use super::info::{AdapterInfo, ClassifierInfo};
use super::load::open_any_base;
use super::source::AdapterSource;
use crate::backbone::{Architecture, shared_name};
use crate::error::Result;
use crate::io::cannot;

const GGUF_FILE: &str = "adapter.gguf";
/// Name of what an adapter of a language model was trained on.
const TEXTS: &str = "texts";

#[derive(Clone, Debug)]
pub struct PeftExport {
    pub summary: ExportSummary,
    pub cut: Option<CapReport>,
    pub posterior: bool,
}

/// Writes `source` as the PEFT folder `out`, with no module above the rank `cap`. `command` is for the model card. A base model
/// that is a path on this machine is named by its last part.
pub fn export_peft(
    source: &AdapterSource,
    layout: ExportLayout,
    cap: Option<usize>,
    command: &str,
    out: &Path,
) -> Result<PeftExport> {
    let (mut saved, cut) = match cap {
        Some(rank) => {
            let (saved, cut) = source.saved.capped(rank)?;
            (saved, Some(cut))
        }
        None => (source.saved.clone(), None),
    };
    let base = &mut saved.adapter.config.base_model_name_or_path;
    let described = saved.info.as_mut().map(AdapterInfo::base_name);
    for name in base.iter_mut().chain(described) {
        *name = shared_name(name).to_owned();
    }
    let summary = saved.write_with(out, layout, |summary| {
        let info = saved.info.as_ref().and_then(AdapterInfo::classifier);
        let card = Card::of(source, info, &summary.ranks, command)?;
        let encoder = match saved.info {
            Some(AdapterInfo::Language(_)) => false,
            _ => info.is_none_or(ClassifierInfo::has_head),
        };
        Ok(Some(card.text(CardFormat::Peft { layout: layout.name(), encoder })))
    })?;
    let posterior = saved.posterior.is_some()
        && layout == ExportLayout::Ragged
        && summary.zero_module.is_none();
    Ok(PeftExport { summary, cut, posterior })
}

#[derive(Clone, Debug)]
pub struct GgufExport {
    pub file: &'static str,
    pub adapter: GgufAdapter,
    /// Files of the base model that have changed.
    pub warnings: Vec<String>,
}

/// Writes `source` as an adapter of llama.cpp into the folder `out`, which must not exist. The base model's
/// configuration says how its heads are laid out.
pub fn export_gguf(
    source: &AdapterSource,
    model: Option<&str>,
    allow_other_base: bool,
    command: &str,
    out: &Path,
) -> Result<GgufExport> {
    let (info, backbone, warnings) = open_any_base(source, model, allow_other_base)?;
    let Architecture::Llama(config) = &backbone.architecture else {
        bail!(
            "a GGUF adapter is for a Llama, and `{model}` is an encoder, which llama.cpp does not run: use \
             `--to merged` or `--to peft`",
            model = backbone.location.name
        );
    };
    if info.as_ref().is_some_and(ClassifierInfo::has_head) {
        bail!(
            "a GGUF adapter cannot hold the separate head that predicts a number: use `--to merged` or \
             `--to peft`"
        );
    }
    let building = AtomicDir::create(out)?;
    let file = building.path().join(GGUF_FILE);
    let name = info.as_ref().map_or(TEXTS, |info| &info.goal.name);
    let adapter = write_gguf_adapter(&source.saved.adapter, config, name, &file)?;
    let card = Card::of(source, info.as_ref(), &adapter.ranks, command)?;
    let text = card.text(CardFormat::Gguf { file: GGUF_FILE });
    std::fs::write(building.path().join(CARD_FILE), text)
        .map_err(cannot("write", building.path()))?;
    building.commit()?;
    Ok(GgufExport { file: GGUF_FILE, adapter, warnings })
}
