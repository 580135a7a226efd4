//! Answering only where the model is sure: risk against coverage, and the confidence that a wanted risk asks for.

use std::fmt::Write as _;

use super::labels::spread;
use super::scale::{Scale, extent};
use super::svg::{Anchor, Svg};
use super::table::{Graded, family_rows};
use super::view::{self, Cast, Member};
use crate::report::checkpoint::{CheckpointRecord, SelectiveRecord, SelectiveTarget};
use crate::report::metric::Metric;
use crate::report::record::Results;

const WIDTH: f64 = 540.0;
const HEIGHT: f64 = 430.0;
const LEFT: f64 = 54.0;
const RIGHT: f64 = 172.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 42.0;
/// Points of the common grid of coverages.
const GRID: usize = 50;
/// Coverage below which a curve may leave the figure: a single early mistake is a risk of one.
const STEADY: f64 = 0.1;
/// Distance of two names at the right edge.
const GAP: f64 = 15.0;

/// One method at its full answer.
struct Curve<'a> {
    member: &'a Member,
    records: Vec<&'a SelectiveRecord>,
    area: f64,
}

/// The methods of a task that have curves, each at the most draws that tables show.
fn curves<'a>(
    results: &'a Results,
    cast: &'a Cast,
    task: &str,
    shown: Option<u32>,
) -> Vec<Curve<'a>> {
    cast.members()
        .iter()
        .filter_map(|member| {
            let found: Vec<&CheckpointRecord> = view::finished(results, task, &member.name);
            let k = view::full_draws(&found, shown);
            let records: Vec<&SelectiveRecord> =
                found.iter().filter_map(|record| record.selective.get(&k)).collect();
            let area = view::mean(&records.iter().map(|r| r.area).collect::<Vec<_>>())?;
            Some(Curve { member, records, area })
        })
        .collect()
}

/// Risk at a coverage, by straight lines between the points of a curve; flat before its first.
pub(crate) fn risk_at(curve: &[(f64, f64)], coverage: f64) -> Option<f64> {
    let above = curve.iter().position(|p| p.0 >= coverage);
    match above {
        None => curve.last().map(|p| p.1),
        Some(0) => curve.first().map(|p| p.1),
        Some(i) => {
            let ((x0, y0), (x1, y1)) = (curve[i - 1], curve[i]);
            Some(if x1 > x0 { y0 + (y1 - y0) * (coverage - x0) / (x1 - x0) } else { y1 })
        }
    }
}

/// Draws all curves of a task, the best of each family bold and named; none without curves.
pub(crate) fn chart(
    results: &Results,
    cast: &Cast,
    task: &str,
    shown: Option<u32>,
    label: &str,
) -> Option<String> {
    let curves = curves(results, cast, task, shown);
    let area = |member: &Member| {
        curves.iter().find(|c| std::ptr::eq(c.member, member)).map(|curve| curve.area)
    };
    let bold = cast.highlights(area);
    let is_bold = |curve: &Curve<'_>| {
        !cast.is_about_uncertainty() || bold.contains(&curve.member.name.as_str())
    };
    let grid: Vec<f64> = (1..=GRID).map(|i| i as f64 / GRID as f64).collect();
    let lines: Vec<Vec<(f64, f64)>> = curves
        .iter()
        .map(|curve| {
            let at = |c: f64| {
                let risks: Vec<f64> =
                    curve.records.iter().filter_map(|r| risk_at(&r.curve, c)).collect();
                view::mean(&risks).filter(|x| x.is_finite())
            };
            grid.iter().filter_map(|c| Some((*c, at(*c)?))).collect()
        })
        .collect();
    let steady = lines.iter().flatten().filter(|p| p.0 >= STEADY).map(|p| p.1);
    let (_, most) = extent(steady)?;
    let (bottom, right) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
    let x = Scale::new((0.0, 1.0), (LEFT, right));
    let y = Scale::nice((0.0, most.max(0.01)), (bottom, TOP), 5);
    let mut svg = Svg::new(WIDTH, HEIGHT, label);
    for (value, text) in y.ticks(5) {
        svg.line((LEFT, y.at(value)), (right, y.at(value)), "guide");
        svg.text((LEFT - 7.0, y.at(value) + 4.0), "tick", Anchor::End, &text);
    }
    for (value, text) in x.ticks(5) {
        svg.line((x.at(value), bottom), (x.at(value), bottom + 4.0), "axis");
        svg.text((x.at(value), bottom + 17.0), "tick", Anchor::Middle, &text);
    }
    svg.line((LEFT, bottom), (right, bottom), "axis");
    let middle = f64::midpoint(LEFT, right);
    let axis = "coverage: share of questions answered";
    svg.text((middle, HEIGHT - 6.0), "title", Anchor::Middle, axis);
    svg.vertical_text((12.0, f64::midpoint(TOP, bottom)), "title", "risk: share of wrong answers");

    let place = |p: &(f64, f64)| (x.at(p.0), y.clamped(p.1));
    let drawn = || curves.iter().zip(&lines);
    for (curve, line) in drawn().filter(|d| !is_bold(d.0)).chain(drawn().filter(|d| is_bold(d.0))) {
        let points: Vec<(f64, f64)> = line.iter().map(place).collect();
        let weight = if is_bold(curve) { "bold" } else { "faint" };
        let tip = format!("{}: area {}", curve.member.name, area_text(curve.area));
        svg.polyline(&points, &format!("line {weight} c{}", curve.member.colour), Some(&tip));
    }
    let named: Vec<(&Curve<'_>, (f64, f64))> = drawn()
        .filter(|d| is_bold(d.0))
        .filter_map(|(curve, line)| Some((curve, line.last().map(place)?)))
        .collect();
    let heights: Vec<f64> = named.iter().map(|(_, end)| end.1).collect();
    for ((curve, end), at) in named.iter().zip(spread(&heights, GAP, TOP + 6.0, bottom)) {
        svg.line((end.0 + 2.0, end.1), (right + 15.0, at), "leader");
        let text = format!("{} {}", curve.member.name, area_text(curve.area));
        let class = format!("name c{}", curve.member.colour);
        svg.text((right + 19.0, at + 4.0), &class, Anchor::Start, &text);
    }
    Some(svg.finish())
}

fn area_text(area: f64) -> String {
    Metric::SelectiveArea(0).format(area)
}

/// What a wanted risk costs: the share of questions that are answered, and from which confidence on. None without
/// targets.
pub(crate) fn thresholds(
    results: &Results,
    cast: &Cast,
    task: &str,
    shown: Option<u32>,
) -> Option<String> {
    let curves = curves(results, cast, task, shown);
    let mut risks: Vec<f64> = curves
        .iter()
        .flat_map(|curve| &curve.records)
        .flat_map(|record| record.targets.iter().map(|target| target.risk))
        .filter(|risk| risk.is_finite())
        .collect();
    risks.sort_by(f64::total_cmp);
    risks.dedup();
    if risks.is_empty() {
        return None;
    }
    let mut html = String::from(
        "<div class=\"scroll\"><table class=\"dense\"><caption>Share of questions answered, and from which confidence on, \
where this share of the answers given may be wrong:</caption><thead><tr><th scope=\"col\">Method</th>",
    );
    for risk in &risks {
        let percent = super::svg::coordinate(100.0 * risk);
        let _ = write!(html, "<th scope=\"col\" class=\"n\">{percent}&#8239;%</th>");
    }
    html.push_str("</tr></thead>");
    let graded: Vec<Graded> = risks
        .iter()
        .map(|risk| {
            let covered = curves.iter().filter_map(|curve| coverage(curve, *risk)).collect();
            Graded::new(covered, true, 0.0005)
        })
        .collect();
    let row = |member: &Member| {
        let curve = curves.iter().find(|c| std::ptr::eq(c.member, member))?;
        let cells =
            risks.iter().zip(&graded).map(|(risk, graded)| target_cell(curve, *risk, graded));
        Some(cells.collect::<String>())
    };
    html.push_str(&family_rows(cast, risks.len(), row));
    html.push_str("</table></div>");
    Some(html)
}

/// What the seeds of a curve say of a risk.
fn targets<'a>(curve: &'a Curve<'_>, risk: f64) -> Vec<&'a SelectiveTarget> {
    curve.records.iter().flat_map(|r| &r.targets).filter(|t| t.risk == risk).collect()
}

/// Mean coverage over seeds at a risk; none where no seed reaches it.
fn coverage(curve: &Curve<'_>, risk: f64) -> Option<f64> {
    let found = targets(curve, risk);
    found.iter().any(|target| target.threshold.is_some()).then_some(())?;
    view::mean(&found.iter().map(|target| target.coverage).collect::<Vec<_>>())
}

/// Mean coverage over seeds, and the mean threshold of those that reach the risk.
fn target_cell(curve: &Curve<'_>, risk: f64, graded: &Graded) -> String {
    let found = targets(curve, risk);
    let reached: Vec<f64> = found.iter().filter_map(|t| t.threshold).collect();
    let (Some(coverage), Some(threshold)) = (coverage(curve, risk), view::mean(&reached)) else {
        return "<td class=\"n absent\" title=\"no threshold reaches this risk\">–</td>".to_owned();
    };
    let of = if reached.len() < found.len() {
        format!(" title=\"reached by {} of {} seeds\"", reached.len(), found.len())
    } else {
        String::new()
    };
    format!(
        "<td class=\"n{}\"{of}><b>{:.1}&#8239;%</b> <i>≥&#8239;{threshold:.2}</i></td>",
        graded.class(coverage),
        100.0 * coverage
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::report::sample_reasoning::sample_reasoning;

    #[test]
    fn risks_are_read_between_points() {
        let curve = [(0.2, 0.0), (0.6, 0.1), (1.0, 0.3)];
        assert_eq!(risk_at(&curve, 0.1), Some(0.0));
        assert!((risk_at(&curve, 0.8).unwrap() - 0.2).abs() < 1e-12);
        assert_eq!(risk_at(&curve, 1.0), Some(0.3));
        assert_eq!(risk_at(&curve, 1.5), Some(0.3));
        assert_eq!(risk_at(&[], 0.5), None);
    }

    #[test]
    fn all_methods_are_drawn_and_the_best_of_families_named() {
        let results = sample_reasoning();
        let cast = Cast::of(&results);
        let svg = chart(&results, &cast, "obqa", Some(10), "x").unwrap();
        assert_eq!(svg.matches("class=\"line").count(), 20);
        let named = svg.matches("class=\"name").count();
        assert!((5..=8).contains(&named), "{named}");
        assert!(chart(&results, &cast, "none", Some(10), "x").is_none());
    }

    #[test]
    fn a_risk_out_of_reach_is_no_zero() {
        let mut results = sample_reasoning();
        results.runs.retain(|run| run.method == "LoRA" && run.task == "obqa");
        let cast = Cast::of(&results);
        for run in &mut results.runs {
            let last = run.checkpoints.last.as_mut().unwrap();
            for target in &mut last.selective.get_mut(&0).unwrap().targets {
                (target.coverage, target.threshold) =
                    if target.risk < 0.1 { (0.0, None) } else { (0.5, Some(0.75)) };
            }
        }
        let table = thresholds(&results, &cast, "obqa", None).unwrap();
        assert_eq!(table.matches("absent").count(), 2);
        assert_eq!(table.matches("<b>50.0&#8239;%</b> <i>≥&#8239;0.75</i>").count(), 2);
        assert!(thresholds(&results, &cast, "none", None).is_none());
    }
}
