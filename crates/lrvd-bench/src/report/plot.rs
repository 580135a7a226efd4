//! Reliability and risk against coverage as a picture (SVG), in the style of those in `docs/results`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::record::{Reliability, SelectiveRecord};
use crate::text::decimals;

/// Width and height of a panel's frame, and its distances from the left and the top of the panel.
const FRAME: (f64, f64) = (300.0, 300.0);
const MARGIN: (f64, f64) = (60.0, 40.0);
/// Size of a panel.
const PANEL: (f64, f64) = (390.0, 400.0);
/// Colours of the numbers of draws, the posterior mean first.
const COLOURS: [&str; 2] = ["#1f6f8b", "#c8553d"];
/// Radius of the mark of a bin with all rows.
const RADIUS: f64 = 14.0;

/// The picture: the accuracy of answers against their confidence, and, where there is one, the share of wrong answers against the
/// share of rows that are answered, the most confident first. A line for each number of draws.
pub(crate) fn curves(
    reliability: &BTreeMap<u32, Reliability>,
    selective: &BTreeMap<u32, SelectiveRecord>,
) -> String {
    let panels = if selective.is_empty() { 1.0 } else { 2.0 };
    let mut svg = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(
        svg,
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {} {}" font-family="sans-serif" font-size="12" role="img" aria-label="Reliability, and risk against coverage">
<rect width="100%" height="100%" fill="#ffffff"/>"##,
        panels * PANEL.0,
        PANEL.1
    );
    let mut panel = Panel { svg: &mut svg, left: MARGIN.0, most: 1.0 };
    panel.frame("Reliability", "confidence: probability of the answer", "accuracy");
    panel.line(&[(0.0, 0.0), (1.0, 1.0)], "#888888", "4 4");
    for ((draws, found), colour) in reliability.iter().zip(COLOURS) {
        let rows: u64 = found.bins.iter().map(|bin| bin.count).sum();
        let bins = || found.bins.iter().filter(|bin| bin.count > 0);
        let points: Vec<(f64, f64)> = bins().map(|bin| (bin.confidence, bin.accuracy)).collect();
        panel.line(&points, colour, "");
        for bin in bins() {
            let radius = RADIUS * (bin.count as f64 / rows as f64).sqrt();
            let words = format!(
                "{} rows with a mean confidence of {}: {} right",
                bin.count,
                decimals(bin.confidence, 3),
                decimals(bin.accuracy, 3)
            );
            panel.mark((bin.confidence, bin.accuracy), radius, colour, &words);
        }
        let floor = found.floor();
        let words = format!("ECE {} (calibrated: {})", decimals(found.ece, 4), decimals(floor, 4));
        panel.key((*draws, reliability.len()), true, colour, &words);
    }
    if !selective.is_empty() {
        let risks = selective.values().flat_map(|found| &found.curve).map(|(_, risk)| *risk);
        let largest = risks.fold(0.0, f64::max);
        let mut panel = Panel { svg: &mut svg, left: PANEL.0 + MARGIN.0, most: ceiling(largest) };
        panel.frame(
            "Risk against coverage",
            "coverage: share of rows answered, the most confident first",
            "share of wrong answers",
        );
        for ((draws, found), colour) in selective.iter().zip(COLOURS) {
            panel.line(&found.curve, colour, "");
            let words = format!("area {}", decimals(found.area, 4));
            panel.key((*draws, selective.len()), false, colour, &words);
        }
    }
    svg.push_str("</svg>\n");
    svg
}

/// The smallest of 1, 2 and 5 times a power of ten that is not below `value`; 0.01 at least, 1 at most.
fn ceiling(value: f64) -> f64 {
    let steps = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5];
    steps.into_iter().find(|step| value <= *step).unwrap_or(1.0)
}

/// Part of the picture with axes from 0 to 1 and from 0 to `most`.
struct Panel<'a> {
    svg: &'a mut String,
    /// Of the frame, from the left of the picture.
    left: f64,
    most: f64,
}

impl Panel<'_> {
    fn place(&self, (x, y): (f64, f64)) -> (f64, f64) {
        (self.left + FRAME.0 * x, MARGIN.1 + FRAME.1 * (1.0 - y / self.most))
    }

    fn text(&mut self, (x, y): (f64, f64), attributes: &str, words: &str) {
        let _ = writeln!(self.svg, r#"<text x="{x:.1}" y="{y:.1}" {attributes}>{words}</text>"#);
    }

    fn frame(&mut self, title: &str, across: &str, up: &str) {
        let bottom = MARGIN.1 + FRAME.1;
        let left = self.left;
        self.text((left, 22.0), r#"font-weight="bold""#, title);
        let _ = writeln!(
            self.svg,
            r##"<path d="M{left:.1} {:.1}V{bottom:.1}H{:.1}" fill="none" stroke="#444444"/>"##,
            MARGIN.1,
            left + FRAME.0
        );
        for part in [0.0, 0.5, 1.0] {
            let (x, y) = self.place((part, part * self.most));
            let word = |value: f64| {
                let text = format!("{value:.3}");
                text.trim_end_matches('0').trim_end_matches('.').to_owned()
            };
            self.text((x, bottom + 18.0), r#"text-anchor="middle""#, &word(part));
            self.text((left - 6.0, y + 4.0), r#"text-anchor="end""#, &word(part * self.most));
        }
        let middle = left + FRAME.0 / 2.0;
        self.text((middle, bottom + 38.0), r##"text-anchor="middle" fill="#444444""##, across);
        let (x, y) = (left - 42.0, MARGIN.1 + FRAME.1 / 2.0);
        let turned = format!(
            r##"text-anchor="middle" fill="#444444" transform="rotate(-90 {x:.1} {y:.1})""##
        );
        self.text((x, y), &turned, up);
    }

    fn line(&mut self, points: &[(f64, f64)], colour: &str, dashes: &str) {
        let places: Vec<String> = points
            .iter()
            .map(|&point| self.place(point))
            .map(|(x, y)| format!("{x:.1},{y:.1}"))
            .collect();
        let _ = writeln!(
            self.svg,
            r#"<polyline points="{}" fill="none" stroke="{colour}" stroke-width="2" stroke-dasharray="{dashes}"/>"#,
            places.join(" ")
        );
    }

    fn mark(&mut self, point: (f64, f64), radius: f64, colour: &str, words: &str) {
        let (x, y) = self.place(point);
        let _ = writeln!(
            self.svg,
            r#"<circle cx="{x:.1}" cy="{y:.1}" r="{:.1}" fill="{colour}" fill-opacity="0.6"><title>{words}</title></circle>"#,
            radius.max(2.0)
        );
    }

    /// The key of a number of draws, one of `all`: below the diagonal, or above a curve that rises.
    fn key(&mut self, (draws, all): (u32, usize), is_below: bool, colour: &str, words: &str) {
        let name = match draws {
            0 if all == 1 => String::new(),
            0 => "posterior mean: ".to_owned(),
            n => format!("{n} draws: "),
        };
        let line = if draws == 0 { 0.0 } else { 16.0 };
        let (place, anchor) = if is_below {
            ((self.left + FRAME.0, MARGIN.1 + FRAME.1 - 28.0 + line), "end")
        } else {
            ((self.left + 10.0, MARGIN.1 + 12.0 + line), "start")
        };
        let attributes = format!(r#"text-anchor="{anchor}" fill="{colour}""#);
        self.text(place, &attributes, &(name + words));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::BinRecord;

    #[test]
    fn a_picture_has_the_bins_and_the_curve_where_the_axes_say() {
        let bin = |count, accuracy, confidence| BinRecord {
            low: 0.0,
            high: 1.0,
            count,
            accuracy,
            confidence,
        };
        let bins = vec![bin(1, 0.0, 0.25), bin(0, 0.0, 0.0), bin(3, 1.0, 0.75)];
        let found = Reliability { convention: "torchmetrics".to_owned(), ece: 0.25, bins };
        let reliability = BTreeMap::from([(0, found)]);
        let curve = vec![(0.5, 0.0), (1.0, 0.25)];
        let selective = SelectiveRecord { area: 0.125, targets: Vec::new(), curve };
        let both = curves(&reliability, &BTreeMap::from([(0, selective)]));
        // 60 + 300 x, 40 + 300 (1 - y); the second panel is 390 further, with 0.5 at its top.
        for words in [
            r#"points="135.0,340.0 285.0,40.0" fill="none""#.to_owned(),
            r#"cx="285.0" cy="40.0" r="12.1""#.to_owned(),
            "3 rows with a mean confidence of 0.750: 1.000 right".to_owned(),
            r#"points="600.0,340.0 750.0,190.0""#.to_owned(),
            "ECE 0.2500 (calibrated:".to_owned(),
            "area 0.1250".to_owned(),
        ] {
            assert!(both.contains(&words), "{words}: {both}");
        }
        assert_eq!(both.matches("<circle").count(), 2);
        let alone = curves(&reliability, &BTreeMap::new());
        assert!(alone.contains(r#"viewBox="0 0 390 400""#) && !alone.contains("coverage:"));
        assert_eq!([0.0, 0.02, 0.021, 0.3, 0.7].map(ceiling), [0.01, 0.02, 0.05, 0.5, 1.0]);
    }
}
