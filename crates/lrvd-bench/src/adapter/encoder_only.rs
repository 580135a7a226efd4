//! The adapter of an encoder whose head reads the mean over all tokens, as PEFT can load it.
//!
//! transformers has no such classifier: PEFT would put the adapter under another one and answer differently, without a
//! word. The folder is that of an adapter of the encoder alone (`FEATURE_EXTRACTION`), whose module paths are those of
//! `AutoModel`, and the classifier is in [`HEAD_FILE`] beside it.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::anyhow;
use lrvd_burn::files::{WeightStore, write_safetensors};
use lrvd_burn::peft::{ExportSummary, PeftAdapter};

use super::HEAD_FILE;
use super::description::Description;
use crate::error::Result;

const TASK_TYPE: &str = "FEATURE_EXTRACTION";

/// The start of the encoder's module paths in the whole model, with its dot; `None` of an adapter that PEFT loads whole.
fn prefix(description: Option<&Description>) -> Option<String> {
    let Description { run, .. } = description.filter(|info| info.pooling.is_bare())?;
    let (encoder, _) = run.ranks.keys().next()?.split_once('.')?;
    Some(format!("{encoder}."))
}

/// The adapter of the encoder alone, and the start of its paths in the whole model; `None` of one that PEFT loads whole.
pub(super) fn split(
    peft: &PeftAdapter,
    description: Option<&Description>,
) -> Option<(PeftAdapter, String)> {
    let prefix = prefix(description)?;
    let modules = peft.modules.iter().map(|(path, module)| {
        (path.strip_prefix(&prefix).unwrap_or(path).to_owned(), module.clone())
    });
    let mut encoder =
        PeftAdapter { modules: modules.collect(), saved: BTreeMap::new(), ..peft.clone() };
    encoder.config.task_type = Some(TASK_TYPE.to_owned());
    encoder.config.modules_to_save = Vec::new();
    Some((encoder, prefix))
}

/// Writes the classifier of `peft` into `dir`.
pub(super) fn write_head(peft: &PeftAdapter, dir: &Path) -> Result<()> {
    let metadata = [("format".to_owned(), "pt".to_owned())].into();
    Ok(write_safetensors(dir.join(HEAD_FILE), &peft.saved, &metadata)?)
}

/// The summary with the paths of the whole model.
pub(super) fn whole(summary: ExportSummary, prefix: &str) -> ExportSummary {
    let path = |path: String| format!("{prefix}{path}");
    ExportSummary {
        ranks: summary.ranks.into_iter().map(|(module, rank)| (path(module), rank)).collect(),
        dropped: summary.dropped.into_iter().map(path).collect(),
        zero_module: summary.zero_module.map(path),
        folded: summary.folded.into_iter().map(path).collect(),
    }
}

/// The adapter in `dir` with its classifier, if it was [split](split).
pub(super) fn join(
    mut peft: PeftAdapter,
    description: Option<&Description>,
    dir: &Path,
) -> Result<PeftAdapter> {
    let split = peft.config.task_type.as_deref() == Some(TASK_TYPE);
    let Some(prefix) = prefix(description).filter(|_| split) else { return Ok(peft) };
    peft.saved = WeightStore::open(dir.join(HEAD_FILE))?.read_all()?;
    let Some((path, _)) = peft.saved.keys().next().and_then(|name| name.rsplit_once('.')) else {
        return Err(anyhow!("`{}` has no classifier", dir.join(HEAD_FILE).display()));
    };
    peft.config.modules_to_save = vec![path.to_owned()];
    peft.config.task_type = Some("SEQ_CLS".to_owned());
    let modules = std::mem::take(&mut peft.modules).into_iter();
    peft.modules = modules.map(|(path, module)| (format!("{prefix}{path}"), module)).collect();
    Ok(peft)
}
