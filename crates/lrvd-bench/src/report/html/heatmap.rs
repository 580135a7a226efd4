//! Ranks over steps: one row per layer, module type or module, one colour per rank.

use super::scale::Scale;
use super::svg::{Anchor, Svg};
use super::view;
use crate::report::names::ModuleName;
use crate::report::record::RunRecord;

const WIDTH: f64 = 480.0;
const LEFT: f64 = 92.0;
const RIGHT: f64 = 10.0;
const BOTTOM: f64 = 40.0;
/// Shades of the style sheet above "removed".
const N_SHADES: f64 = 16.0;
/// Part of the time axis kept for the final state, which else would have no width.
const TAIL: f64 = 0.03;

/// What makes a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rows {
    Layer,
    Kind,
    Module,
}

/// Whether cells explain themselves under the pointer. The folded drawings of every seed do not: tips are most of their
/// size, and a page of many tasks must stay quick to open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tips {
    Shown,
    Omitted,
}

/// The style class of a rank on a scale that ends at `max`: `h0` for removed, `h1..h16` above.
pub(crate) fn shade(rank: f64, max: f64) -> String {
    if rank <= 0.0 || max <= 0.0 {
        return "h0".to_owned();
    }
    let level = (rank / max * N_SHADES).round().clamp(1.0, N_SHADES);
    format!("h{level}")
}

/// Whether text on a shade must be the colour for strong shades.
pub(crate) fn is_strong(rank: f64, max: f64) -> bool {
    max > 0.0 && rank / max > 0.5
}

/// Draws ranks over steps, averaged over the runs and over the modules of a row; none without rank entries.
pub(crate) fn heatmap(
    runs: &[&RunRecord],
    rows: Rows,
    max: f64,
    tips: Tips,
    label: &str,
) -> Option<String> {
    let steps = view::rank_steps(runs);
    let groups = groups(runs, rows);
    let end = runs.iter().map(|run| run.steps).max()? as f64;
    let (first, last) = (*steps.first()? as f64, *steps.last()? as f64);
    if groups.is_empty() {
        return None;
    }
    let end = end.max(last + TAIL * (end - first).max(1.0));
    let height_of_row = match rows {
        Rows::Module => (460.0 / groups.len() as f64).clamp(10.0, 15.0),
        Rows::Layer | Rows::Kind => 19.0,
    };
    let top = 6.0;
    let bottom = top + height_of_row * groups.len() as f64;
    let x = Scale::new((first, end), (LEFT, WIDTH - RIGHT));
    let mut svg = Svg::new(WIDTH, bottom + BOTTOM, label);
    let mut layer_before = None;
    for (i, group) in groups.iter().enumerate() {
        let y = top + height_of_row * i as f64;
        let class = if rows == Rows::Module { "tick small" } else { "tick" };
        if rows == Rows::Module && i > 0 && group.layer != layer_before {
            svg.line((6.0, y), (WIDTH - RIGHT, y), "split");
        }
        if rows == Rows::Module && (i == 0 || group.layer != layer_before) {
            let name = group.layer.map(|layer| format!("L{layer}")).unwrap_or_default();
            svg.text((6.0, y + height_of_row - 3.0), "tick strong", Anchor::Start, &name);
        }
        layer_before = group.layer;
        let middle = y + height_of_row / 2.0 + if rows == Rows::Module { 3.2 } else { 4.2 };
        svg.text((LEFT - 6.0, middle), class, Anchor::End, &group.name);
        let row = Row { y, height: height_of_row - 1.0, max, end, tips };
        draw_row(&mut svg, runs, group, &steps, &x, &row);
    }
    for (value, label) in x.ticks(5) {
        let at = x.at(value);
        svg.line((at, bottom + 1.0), (at, bottom + 5.0), "axis");
        svg.text((at, bottom + 18.0), "tick", Anchor::Middle, &label);
    }
    let middle = f64::midpoint(LEFT, WIDTH - RIGHT);
    svg.text((middle, bottom + BOTTOM - 5.0), "title", Anchor::Middle, "step");
    Some(svg.finish())
}

/// Geometry of one row.
struct Row {
    y: f64,
    height: f64,
    max: f64,
    end: f64,
    tips: Tips,
}

/// Draws the cells of a row; neighbours of the same value become one cell.
fn draw_row(
    svg: &mut Svg,
    runs: &[&RunRecord],
    group: &Group,
    steps: &[u64],
    x: &Scale,
    row: &Row,
) {
    let mean_at = |step: u64| {
        let ranks: Vec<f64> =
            group.paths.iter().filter_map(|path| view::rank_at(runs, path, step)).collect();
        view::mean(&ranks)
    };
    let mut open: Option<(u64, f64)> = None;
    for (step, value) in steps.iter().map(|s| (Some(*s), mean_at(*s))).chain([(None, None)]) {
        if step.is_some() && open.map(|o| o.1) == value {
            continue;
        }
        if let Some((start, rank)) = open {
            let until = step.map_or(row.end, |s| s as f64);
            let (left, right) = (x.at(start as f64), x.at(until));
            let tip = format!(
                "{}: rank {}, steps {start} to {}",
                group.full_name,
                super::svg::coordinate(rank),
                super::svg::coordinate(step.map_or(row.end.min(until), |s| s as f64).floor())
            );
            let tip = (row.tips == Tips::Shown).then_some(tip.as_str());
            let class = format!("cell {}", shade(rank, row.max));
            // A hair of overlap hides the seams between cells.
            svg.rect((left, row.y), (right - left + 0.3, row.height), &class, tip);
        }
        open = step.zip(value);
    }
}

/// The modules of one row.
struct Group {
    layer: Option<u32>,
    name: String,
    full_name: String,
    paths: Vec<String>,
}

fn groups(runs: &[&RunRecord], rows: Rows) -> Vec<Group> {
    let mut groups: Vec<(ModuleName, Group)> = Vec::new();
    for path in view::module_paths(runs) {
        let module = ModuleName::parse(&path);
        let (layer, name) = match rows {
            Rows::Layer => {
                let other = || "other".to_owned();
                (module.layer, module.layer.map_or_else(other, |layer| format!("layer {layer}")))
            }
            Rows::Kind => (None, module.kind.clone()),
            Rows::Module => (module.layer, module.kind.clone()),
        };
        let same = |g: &Group| rows != Rows::Module && g.layer == layer && g.name == name;
        if let Some((_, group)) = groups.iter_mut().find(|(_, g)| same(g)) {
            group.paths.push(path);
        } else {
            let full_name = if rows == Rows::Module { module.label() } else { name.clone() };
            groups.push((module, Group { layer, name, full_name, paths: vec![path] }));
        }
    }
    if rows == Rows::Kind {
        groups.sort_by(|a, b| a.0.kind_order(&b.0));
    }
    groups.into_iter().map(|(_, group)| group).collect()
}

/// The colour key: removed, then shades up to `max`.
pub(crate) fn key(max: f64) -> String {
    let (width, cell, y) = (300.0, 22.0, 4.0);
    let n = (max.round() as u32).clamp(1, 8);
    let mut svg = Svg::new(width, 36.0, "colour key: rank");
    svg.text((0.0, y + 11.0), "title", Anchor::Start, "rank");
    let left = 38.0;
    for i in 0..=n {
        let rank = f64::from(i) * max / f64::from(n);
        let at = left + f64::from(i) * cell;
        svg.rect((at, y), (cell - 1.0, 13.0), &format!("cell {}", shade(rank, max)), None);
        let label = super::svg::coordinate((rank * 10.0).round() / 10.0);
        svg.text((at + cell / 2.0, y + 26.0), "tick small", Anchor::Middle, &label);
    }
    svg.finish()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::report::sample::sample_results;

    #[test]
    fn removed_has_a_shade_of_its_own() {
        assert_eq!(shade(0.0, 8.0), "h0");
        assert_eq!(shade(0.01, 8.0), "h1");
        assert_eq!(shade(4.0, 8.0), "h8");
        assert_eq!(shade(9.0, 8.0), "h16");
        assert_eq!(shade(1.0, 0.0), "h0");
    }

    #[test]
    fn rows_group_modules() {
        let results = sample_results();
        let runs = view::runs(&results, "rte", "BayesLoRA");
        let names = |rows| groups(&runs, rows).iter().map(|g| g.name.clone()).collect::<Vec<_>>();
        assert_eq!(names(Rows::Layer), ["layer 0", "layer 1", "layer 2", "layer 3"]);
        assert_eq!(names(Rows::Kind), ["query", "key", "value", "attn out", "ffn in", "ffn out"]);
        assert_eq!(names(Rows::Module).len(), 24);
        let svg = heatmap(&runs, Rows::Module, 8.0, Tips::Shown, "x").unwrap();
        assert!(svg.contains("L0 query: rank 8, steps 0 to "));
        let plain = heatmap(&runs, Rows::Module, 8.0, Tips::Omitted, "x").unwrap();
        assert_eq!(plain.matches("<rect").count(), svg.matches("<rect").count());
        assert!(!plain.contains("<title>"));
        assert!(heatmap(&[], Rows::Layer, 8.0, Tips::Shown, "x").is_none());
    }
}
