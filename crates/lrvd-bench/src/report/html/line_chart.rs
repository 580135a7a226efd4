//! Lines over steps: a thin line per seed, a bold one for their mean, named at its end.

use super::labels::spread;
use super::scale::{Scale, extent};
use super::svg::{Anchor, Svg};

const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 264.0;
const LEFT: f64 = 60.0;
/// Least room for names at the right edge, and what a character of a name takes of it.
const RIGHT: f64 = 84.0;
const CHARACTER: f64 = 7.8;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 42.0;
/// Least distance of two names at the right edge.
const LABEL_GAP: f64 = 14.0;

/// Points of one line in data units.
pub(crate) type Line = Vec<(f64, f64)>;

/// One method: its seeds and their mean. Among many, only some are named and bold.
pub(crate) struct Series {
    /// Colour index of the method.
    pub(crate) colour: usize,
    pub(crate) name: String,
    pub(crate) named: bool,
    pub(crate) seeds: Vec<Line>,
    pub(crate) mean: Line,
    /// How values are printed in tips.
    pub(crate) decimals: usize,
}

/// Titles and shape of a chart.
pub(crate) struct Axes<'a> {
    pub(crate) label: &'a str,
    pub(crate) x: &'a str,
    pub(crate) y: &'a str,
    /// Whether values hold until the next point (ranks do).
    pub(crate) stairs: bool,
    /// Values that must be inside the vertical range.
    pub(crate) include: &'a [f64],
}

/// Draws a chart; none if no line has a finite point.
pub(crate) fn line_chart(axes: &Axes<'_>, series: &[Series]) -> Option<String> {
    let all = || series.iter().flat_map(|s| s.seeds.iter().chain([&s.mean]).flatten());
    let x_range = extent(all().filter(|p| p.1.is_finite()).map(|p| p.0))?;
    let y_range = extent(all().map(|p| p.1).chain(axes.include.iter().copied()))?;
    let longest = series.iter().filter(|s| s.named).map(|s| s.name.chars().count()).max();
    let right = WIDTH - RIGHT.max(12.0 + CHARACTER * longest.unwrap_or(0) as f64).min(WIDTH / 2.0);
    let x = Scale::new(x_range, (LEFT, right));
    let y = Scale::nice(y_range, (HEIGHT - BOTTOM, TOP), 5);

    let mut svg = Svg::new(WIDTH, HEIGHT, axes.label);
    frame(&mut svg, &x, &y, axes, right);
    for s in series {
        for line in &s.seeds {
            svg.polyline(&trace(line, axes.stairs, &x, &y), &format!("seed c{}", s.colour), None);
        }
    }
    // Named lines last, so that they lie on top.
    for s in series.iter().filter(|s| !s.named).chain(series.iter().filter(|s| s.named)) {
        let points = trace(&s.mean, axes.stairs, &x, &y);
        let class = if s.named {
            format!("mean c{} d{}", s.colour, s.colour)
        } else {
            format!("line faint c{}", s.colour)
        };
        svg.polyline(&points, &class, None);
    }
    for s in series {
        for (step, value) in s.mean.iter().filter(|p| p.1.is_finite()) {
            let tip = format!("{}: {value:.*} at step {step}", s.name, s.decimals);
            svg.circle((x.at(*step), y.at(*value)), 4.5, &format!("hit c{}", s.colour), Some(&tip));
        }
    }
    end_labels(&mut svg, &y, series, right);
    Some(svg.finish())
}

fn frame(svg: &mut Svg, x: &Scale, y: &Scale, axes: &Axes<'_>, right: f64) {
    let bottom = HEIGHT - BOTTOM;
    for (value, label) in y.ticks(5) {
        let at = y.at(value);
        svg.line((LEFT, at), (right, at), "guide");
        svg.text((LEFT - 7.0, at + 4.0), "tick", Anchor::End, &label);
    }
    for (value, label) in x.ticks(5) {
        let at = x.at(value);
        svg.line((at, bottom), (at, bottom + 4.0), "axis");
        svg.text((at, bottom + 17.0), "tick", Anchor::Middle, &label);
    }
    svg.line((LEFT, bottom), (right, bottom), "axis");
    svg.text((f64::midpoint(LEFT, right), HEIGHT - 6.0), "title", Anchor::Middle, axes.x);
    svg.vertical_text((12.0, f64::midpoint(TOP, bottom)), "title", axes.y);
}

/// Drawing points of a line; values that are not finite are left out.
fn trace(line: &Line, stairs: bool, x: &Scale, y: &Scale) -> Vec<(f64, f64)> {
    let mut points: Vec<(f64, f64)> = Vec::new();
    for (step, value) in line.iter().filter(|p| p.1.is_finite()) {
        let at = (x.at(*step), y.at(*value));
        if stairs && let Some(last) = points.last().copied() {
            points.push((at.0, last.1));
        }
        points.push(at);
    }
    points
}

/// Writes each named method beside the end of its mean line, pushed apart where they would touch.
fn end_labels(svg: &mut Svg, y: &Scale, series: &[Series], right: f64) {
    let ends: Vec<(f64, &Series)> = series
        .iter()
        .filter(|s| s.named)
        .filter_map(|s| Some((y.at(s.mean.iter().rev().find(|p| p.1.is_finite())?.1), s)))
        .collect();
    let heights: Vec<f64> = ends.iter().map(|end| end.0).collect();
    for (at, (_, s)) in spread(&heights, LABEL_GAP, TOP, HEIGHT - BOTTOM).into_iter().zip(&ends) {
        let class = format!("end c{}", s.colour);
        svg.text((right + 8.0, at + 4.0), &class, Anchor::Start, &s.name);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn series(values: &[(f64, f64)]) -> Series {
        let (seeds, mean) = (vec![values.to_vec()], values.to_vec());
        Series { colour: 2, name: "A<b>".into(), named: true, seeds, mean, decimals: 2 }
    }

    const AXES: Axes<'_> = Axes { label: "l", x: "step", y: "rank", stairs: true, include: &[0.0] };

    #[test]
    fn stairs_hold_until_the_next_point() {
        let (x, y) = (Scale::new((0.0, 1.0), (0.0, 10.0)), Scale::new((0.0, 1.0), (10.0, 0.0)));
        let line = vec![(0.0, 1.0), (0.5, f64::NAN), (1.0, 0.0)];
        assert_eq!(trace(&line, true, &x, &y), [(0.0, 0.0), (10.0, 0.0), (10.0, 10.0)]);
    }

    #[test]
    fn nothing_finite_is_no_chart() {
        assert!(line_chart(&AXES, &[series(&[(0.0, f64::NAN)])]).is_none());
        let svg = line_chart(&AXES, &[series(&[(0.0, 3.0), (10.0, 1.0)])]).unwrap();
        assert!(svg.contains("A&lt;b&gt;: 3.00 at step 0") && !svg.contains("NaN"));
    }
}
