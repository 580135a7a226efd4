//! The relevance statistic of every component, module by module: sorted, with its largest gap and the threshold.

use super::scale::{Scale, extent};
use super::svg::{Anchor, Svg};
use crate::report::checkpoint::StatisticRecord;
use crate::report::names::ModuleName;

const LEFT: f64 = 64.0;
const TOP: f64 = 24.0;
const PANEL: (f64, f64) = (166.0, 74.0);
const SPACE: (f64, f64) = (9.0, 9.0);
const BOTTOM: f64 = 30.0;
/// Labels that fit beside a panel.
const MOST_TICKS: usize = 4;

/// The values of one module in ascending order, with whether each was removed.
pub(crate) fn sorted(record: &StatisticRecord, path: &str) -> Vec<(f64, bool)> {
    let list = |map: &std::collections::BTreeMap<String, Vec<f64>>, removed: bool| {
        let values = map.get(path).cloned().unwrap_or_default();
        values.into_iter().filter(|x| x.is_finite()).map(move |x| (x, removed)).collect::<Vec<_>>()
    };
    let mut values = list(&record.present, false);
    values.extend(list(&record.removed, true));
    values.sort_by(|a, b| a.0.total_cmp(&b.0));
    values
}

/// The two neighbours with the largest difference; none for fewer than two values.
pub(crate) fn largest_gap(values: &[(f64, bool)]) -> Option<(f64, f64)> {
    values
        .windows(2)
        .map(|pair| (pair[0].0, pair[1].0))
        .fold(None, |best, pair| match best {
            Some((low, high)) if high - low >= pair.1 - pair.0 => Some((low, high)),
            _ => Some(pair),
        })
        .filter(|(low, high)| high > low)
}

/// Draws one panel per module on common axes; none if no module has a finite value.
pub(crate) fn trellis(record: &StatisticRecord, colour: usize, label: &str) -> Option<String> {
    let mut modules: Vec<(ModuleName, String)> = record
        .present
        .keys()
        .chain(record.removed.keys())
        .map(|path| (ModuleName::parse(path), path.clone()))
        .collect();
    modules.sort_by(|a, b| a.0.order(&b.0).then_with(|| a.1.cmp(&b.1)));
    modules.dedup();
    let mut layers: Vec<Option<u32>> = modules.iter().map(|m| m.0.layer).collect();
    layers.dedup();
    let mut kinds: Vec<ModuleName> = modules.iter().map(|m| m.0.clone()).collect();
    kinds.sort_by(ModuleName::kind_order);
    kinds.dedup_by(|a, b| a.kind == b.kind);

    let values: Vec<Vec<(f64, bool)>> =
        modules.iter().map(|(_, path)| sorted(record, path)).collect();
    let everything = values.iter().flatten().map(|v| v.0).chain(record.threshold);
    let range = extent(everything)?;
    let longest = values.iter().map(Vec::len).max().filter(|n| *n > 0)?;
    let pitch = (PANEL.0 + SPACE.0, PANEL.1 + SPACE.1);
    let width = LEFT + pitch.0 * kinds.len() as f64;
    let height = TOP + pitch.1 * layers.len() as f64 + BOTTOM;
    let mut svg = Svg::new(width, height, label);
    for (j, kind) in kinds.iter().enumerate() {
        let x = LEFT + pitch.0 * j as f64 + PANEL.0 / 2.0;
        svg.text((x, TOP - 9.0), "tick", Anchor::Middle, &kind.kind);
    }
    for (i, layer) in layers.iter().enumerate() {
        let y = TOP + pitch.1 * i as f64;
        let name = layer.map_or_else(String::new, |layer| format!("L{layer}"));
        svg.text((6.0, y + PANEL.1 / 2.0 + 4.0), "tick strong", Anchor::Start, &name);
        let scale = Scale::nice(range, (y + PANEL.1 - 5.0, y + 5.0), 5);
        let ticks = scale.ticks(4);
        for (value, text) in ticks.iter().step_by(1 + ticks.len() / (MOST_TICKS + 1)) {
            let at = scale.at(*value) + 4.0;
            svg.text((LEFT - 6.0, at), "tick", Anchor::End, text);
        }
    }
    for ((module, _), values) in modules.iter().zip(&values) {
        let row = layers.iter().position(|l| *l == module.layer).unwrap_or(0);
        let column = kinds.iter().position(|k| k.kind == module.kind).unwrap_or(0);
        let corner = (LEFT + pitch.0 * column as f64, TOP + pitch.1 * row as f64);
        let scale = Scale::nice(range, (corner.1 + PANEL.1 - 5.0, corner.1 + 5.0), 5);
        let x =
            Scale::new((-0.5, longest as f64 - 0.5), (corner.0 + 4.0, corner.0 + PANEL.0 - 4.0));
        let panel = Panel { corner, x, y: scale };
        draw_panel(&mut svg, &panel, module, values, record, colour);
    }
    let middle = LEFT + (width - LEFT) / 2.0;
    let axis = format!("components in order of {}", record.name);
    svg.text((middle, height - 8.0), "title", Anchor::Middle, &axis);
    Some(svg.finish())
}

/// Place and scales of one panel.
struct Panel {
    corner: (f64, f64),
    x: Scale,
    y: Scale,
}

fn draw_panel(
    svg: &mut Svg,
    panel: &Panel,
    module: &ModuleName,
    values: &[(f64, bool)],
    record: &StatisticRecord,
    colour: usize,
) {
    let (corner, x, y) = (panel.corner, &panel.x, &panel.y);
    svg.rect(corner, PANEL, "frame", None);
    if let Some((low, high)) = largest_gap(values) {
        let (top, bottom) = (y.at(high), y.at(low));
        let tip =
            format!("{}: largest gap {:.2}, {low:.2} to {high:.2}", module.label(), high - low);
        svg.rect((corner.0, top), (PANEL.0, bottom - top), "gap-band", Some(&tip));
    }
    if let Some(threshold) = record.threshold {
        let at = y.at(threshold);
        svg.line((corner.0, at), (corner.0 + PANEL.0, at), "threshold");
    }
    for (i, (value, removed)) in values.iter().enumerate() {
        let state = if *removed { ", removed" } else { "" };
        let tip = format!("{}: {} {value:.3}{state}", module.label(), record.name);
        let class = if *removed { format!("hollow c{colour}") } else { format!("dot f{colour}") };
        svg.circle((x.at(i as f64), y.at(*value)), 3.1, &class, Some(&tip));
    }
    if values.is_empty() {
        let at = (corner.0 + PANEL.0 / 2.0, corner.1 + PANEL.1 / 2.0 + 4.0);
        svg.text(at, "tick small", Anchor::Middle, "no components");
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::collections::BTreeMap;

    use super::*;

    fn record() -> StatisticRecord {
        let path = "encoder.layer.1.attention.self.query_proj".to_owned();
        StatisticRecord {
            name: "log_alpha".into(),
            threshold: Some(4.0),
            present: BTreeMap::from([(path.clone(), vec![-2.0, -1.0, f64::INFINITY])]),
            removed: BTreeMap::from([(path, vec![4.5, 5.0])]),
        }
    }

    #[test]
    fn the_gap_lies_between_kept_and_removed() {
        let record = record();
        let values = sorted(&record, "encoder.layer.1.attention.self.query_proj");
        assert_eq!(values, [(-2.0, false), (-1.0, false), (4.5, true), (5.0, true)]);
        assert_eq!(largest_gap(&values), Some((-1.0, 4.5)));
        assert_eq!(largest_gap(&values[..1]), None);
        assert_eq!(largest_gap(&[(1.0, false), (1.0, false)]), None);
    }

    #[test]
    fn removed_components_are_hollow() {
        let svg = trellis(&record(), 2, "x").unwrap();
        assert_eq!(svg.matches("class=\"dot f2\"").count(), 2);
        assert_eq!(svg.matches("class=\"hollow c2\"").count(), 2);
        assert!(svg.contains("L1 query: largest gap 5.50, -1.00 to 4.50"));
        assert_eq!(svg.matches("class=\"threshold\"").count(), 1);
    }
}
