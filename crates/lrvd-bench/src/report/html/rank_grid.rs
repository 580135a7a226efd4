//! The final rank pattern: layers down, module types across, a number in every cell.

use super::heatmap::{is_strong, shade};
use super::svg::{Anchor, Svg, coordinate};
use super::view;
use crate::report::checkpoint::CheckpointRecord;
use crate::report::names::ModuleName;

const LEFT: f64 = 40.0;
const TOP: f64 = 22.0;

/// Size of a pattern in print.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Size {
    /// Wide cells and one decimal: the mean over seeds.
    Large,
    /// Small cells and whole numbers: one seed.
    Small,
}

/// Draws the ranks of some checkpoints, averaged; none without modules.
pub(crate) fn rank_grid(
    checkpoints: &[&CheckpointRecord],
    max: f64,
    size: Size,
    label: &str,
) -> Option<String> {
    let mut modules: Vec<(ModuleName, &String)> = checkpoints
        .iter()
        .flat_map(|c| c.ranks.keys())
        .map(|path| (ModuleName::parse(path), path))
        .collect();
    modules.sort_by(|a, b| a.0.order(&b.0).then_with(|| a.1.cmp(b.1)));
    modules.dedup_by(|a, b| a.1 == b.1);
    let mut layers: Vec<Option<u32>> = modules.iter().map(|m| m.0.layer).collect();
    layers.dedup();
    let mut kinds: Vec<ModuleName> = modules.iter().map(|m| m.0.clone()).collect();
    kinds.sort_by(ModuleName::kind_order);
    kinds.dedup_by(|a, b| a.kind == b.kind);
    if modules.is_empty() {
        return None;
    }

    let (cell, row) = match size {
        Size::Large => (66.0, 24.0),
        Size::Small => (66.0, 19.0),
    };
    let width = LEFT + cell * kinds.len() as f64 + 2.0;
    let height = TOP + row * layers.len() as f64 + 2.0;
    let mut svg = Svg::new(width, height, label);
    for (j, kind) in kinds.iter().enumerate() {
        let x = LEFT + cell * (j as f64 + 0.5);
        svg.text((x, TOP - 8.0), "tick", Anchor::Middle, &kind.kind);
    }
    for (i, layer) in layers.iter().enumerate() {
        let y = TOP + row * i as f64;
        let name = layer.map_or_else(|| "–".to_owned(), |layer| format!("L{layer}"));
        svg.text((LEFT - 9.0, y + row / 2.0 + 4.2), "tick strong", Anchor::End, &name);
        for (j, kind) in kinds.iter().enumerate() {
            let here: Vec<f64> = modules
                .iter()
                .filter(|(m, _)| m.layer == *layer && m.kind == kind.kind)
                .flat_map(|(_, path)| checkpoints.iter().filter_map(|c| c.ranks.get(*path)))
                .map(|rank| f64::from(*rank))
                .collect();
            let Some(rank) = view::mean(&here) else { continue };
            let corner = (LEFT + cell * j as f64, y);
            let tip = format!("{name} {}: rank {}", kind.kind, coordinate(rank));
            let class = format!("cell {}", shade(rank, max));
            svg.rect(corner, (cell - 1.5, row - 1.5), &class, Some(&tip));
            let class = if is_strong(rank, max) { "num on-strong" } else { "num on-weak" };
            let text = match size {
                Size::Large => coordinate((rank * 10.0).round() / 10.0),
                Size::Small => coordinate(rank),
            };
            let at = (corner.0 + cell / 2.0 - 0.75, y + row / 2.0 + 3.8);
            svg.text(at, class, Anchor::Middle, &text);
        }
    }
    Some(svg.finish())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::report::sample::sample_results;
    use crate::report::summary::CheckpointChoice;

    #[test]
    fn every_module_has_its_cell() {
        let results = sample_results();
        let runs = view::runs(&results, "rte", "BayesLoRA");
        let found = view::checkpoints(&runs, CheckpointChoice::Last);
        let records: Vec<_> = found.iter().map(|c| c.1).collect();
        let svg = rank_grid(&records, 8.0, Size::Large, "x").unwrap();
        assert_eq!(svg.matches("<rect").count(), 24);
        assert_eq!(svg.matches(">ffn out</text>").count(), 1);
        assert!(rank_grid(&[], 8.0, Size::Small, "x").is_none());
    }
}
