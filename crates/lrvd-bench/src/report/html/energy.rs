//! How much of an update do its first components carry? Learned order, bound and random order.

use super::scale::{Scale, extent};
use super::svg::{Anchor, Svg};
use super::view;
use crate::report::checkpoint::{CheckpointRecord, EnergyAuc, EnergyRecord};

const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 52.0;
const RIGHT: f64 = 96.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 42.0;
/// Points of the common grid of `k / rank`, both ends included.
const GRID: usize = 21;
/// Least distance of two names at the right edge.
const LABEL_GAP: f64 = 15.0;

/// A curve over `k = 0..=rank` read at a share of its components, by straight lines between its points.
pub(crate) fn at_share(curve: &[f64], share: f64) -> Option<f64> {
    let rank = curve.len().checked_sub(1)?;
    let position = share.clamp(0.0, 1.0) * rank as f64;
    let below = position.floor() as usize;
    let above = (below + 1).min(rank);
    let part = position - below as f64;
    Some(curve[below] * (1.0 - part) + curve[above] * part)
}

/// Areas averaged over modules, then over seeds; the number of modules comes first. None without records.
pub(crate) fn mean_auc(checkpoints: &[&CheckpointRecord]) -> Option<(usize, EnergyAuc)> {
    let of = |pick: fn(&EnergyAuc) -> Option<f64>| {
        let seeds: Vec<f64> = checkpoints
            .iter()
            .filter_map(|c| {
                view::mean(&c.energy.values().filter_map(|e| pick(&e.auc)).collect::<Vec<_>>())
            })
            .collect();
        view::mean(&seeds)
    };
    let n = checkpoints.iter().map(|c| c.energy.len()).sum();
    let auc = EnergyAuc {
        svd: of(|a| Some(a.svd))?,
        learned: of(|a| Some(a.learned))?,
        magnitude: of(|a| Some(a.magnitude))?,
        random: of(|a| Some(a.random))?,
        normalised_gap: of(|a| a.normalised_gap),
    };
    Some((n, auc))
}

/// One of the four curves: style, name, values.
type Curve = (&'static str, &'static str, fn(&EnergyRecord) -> &[f64]);

const CURVES: [Curve; 4] = [
    ("bound", "SVD bound", |e| &e.svd),
    ("magnitude", "by magnitude", |e| &e.magnitude),
    ("random", "random mean", |e| &e.random_mean),
    ("learned", "learned order", |e| &e.learned),
];

/// Draws the curves averaged over modules and seeds, each module's learned curve behind them; none without records.
pub(crate) fn chart(
    checkpoints: &[&CheckpointRecord],
    colour: usize,
    label: &str,
) -> Option<String> {
    let records: Vec<&EnergyRecord> = checkpoints
        .iter()
        .flat_map(|c| c.energy.values())
        .filter(|e| e.learned.len() > 1)
        .collect();
    let (_, auc) = mean_auc(checkpoints)?;
    let shares: Vec<f64> = (0..GRID).map(|i| i as f64 / (GRID - 1) as f64).collect();
    let average = |pick: fn(&EnergyRecord) -> &[f64]| -> Vec<(f64, f64)> {
        let at = |share: f64| {
            view::mean(&records.iter().filter_map(|e| at_share(pick(e), share)).collect::<Vec<_>>())
        };
        shares.iter().filter_map(|share| Some((*share, at(*share)?))).collect()
    };
    let means: Vec<Vec<(f64, f64)>> = CURVES.iter().map(|(_, _, pick)| average(*pick)).collect();
    let range = extent(means.iter().flatten().map(|p| p.1).chain([0.0, 1.0]))?;
    let x = Scale::new((0.0, 1.0), (LEFT, WIDTH - RIGHT));
    let y = Scale::nice(range, (HEIGHT - BOTTOM, TOP), 5);

    let mut svg = Svg::new(WIDTH, HEIGHT, label);
    let (bottom, right) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
    for (value, text) in y.ticks(5) {
        svg.line((LEFT, y.at(value)), (right, y.at(value)), "guide");
        svg.text((LEFT - 7.0, y.at(value) + 4.0), "tick", Anchor::End, &text);
    }
    for (value, text) in x.ticks(5) {
        svg.text((x.at(value), bottom + 17.0), "tick", Anchor::Middle, &text);
    }
    svg.line((LEFT, bottom), (right, bottom), "axis");
    for record in &records {
        let rank = (record.learned.len() - 1) as f64;
        let points = record.learned.iter().enumerate().filter(|(_, e)| e.is_finite());
        let line: Vec<(f64, f64)> =
            points.map(|(k, e)| (x.at(k as f64 / rank), y.clamped(*e))).collect();
        svg.polyline(&line, &format!("seed faint c{colour}"), None);
    }
    let areas = [auc.svd, auc.magnitude, auc.random, auc.learned];
    let mut labels: Vec<(f64, String, &str)> = Vec::new();
    for (((style, name, _), line), area) in CURVES.iter().zip(&means).zip(areas) {
        let points: Vec<(f64, f64)> = line.iter().map(|p| (x.at(p.0), y.at(p.1))).collect();
        let class =
            if *style == "learned" { format!("mean c{colour}") } else { (*style).to_owned() };
        svg.polyline(&points, &class, Some(&format!("{name}: area {area:.3}")));
        // All curves end at 1, so names stand in the order of the areas, not at the curves' ends.
        labels.push((area, class, name));
    }
    labels.sort_by(|a, b| b.0.total_cmp(&a.0));
    for (i, (area, class, name)) in labels.iter().enumerate() {
        let at = TOP + 12.0 + i as f64 * (2.0 * LABEL_GAP + 12.0);
        svg.line((right + 8.0, at - 12.0), (right + 30.0, at - 12.0), class);
        svg.text((right + 8.0, at + 3.0), "note strong", Anchor::Start, name);
        let text = format!("AUC {area:.3}");
        svg.text((right + 8.0, at + LABEL_GAP + 1.0), "note", Anchor::Start, &text);
    }
    let middle = f64::midpoint(LEFT, right);
    svg.text((middle, HEIGHT - 6.0), "title", Anchor::Middle, "share of components, k / rank");
    svg.vertical_text((12.0, f64::midpoint(TOP, bottom)), "title", "energy captured");
    Some(svg.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curves_are_read_between_their_points() {
        let curve = [0.0, 0.5, 1.0];
        assert_eq!(at_share(&curve, 0.0), Some(0.0));
        assert_eq!(at_share(&curve, 0.25), Some(0.25));
        assert_eq!(at_share(&[0.0, 1.0, 1.0], 0.75), Some(1.0));
        assert_eq!(at_share(&curve, 1.0), Some(1.0));
        assert_eq!(at_share(&[0.25], 0.7), Some(0.25));
        assert_eq!(at_share(&[], 0.5), None);
    }
}
