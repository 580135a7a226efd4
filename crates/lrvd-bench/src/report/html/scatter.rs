//! Quality against size: one small diagram per task, a light dot per seed and a marker with bars for the mean.

use super::scale::{Scale, extent};
use super::svg::{Anchor, Svg, coordinate};
use super::view::{Cast, Member};
use crate::report::metric::Metric;
use crate::report::record::Results;
use crate::report::spread::Spread;
use crate::report::summary::{CheckpointChoice, Summary};

const WIDTH: f64 = 330.0;
const HEIGHT: f64 = 236.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 42.0;
/// Room left around the dots, as a share of their range.
const MARGIN: f64 = 0.14;
/// Least range of each axis, so that a single dot, or dots of one rank, do not make a ruler of thousandths.
const LEAST_RANKS: f64 = 2.0;
const LEAST_SCORES: f64 = 0.02;

/// Draws the standard metric over the average rank for one task; none without values.
pub(crate) fn scatter(
    results: &Results,
    cast: &Cast,
    task: &str,
    choice: CheckpointChoice,
    y_title: &str,
) -> Option<String> {
    let summary = Summary::new(results, choice, &[Metric::Standard(0), Metric::Rank]);
    let cells: Vec<(&Member, &Spread, &Spread)> = cast
        .members()
        .iter()
        .filter_map(|m| {
            let cell = |metric| summary.cell(metric, &m.name, task);
            Some((m, cell(Metric::Rank)?, cell(Metric::Standard(0))?))
        })
        .collect();
    let padded = |least: f64, pick: fn(&(&Member, &Spread, &Spread)) -> Vec<f64>| {
        let (low, high) = extent(cells.iter().flat_map(pick))?;
        let missing = (least - (high - low)).max(0.0) / 2.0;
        let margin = ((high - low) * MARGIN).max(missing);
        Some((low - margin, high + margin))
    };
    let x_range = padded(LEAST_RANKS, |c| with_bars(c.1))?;
    let y_range = padded(LEAST_SCORES, |c| with_bars(c.2))?;
    let x = Scale::new((x_range.0.max(0.0), x_range.1), (LEFT, WIDTH - RIGHT));
    let y = Scale::new(y_range, (HEIGHT - BOTTOM, TOP));
    let mut svg = Svg::new(WIDTH, HEIGHT, &format!("{y_title} against average rank"));
    let bottom = HEIGHT - BOTTOM;
    for (value, text) in y.ticks(4) {
        svg.line((LEFT, y.at(value)), (WIDTH - RIGHT, y.at(value)), "guide");
        svg.text((LEFT - 7.0, y.at(value) + 4.0), "tick", Anchor::End, &text);
    }
    for (value, text) in x.ticks(5) {
        svg.line((x.at(value), bottom), (x.at(value), bottom + 4.0), "axis");
        svg.text((x.at(value), bottom + 17.0), "tick", Anchor::Middle, &text);
    }
    svg.line((LEFT, bottom), (WIDTH - RIGHT, bottom), "axis");
    for (member, rank, score) in &cells {
        for (r, s) in rank.values.iter().zip(&score.values) {
            if r.is_finite() && s.is_finite() {
                svg.circle((x.at(*r), y.at(*s)), 3.0, &format!("ghost f{}", member.colour), None);
            }
        }
    }
    for (member, rank, score) in &cells {
        if !rank.mean.is_finite() || !score.mean.is_finite() {
            continue;
        }
        let colour = member.colour;
        let at = (x.at(rank.mean), y.at(score.mean));
        let class = format!("whisker c{colour}");
        if let Some(std) = rank.std.filter(|s| s.is_finite()) {
            svg.line(
                (x.clamped(rank.mean - std), at.1),
                (x.clamped(rank.mean + std), at.1),
                &class,
            );
        }
        if let Some(std) = score.std.filter(|s| s.is_finite()) {
            svg.line(
                (at.0, y.clamped(score.mean - std)),
                (at.0, y.clamped(score.mean + std)),
                &class,
            );
        }
        let tip = format!(
            "{}: {} at average rank {}, {} seeds",
            member.name,
            Metric::Standard(0).format_spread(score),
            coordinate(rank.mean),
            score.n()
        );
        svg.marker(at, member.shape, &format!("point f{colour}"), Some(&tip));
    }
    let middle = f64::midpoint(LEFT, WIDTH - RIGHT);
    svg.text((middle, HEIGHT - 6.0), "title", Anchor::Middle, "average rank per module");
    svg.vertical_text((12.0, f64::midpoint(TOP, bottom)), "title", y_title);
    Some(svg.finish())
}

/// The values of a cell and the ends of its bars.
fn with_bars(spread: &Spread) -> Vec<f64> {
    let std = spread.std.unwrap_or(0.0);
    let mut values = spread.values.clone();
    values.extend([spread.mean - std, spread.mean + std]);
    values
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::report::sample::sample_results;

    #[test]
    fn one_marker_a_method_and_one_dot_a_seed() {
        let results = sample_results();
        let cast = Cast::of(&results);
        let svg = scatter(&results, &cast, "rte", CheckpointChoice::Last, "accuracy").unwrap();
        assert_eq!(svg.matches("class=\"ghost").count(), 9);
        assert_eq!(svg.matches("class=\"point").count(), 3);
        assert!(scatter(&results, &cast, "none", CheckpointChoice::Last, "accuracy").is_none());
    }

    #[test]
    fn one_dot_has_round_ticks() {
        let mut results = sample_results();
        results.runs.retain(|run| run.method == "LoRA" && run.seed == 1 && run.task == "rte");
        let cast = Cast::of(&results);
        let svg = scatter(&results, &cast, "rte", CheckpointChoice::Last, "accuracy").unwrap();
        let ticks: Vec<&str> = svg
            .split("class=\"tick\"")
            .skip(1)
            .filter_map(|part| part.split('>').nth(1)?.split('<').next())
            .collect();
        assert!(ticks.contains(&"4.0") && ticks.iter().all(|tick| tick.len() <= 5), "{ticks:?}");
    }
}
