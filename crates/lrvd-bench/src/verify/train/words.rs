//! Whether the procedure that a folder describes is the one that is here.
//!
//! The descriptions are prose, so only what decides is looked for in them: a folder that describes
//! another optimiser, schedule, clipping, order or choice of parameters is refused, and not
//! recomputed by the wrong rule.

use super::super::{Entry, Folder, VerifyError};

/// What each description must contain.
const DESCRIPTIONS: [(&str, &[&str]); 3] = [
    ("optimizer", &["AdamW, decoupled: p -= lr*wd*p;", "t counts from 1"]),
    ("schedule", &["t/warmup for t < warmup", "max(0, (steps-t)/(steps-warmup))"]),
    ("clipping", &["total L2 norm over all trainable tensors", "min(1, clip/(norm+1e-6))"]),
];
/// Groups of parameters, in any order.
const GROUPS: [&str; 4] = [
    "lora_*: lr adapter_lr, weight decay 0",
    "classifier.weight: lr head_lr, weight decay head_weight_decay",
    "classifier.bias: lr head_lr, weight decay 0",
    "everything else frozen",
];
/// Order of the parts of an `AdaLoRA` step.
const ORDER: &str =
    "forward, backward, clip, optimizer step, scheduler step, update_and_allocate(global_step)";

/// Refuses a folder that describes another procedure.
pub(super) fn check(folder: &Folder, adalora: bool) -> Result<(), VerifyError> {
    for (key, parts) in DESCRIPTIONS {
        let entry = folder.get(key)?;
        let text = plain(entry.text()?);
        if !parts.iter().all(|part| text.contains(part)) {
            return Err(refused(&entry));
        }
    }
    let groups = folder.get("parameter_groups")?;
    let mut found = Vec::new();
    for group in groups.list()? {
        let text = plain(group.text()?);
        // A remark in brackets says nothing new.
        let text = text.split_once(" (").map_or(text.as_str(), |(start, _)| start).to_owned();
        if !GROUPS.contains(&text.as_str()) {
            return Err(refused(&group));
        }
        found.push(text);
    }
    if GROUPS.iter().any(|group| !found.iter().any(|found| found == group)) {
        return Err(refused(&groups));
    }
    if adalora {
        let order = folder.get("adalora")?.get("update_order")?;
        if !plain(order.text()?).starts_with(ORDER) {
            return Err(refused(&order));
        }
    }
    Ok(())
}

/// One blank between words.
fn plain(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn refused(entry: &Entry<'_>) -> VerifyError {
    VerifyError::unsupported(format!("`{}` = {}", entry.path(), entry.value))
}
