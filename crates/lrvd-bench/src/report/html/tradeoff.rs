//! Calibration against accuracy: one named mark per method, and what posterior draws change of it.

use super::labels::{MARK, Rect, place};
use super::scale::{Scale, extent};
use super::svg::{Anchor, Svg};
use super::view::{Cast, Member};
use crate::report::metric::Metric;
use crate::report::summary::Summary;

const WIDTH: f64 = 1140.0;
const HEIGHT: f64 = 470.0;
const LEFT: f64 = 62.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 44.0;
/// Room left around the marks, as a share of their range.
const MARGIN: f64 = 0.07;
/// Least range of an axis, so that a single mark does not make a ruler of thousandths.
const LEAST: f64 = 0.04;
/// Half the width of a trail that names keep away from.
const TRAIL: f64 = 2.0;
/// Type size of the names.
const NAME: f64 = 12.0;

/// Means of one method, by accuracy and by the second metric.
struct Mark<'a> {
    member: &'a Member,
    /// Without draws.
    mean: (f64, f64),
    /// With draws, for methods that have them.
    drawn: Option<(f64, f64)>,
}

impl Mark<'_> {
    /// The method's full answer.
    fn full(&self) -> (f64, f64) {
        self.drawn.unwrap_or(self.mean)
    }
}

/// Draws `metric` over accuracy, averaged over `tasks`; a method that lacks a task is left out. `draws` are those of
/// the tables. None without marks.
pub(crate) fn tradeoff(
    cast: &Cast,
    summary: &Summary,
    tasks: &[String],
    metric: Metric,
    draws: Option<u32>,
    label: &str,
) -> Option<String> {
    let marks: Vec<Mark<'_>> = cast
        .members()
        .iter()
        .filter_map(|member| {
            let at = |k: u32| {
                let over = |metric| mean_over(summary, metric, &member.name, tasks);
                Some((over(Metric::Accuracy(k))?, over(metric.at_draws(k))?))
            };
            Some(Mark { member, mean: at(0)?, drawn: draws.and_then(at) })
        })
        .collect();
    let ends = || marks.iter().flat_map(|mark| [mark.mean, mark.full()]);
    let x = Scale::new(padded(extent(ends().map(|p| p.0))?), (LEFT, WIDTH - RIGHT));
    let (low, high) = padded(extent(ends().map(|p| p.1))?);
    let y = Scale::new((low.max(0.0), high), (HEIGHT - BOTTOM, TOP));
    let place_of = |p: (f64, f64)| (x.at(p.0), y.at(p.1));

    let mut svg = Svg::new(WIDTH, HEIGHT, label);
    frame(&mut svg, &x, &y, &metric.at_draws(0).title());
    for mark in &marks {
        if mark.drawn.is_some() {
            let class = format!("trail c{}", mark.member.colour);
            svg.line(place_of(mark.mean), place_of(mark.full()), &class);
        }
    }
    for mark in marks.iter().filter(|mark| mark.drawn.is_some()) {
        let tip = tip(mark, mark.mean, metric, 0);
        let class = format!("hollow c{}", mark.member.colour);
        svg.circle(place_of(mark.mean), 3.4, &class, Some(&tip));
    }
    for mark in &marks {
        let k = if mark.drawn.is_some() { draws.unwrap_or(0) } else { 0 };
        let class = format!("point f{}", mark.member.colour);
        let tip = tip(mark, mark.full(), metric, k);
        svg.marker(place_of(mark.full()), mark.member.shape, &class, Some(&tip));
    }
    names(&mut svg, &marks, place_of);
    Some(svg.finish())
}

/// The mean over tasks of a method's means over seeds; none if a task lacks it or a value is not finite.
pub(crate) fn mean_over(
    summary: &Summary,
    metric: Metric,
    method: &str,
    tasks: &[String],
) -> Option<f64> {
    let cells: Option<Vec<f64>> =
        tasks.iter().map(|task| Some(summary.cell(metric, method, task)?.mean)).collect();
    super::view::mean(&cells?).filter(|x| x.is_finite())
}

fn padded((low, high): (f64, f64)) -> (f64, f64) {
    let missing = (LEAST - (high - low)).max(0.0) / 2.0;
    let margin = ((high - low) * MARGIN).max(missing);
    (low - margin, high + margin)
}

fn tip(mark: &Mark<'_>, at: (f64, f64), metric: Metric, draws: u32) -> String {
    let how = match (draws, mark.drawn) {
        (0, None) => String::new(),
        (0, Some(_)) => ", posterior mean".to_owned(),
        (k, _) => format!(", {k} draws"),
    };
    let (accuracy, title) = (Metric::Accuracy(0).format(at.0), metric.at_draws(0).title());
    format!("{}{how}: accuracy {accuracy}, {title} {}", mark.member.name, metric.format(at.1))
}

fn frame(svg: &mut Svg, x: &Scale, y: &Scale, y_title: &str) {
    let (bottom, right) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
    for (value, text) in y.ticks(6) {
        svg.line((LEFT, y.at(value)), (right, y.at(value)), "guide");
        svg.text((LEFT - 8.0, y.at(value) + 4.0), "tick", Anchor::End, &text);
    }
    for (value, text) in x.ticks(10) {
        svg.line((x.at(value), bottom), (x.at(value), bottom + 4.0), "axis");
        svg.text((x.at(value), bottom + 18.0), "tick", Anchor::Middle, &text);
    }
    svg.line((LEFT, bottom), (right, bottom), "axis");
    svg.text((f64::midpoint(LEFT, right), HEIGHT - 6.0), "title", Anchor::Middle, "accuracy");
    svg.vertical_text((13.0, f64::midpoint(TOP, bottom)), "title", y_title);
}

fn names(svg: &mut Svg, marks: &[Mark<'_>], place_of: impl Fn((f64, f64)) -> (f64, f64)) {
    let named: Vec<((f64, f64), &str)> =
        marks.iter().map(|mark| (place_of(mark.full()), mark.member.name.as_str())).collect();
    let mut kept_free: Vec<((f64, f64), f64)> = Vec::new();
    for mark in marks.iter().filter(|mark| mark.drawn.is_some()) {
        let (from, to) = (place_of(mark.mean), place_of(mark.full()));
        kept_free.push((from, MARK));
        let n = ((to.0 - from.0).hypot(to.1 - from.1) / (4.0 * TRAIL)).floor() as usize;
        kept_free.extend((1..n).map(|i| {
            let share = i as f64 / n as f64;
            ((from.0 + (to.0 - from.0) * share, from.1 + (to.1 - from.1) * share), TRAIL)
        }));
    }
    let room = Rect(LEFT + 2.0, TOP - 6.0, WIDTH - 2.0, HEIGHT - BOTTOM - 2.0);
    let places = place(&named, &kept_free, NAME, room);
    for place in &places {
        if let Some((from, to)) = place.leader {
            svg.line(from, to, "leader");
        }
    }
    for (mark, place) in marks.iter().zip(&places) {
        let class = format!("name c{}", mark.member.colour);
        svg.text(place.at, &class, place.anchor, &mark.member.name);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::report::sample_reasoning::sample_reasoning;
    use crate::report::summary::CheckpointChoice;

    fn draw(tasks: &[&str], keep: impl Fn(&str) -> bool) -> Option<String> {
        let mut results = sample_reasoning();
        results.runs.retain(|run| keep(&run.method));
        let metrics = [Metric::Accuracy(0), Metric::Accuracy(10), Metric::Ece(0), Metric::Ece(10)];
        let summary = Summary::new(&results, CheckpointChoice::Last, &metrics);
        let tasks: Vec<String> = tasks.iter().map(|task| (*task).to_owned()).collect();
        tradeoff(&Cast::of(&results), &summary, &tasks, Metric::Ece(0), Some(10), "x")
    }

    #[test]
    fn every_method_has_a_mark_and_a_name() {
        let svg = draw(&["obqa"], |_| true).unwrap();
        assert_eq!(svg.matches("class=\"point").count(), 20);
        assert_eq!(svg.matches("class=\"name").count(), 20);
        // Methods with draws: a hollow mark without them, and a line between.
        assert_eq!(svg.matches("class=\"trail").count(), svg.matches("class=\"hollow").count());
        assert!(svg.matches("class=\"trail").count() > 5);
        assert!(draw(&["none"], |_| true).is_none());
        assert!(draw(&["obqa"], |_| false).is_none());
    }

    #[test]
    fn one_mark_has_round_ticks() {
        let svg = draw(&["obqa", "arc-e"], |name| name == "LoRA").unwrap();
        let long = svg
            .split('>')
            .filter(|part| part.starts_with("0."))
            .any(|part| part.split('<').next().is_some_and(|tick| tick.len() > "0.123".len()));
        assert!(!long, "{svg}");
    }
}
