//! Trained values of a run by part, and the modules that they are in.

use std::collections::BTreeMap;

use lrvd_burn::model::{NamedModule, trainable_counts};
use lrvd_burn::parameters::Group;

/// One line: the values in adapters, in their posterior, and in whole modules, each with the modules. Blocks that differ in
/// their number are one name, `4 × attention.self.query_proj`.
pub(crate) fn trained(model: &impl NamedModule) -> String {
    let counts = trainable_counts(model);
    let mut adapted = Vec::new();
    let mut whole = Vec::new();
    model.visit_layers(&mut |path, layer| {
        if layer.low_rank().is_some() {
            adapted.push(path.to_owned());
        }
    });
    model.visit_parameters(&mut |p| {
        let is_whole = matches!(p.group, Group::Pooler | Group::Head | Group::Backbone);
        if is_whole && p.value.is_trainable() {
            whole.push(p.module().to_owned());
        }
    });
    whole.dedup();
    let mut parts = Vec::new();
    if !adapted.is_empty() || whole.is_empty() {
        parts.push(format!("{} values in adapters of {}", counts.adapter, named(&adapted)));
    }
    if counts.posterior > 0 {
        parts.push(format!("{} in their posterior", counts.posterior));
    }
    if !whole.is_empty() {
        parts.push(format!("{} in {}", counts.head + counts.backbone, named(&whole)));
    }
    format!("trained: {}", parts.join("; "))
}

/// Paths without what stands before the number of their block, and how many have that name.
fn named(paths: &[String]) -> String {
    let mut found: BTreeMap<String, usize> = BTreeMap::new();
    for path in paths {
        let parts: Vec<&str> = path.split('.').collect();
        let block = parts.iter().rposition(|part| part.parse::<usize>().is_ok());
        let name = parts[block.map_or(0, |block| block + 1)..].join(".");
        *found.entry(if name.is_empty() { path.clone() } else { name }).or_insert(0) += 1;
    }
    let name = |(name, count): (String, usize)| match count {
        1 => format!("`{name}`"),
        count => format!("{count} × `{name}`"),
    };
    found.into_iter().map(name).collect::<Vec<_>>().join(", ")
}
