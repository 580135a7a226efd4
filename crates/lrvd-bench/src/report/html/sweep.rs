//! What does one more posterior draw buy? Metrics and time against the number of draws.

use super::labels::spread;
use super::scale::{Scale, extent};
use super::svg::{Anchor, Svg};
use super::view::{self, Cast, Member};
use crate::report::checkpoint::CheckpointRecord;
use crate::report::record::Results;

const WIDTH: f64 = 540.0;
const LEFT: f64 = 58.0;
const RIGHT: f64 = 150.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 42.0;
/// Least height of the drawing.
const LEAST_HEIGHT: f64 = 280.0;
/// Distance of two names at the right edge.
const GAP: f64 = 14.0;
/// Milliseconds in a second.
const MILLI: f64 = 1000.0;

/// One figure of the sweep: title, axis, decimals of tips, value.
type Measure = (&'static str, &'static str, usize, fn(&CheckpointRecord, u32) -> Option<f64>);

const MEASURES: [Measure; 4] = [
    ("Accuracy", "accuracy", 3, |record, k| record.metrics.get(&k)?.accuracy),
    ("Calibration", "ECE", 3, |record, k| record.metrics.get(&k)?.ece),
    ("Likelihood", "NLL (nats)", 3, |record, k| record.metrics.get(&k)?.nll),
    ("Latency", "milliseconds per question", 2, |record, k| {
        let n = record.metrics.get(&k)?.n;
        (n > 0).then_some(record.predict_seconds.get(&k)? * MILLI / n as f64)
    }),
];

/// Values of one method by place on the axis.
struct Line<'a> {
    member: &'a Member,
    points: Vec<(usize, f64)>,
}

/// A figure per measure, with its title, for the methods that have draws; none where no method has.
pub(crate) fn sweep(results: &Results, cast: &Cast, task: &str) -> Vec<(&'static str, String)> {
    let found: Vec<(&Member, Vec<&CheckpointRecord>)> = cast
        .members()
        .iter()
        .map(|member| (member, view::finished(results, task, &member.name)))
        .filter(|(_, records)| records.iter().any(|r| r.metrics.keys().any(|k| *k > 0)))
        .collect();
    let mut draws: Vec<u32> = found
        .iter()
        .flat_map(|(_, records)| records)
        .flat_map(|record| record.metrics.keys().copied())
        .collect();
    draws.sort_unstable();
    draws.dedup();
    let ece = |member: &Member| {
        let records = view::finished(results, task, &member.name);
        let k = view::full_draws(&records, draws.last().copied());
        (k > 0).then(|| at(&records, k, MEASURES[1].3)).flatten()
    };
    let bold = cast.highlights(ece);
    MEASURES
        .iter()
        .filter_map(|measure| {
            let value = measure.3;
            let lines: Vec<Line<'_>> = found
                .iter()
                .filter_map(|(member, records)| {
                    let point = |(i, k): (usize, &u32)| Some((i, at(records, *k, value)?));
                    let points: Vec<_> = draws.iter().enumerate().filter_map(point).collect();
                    (points.len() > 1).then_some(Line { member, points })
                })
                .collect();
            Some((measure.0, chart(&lines, &draws, &bold, measure)?))
        })
        .collect()
}

/// The mean over seeds; none if no seed has a finite value.
fn at(
    records: &[&CheckpointRecord],
    k: u32,
    value: fn(&CheckpointRecord, u32) -> Option<f64>,
) -> Option<f64> {
    let values: Vec<f64> = records.iter().filter_map(|record| value(record, k)).collect();
    view::mean(&values).filter(|x| x.is_finite())
}

fn chart(lines: &[Line<'_>], draws: &[u32], bold: &[&str], measure: &Measure) -> Option<String> {
    let (title, axis, decimals, _) = measure;
    let range = extent(lines.iter().flat_map(|line| &line.points).map(|p| p.1))?;
    let height = LEAST_HEIGHT.max(GAP * lines.len() as f64 + TOP + BOTTOM);
    let (bottom, right) = (height - BOTTOM, WIDTH - RIGHT);
    let y = Scale::nice(range, (bottom, TOP), 5);
    let x = Scale::new((0.0, draws.len().saturating_sub(1) as f64), (LEFT + 6.0, right));
    let mut svg = Svg::new(WIDTH, height, &format!("{title} by number of posterior draws"));
    for (value, text) in y.ticks(5) {
        svg.line((LEFT, y.at(value)), (right, y.at(value)), "guide");
        svg.text((LEFT - 7.0, y.at(value) + 4.0), "tick", Anchor::End, &text);
    }
    for (i, k) in draws.iter().enumerate() {
        let at = x.at(i as f64);
        svg.line((at, bottom), (at, bottom + 4.0), "axis");
        svg.text((at, bottom + 17.0), "tick", Anchor::Middle, &k.to_string());
    }
    svg.line((LEFT, bottom), (right, bottom), "axis");
    let middle = f64::midpoint(LEFT, right);
    svg.text((middle, height - 6.0), "title", Anchor::Middle, "posterior draws (0: the mean)");
    svg.vertical_text((12.0, f64::midpoint(TOP, bottom)), "title", axis);

    let place = |point: &(usize, f64)| (x.at(point.0 as f64), y.at(point.1));
    // Bold lines last, so that they lie on top.
    let is_bold = |line: &&Line<'_>| bold.contains(&line.member.name.as_str());
    for line in lines.iter().filter(|l| !is_bold(l)).chain(lines.iter().filter(is_bold)) {
        let points: Vec<(f64, f64)> = line.points.iter().map(place).collect();
        let weight = if is_bold(&line) { "bold" } else { "thin" };
        svg.polyline(&points, &format!("line {weight} c{}", line.member.colour), None);
        for (point, at) in line.points.iter().zip(points) {
            let tip =
                format!("{}, {} draws: {:.*}", line.member.name, draws[point.0], decimals, point.1);
            let class = format!("dot f{}", line.member.colour);
            svg.circle(at, if is_bold(&line) { 3.2 } else { 2.2 }, &class, Some(&tip));
        }
    }
    let ends: Vec<(f64, f64)> = lines.iter().filter_map(|l| l.points.last().map(place)).collect();
    let heights: Vec<f64> = ends.iter().map(|end| end.1).collect();
    for ((line, end), at) in lines.iter().zip(&ends).zip(spread(&heights, GAP, TOP, bottom)) {
        svg.line((end.0 + 5.0, end.1), (right + 15.0, at), "leader");
        let weight = if is_bold(&line) { " strong" } else { "" };
        let class = format!("name{weight} c{}", line.member.colour);
        svg.text((right + 19.0, at + 4.0), &class, Anchor::Start, &line.member.name);
    }
    Some(svg.finish())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample::sample_results;
    use crate::report::sample_reasoning::sample_reasoning;

    #[test]
    fn only_methods_with_draws_have_lines() {
        let results = sample_reasoning();
        let figures = sweep(&results, &Cast::of(&results), "obqa");
        let titles: Vec<&str> = figures.iter().map(|f| f.0).collect();
        assert_eq!(titles, ["Accuracy", "Calibration", "Likelihood", "Latency"]);
        for (title, svg) in &figures {
            assert!(svg.contains(">BLoB</text>") && !svg.contains(">LoRA</text>"), "{title}");
            assert!(svg.contains("BayesLoRA, 10 draws: "), "{title}");
        }
        assert!(sweep(&results, &Cast::of(&results), "none").is_empty());
    }

    #[test]
    fn two_numbers_of_draws_are_enough() {
        let results = sample_results();
        let figures = sweep(&results, &Cast::of(&results), "rte");
        assert_eq!(figures.len(), 4);
        assert_eq!(figures[0].1.matches("class=\"line").count(), 1);
    }
}
