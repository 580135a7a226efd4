//! Adapters for other programs, and their model cards.

mod card;
mod merged;
mod onnx;
mod sentence_transformers;

use std::path::Path;

use anyhow::bail;
use lrvd_burn::files::AtomicDir;
use lrvd_burn::peft::{Cap, CapReport, ExportLayout, ExportSummary, PeftAdapter};
use lrvd_models::deberta::Pooling;
use lrvd_models::llama::gguf::{GgufAdapter, write_gguf_adapter};

use crate::adapter::{Adapter, Description, HEAD_FILE};
use crate::answers::{AnswerSpace, Readout};
use crate::backbone::{Architecture, shared_name};
use crate::error::Result;
use card::{Card, CardFormat};

pub use merged::{MergeReport, export_merged};
pub use onnx::{OnnxPrecision, export_onnx};
pub use sentence_transformers::export_sentence_transformers;

const GGUF_FILE: &str = "adapter.gguf";
/// Name of the training data of a language model.
const TEXTS: &str = "texts";

#[derive(Clone, Debug)]
pub struct PeftExport {
    pub summary: ExportSummary,
    pub cut: Option<CapReport>,
    pub posterior: bool,
    pub warnings: Vec<String>,
}

/// Differences between the answers of `lrvd` and of another program that loads the export, one sentence each.
fn differences(info: Option<&Description>, to_peft: bool) -> Vec<String> {
    let Some(info) = info.filter(|info| info.goal.answers != AnswerSpace::Tokens) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    if let Some(pooling) = info.classifier_pooling().filter(|_| to_peft) {
        found.push(format!(
            "the head reads what `classifier_pooling=\"{pooling}\"` of transformers says: other programs must load the base \
             with it, as README.md shows"
        ));
    }
    if to_peft && info.pooling.is_bare() {
        found.push(format!(
            "the head reads {}, which no classifier of transformers does: PEFT loads the encoder \
             alone (`AutoModel`), and `{HEAD_FILE}` holds the classifier; README.md shows how to put them together, and \
             `lrvd` reads the folder whole",
            info.pooling.describe()
        ));
    }
    if info.pooling == Pooling::Last {
        found.push(
            "the head reads the last token by the attention mask; transformers reads the last that is not `pad_token_id`, which \
             is the one before where the tokenizer ends texts with its padding token"
                .to_owned(),
        );
    }
    if let Some(wording) = info.wording()
        && info.layout.readout() != Readout::Head
    {
        found.push(format!(
            "classes are answered in words: other programs must ask as README.md shows, {}",
            wording.describe()
        ));
    }
    if let AnswerSpace::Labels { .. } = info.goal.answers {
        let thresholds = info.thresholds.of(0, info.goal.answers.width());
        let thresholds: Vec<String> = thresholds.iter().map(|t| format!("{t:.3}")).collect();
        found.push(format!(
            "labels are independent (`problem_type=\"multi_label_classification\"`): other programs must take the sigmoid of every \
             logit, and give a label from its threshold on ({})",
            thresholds.join(", ")
        ));
    }
    if let Some(temperature) = info.temperatures.by_draws.get(&0) {
        found.push(format!(
            "the fitted temperature is not in the weights: other programs must divide logits by {temperature:.4} for the \
             probabilities of `lrvd`"
        ));
    }
    found.push(format!(
        "`lrvd` reads at most {} tokens of an input; other programs have limits of their own",
        info.run.max_length
    ));
    found
}

/// Writes `adapter` as the PEFT folder `out`, with no module above `cap`, and no path of this machine.
pub fn export_peft(
    adapter: &Adapter,
    layout: ExportLayout,
    cap: Option<Cap>,
    command: &str,
    out: &Path,
) -> Result<PeftExport> {
    let (mut files, cut) = match cap {
        Some(cap) => adapter.files.capped(cap).map(|(files, cut)| (files, Some(cut)))?,
        None => (adapter.files.clone(), None),
    };
    let base = &mut files.peft.config.base_model_name_or_path;
    let described = files.description.as_mut().map(|known| &mut known.base.name);
    for name in base.iter_mut().chain(described) {
        *name = shared_name(name).to_owned();
    }
    let summary = files.write(out, layout, |summary| {
        let info = files.description.as_ref();
        let encoder = info.is_none_or(|info| info.layout.readout() == Readout::Head);
        let info = info.filter(|info| info.goal.answers != AnswerSpace::Tokens);
        let card = Card::of(adapter, info, &summary.ranks, command)?;
        card.text(CardFormat::Peft { layout: layout.name(), encoder }).map(Some)
    })?;
    let warnings = differences(files.description.as_ref(), true);
    let posterior = files.posterior.is_some() && layout == ExportLayout::Ragged;
    Ok(PeftExport { summary, cut, posterior, warnings })
}

#[derive(Clone, Debug)]
pub struct GgufExport {
    pub file: &'static str,
    pub adapter: GgufAdapter,
    pub warnings: Vec<String>,
}

/// Writes `adapter` as one of llama.cpp into the folder `out`, which must not exist.
pub fn export_gguf(adapter: &Adapter, command: &str, out: &Path) -> Result<GgufExport> {
    let (backbone, warnings) = adapter.base()?;
    let info = adapter.described(&backbone)?;
    let Architecture::Llama(config) = &backbone.architecture else {
        bail!(
            "a GGUF adapter is for a language model, and `{model}` is an encoder, which llama.cpp does not run: use \
             `--to merged` or `--to peft`",
            model = backbone.location.name
        );
    };
    if info.as_ref().is_some_and(|info| info.layout.readout() == Readout::Head) {
        bail!(
            "a GGUF adapter cannot hold a separate head for a number or classes: use `--to merged` or \
             `--to peft`"
        );
    }
    let peft = adapter.files.peft.clone();
    let peft = PeftAdapter { base: merged::other_weights(&backbone, &peft)?, ..peft };
    let building = AtomicDir::create(out)?;
    let file = building.path().join(GGUF_FILE);
    let name = info.as_ref().map_or(TEXTS, |info| &info.goal.name);
    let written = write_gguf_adapter(&peft, config, name, &file)?;
    let card = Card::of(adapter, info.as_ref(), &written.ranks, command)?;
    card.write(CardFormat::Gguf { file: GGUF_FILE }, building.path())?;
    building.commit()?;
    let warnings = warnings.into_iter().chain(differences(info.as_ref(), false)).collect();
    Ok(GgufExport { file: GGUF_FILE, adapter: written, warnings })
}
