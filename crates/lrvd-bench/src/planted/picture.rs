//! What a run found, to look at: the singular values and the loss over rank.

use std::fmt::Write as _;
use std::path::Path;

use serde::Serialize;

use super::recover::Recovery;
use crate::io::{IoError, JsonLayout, create_dir, write_json, write_text};

/// Width of the longest bar, characters.
const BAR: usize = 36;
/// Directions shown beyond the last that was planted or found.
const MARGIN: usize = 3;

/// Bars for a terminal, one block per layer, and the loss over rank.
pub fn terminal(run: &Recovery) -> String {
    let mut text = String::new();
    for layer in &run.layers {
        let _ = writeln!(
            text,
            "{}, seed {}: singular values of the learnt update ({} planted, {} found)",
            layer.path, run.seed, run.planted_rank, layer.found
        );
        let largest = layer.singular_values.first().copied().unwrap_or(0.0).max(f64::MIN_POSITIVE);
        let shown = run.planted_rank.max(layer.found) + MARGIN;
        for (k, value) in layer.singular_values.iter().take(shown).enumerate() {
            let length = (value / largest * BAR as f64).round() as usize;
            let mark = if k < layer.found { "kept" } else { "" };
            let _ =
                writeln!(text, "  {:>2} {value:7.4} {:<BAR$} {mark}", k + 1, "█".repeat(length));
        }
    }
    let _ = writeln!(
        text,
        "loss on fresh rows with the first k directions (the truth: {:.4})",
        run.nll_oracle
    );
    let (worst, best) = losses(run);
    let shown = run.planted_rank.max(run.found_rank()) * run.layers.len().max(1) + MARGIN;
    for point in run.path.points.iter().take(shown + 1) {
        let share = (point.loss - best) / (worst - best).max(f64::MIN_POSITIVE);
        let length = (share * BAR as f64).round() as usize;
        let mark = if point.rank == run.found_rank() { "found" } else { "" };
        let _ = writeln!(
            text,
            "  {:>2} {:7.4} {:<BAR$} {mark}",
            point.rank,
            point.loss,
            "█".repeat(length)
        );
    }
    text
}

/// Writes `report` and the image of `runs` into the folder `dir`, which is made if it is not there.
///
/// # Errors
///
/// [`IoError`] naming the file.
pub fn save(dir: &Path, report: &impl Serialize, runs: &[Recovery]) -> Result<(), IoError> {
    create_dir(dir)?;
    write_json(&dir.join("planted-rank.json"), report, JsonLayout::Pretty)?;
    write_text(&dir.join("planted-rank.svg"), &svg(runs))
}

/// The largest and the smallest loss to draw, the truth included.
fn losses(run: &Recovery) -> (f64, f64) {
    let all = run.path.points.iter().map(|point| point.loss);
    all.fold((run.nll_oracle, run.nll_oracle), |(high, low), loss| (high.max(loss), low.min(loss)))
}

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 260.0;
const LEFT: f64 = 56.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 36.0;

/// The same as an SVG image: for every run the singular values beside the loss over rank.
pub fn svg(runs: &[Recovery]) -> String {
    let panels = 2 * runs.len();
    let height = HEIGHT * runs.len() as f64;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {height}\" font-family=\"sans-serif\" \
         font-size=\"12\" role=\"img\" aria-label=\"planted and found rank, {panels} panels\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n",
        2.0 * WIDTH
    );
    for (row, run) in runs.iter().enumerate() {
        spectrum(&mut text, run, row as f64 * HEIGHT);
        curve(&mut text, run, row as f64 * HEIGHT);
    }
    text.push_str("</svg>\n");
    text
}

/// Maps the unit square to a panel whose left upper corner is `(x0, y0)`.
fn place((x0, y0): (f64, f64), x: f64, y: f64) -> (f64, f64) {
    (x0 + LEFT + x * (WIDTH - LEFT - RIGHT), y0 + HEIGHT - BOTTOM - y * (HEIGHT - TOP - BOTTOM))
}

fn spectrum(text: &mut String, run: &Recovery, y0: f64) {
    let corner = (0.0, y0);
    let bars: Vec<(f64, bool)> = run
        .layers
        .iter()
        .flat_map(|layer| {
            layer.singular_values.iter().enumerate().map(|(k, &value)| (value, k < layer.found))
        })
        .collect();
    let largest = bars.iter().map(|bar| bar.0).fold(f64::MIN_POSITIVE, f64::max);
    title(
        text,
        corner,
        &format!(
            "seed {}: singular values of the learnt update, {} of {} planted found",
            run.seed,
            run.found_rank(),
            run.planted_rank * run.layers.len()
        ),
    );
    let width = (WIDTH - LEFT - RIGHT) / bars.len().max(1) as f64;
    for (k, (value, kept)) in bars.iter().enumerate() {
        let (x, y) = place(corner, k as f64 / bars.len() as f64, value / largest);
        let colour = if *kept { "#1f6f8b" } else { "#c9c9c9" };
        let (_, base) = place(corner, 0.0, 0.0);
        let _ = writeln!(
            text,
            "<rect x=\"{:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{colour}\">\
             <title>{value:.4}</title></rect>",
            x + 0.1 * width,
            0.8 * width,
            (base - y).max(1.0)
        );
    }
    ticks(text, corner, 0.0, largest);
}

fn curve(text: &mut String, run: &Recovery, y0: f64) {
    let corner = (WIDTH, y0);
    let (worst, best) = losses(run);
    let range = (worst - best).max(f64::MIN_POSITIVE);
    let last = run.path.points.last().map_or(1, |point| point.rank).max(1) as f64;
    let at = |rank: usize, loss: f64| place(corner, rank as f64 / last, (loss - best) / range);
    title(text, corner, "loss on fresh rows (nats) with the first k directions");
    let points: Vec<String> = run
        .path
        .points
        .iter()
        .map(|point| {
            let (x, y) = at(point.rank, point.loss);
            format!("{x:.1},{y:.1}")
        })
        .collect();
    let _ = writeln!(
        text,
        "<polyline points=\"{}\" fill=\"none\" stroke=\"#1f6f8b\" stroke-width=\"2\"/>",
        points.join(" ")
    );
    let (left, right) = (at(0, run.nll_oracle), at(last as usize, run.nll_oracle));
    let _ = writeln!(
        text,
        "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"#888888\" stroke-dasharray=\"4 4\"/>\n\
         <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#666666\">the truth</text>",
        left.0,
        left.1,
        right.0,
        right.1,
        right.0,
        right.1 - 5.0
    );
    if let Some(point) = run.path.points.iter().find(|point| point.rank == run.found_rank()) {
        let (x, y) = at(point.rank, point.loss);
        let _ = writeln!(
            text,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"6\" fill=\"#d1495b\"/>\n\
             <text x=\"{:.1}\" y=\"{:.1}\" fill=\"#d1495b\">found: {}</text>",
            x + 9.0,
            y - 9.0,
            point.rank
        );
    }
    for point in &run.path.points {
        let (x, y) = place(corner, point.rank as f64 / last, 0.0);
        let _ = writeln!(
            text,
            "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            y + 18.0,
            point.rank
        );
    }
    ticks(text, corner, best, worst);
}

fn title(text: &mut String, corner: (f64, f64), words: &str) {
    let (x, y) = place(corner, 0.0, 1.0);
    let _ = writeln!(
        text,
        "<text x=\"{x:.1}\" y=\"{:.1}\" font-weight=\"bold\">{words}</text>",
        y - 12.0
    );
}

fn ticks(text: &mut String, corner: (f64, f64), low: f64, high: f64) {
    for share in [0.0, 0.5, 1.0] {
        let (x, y) = place(corner, 0.0, share);
        let value = low + share * (high - low);
        let _ = writeln!(
            text,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{value:.2}</text>",
            x - 6.0,
            y + 4.0
        );
    }
    let ((x, low), (right, high)) = (place(corner, 0.0, 0.0), place(corner, 1.0, 1.0));
    let _ = writeln!(
        text,
        "<path d=\"M{x:.1} {high:.1}V{low:.1}H{right:.1}\" fill=\"none\" stroke=\"#444444\"/>"
    );
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use lrvd_core::prune::{PathTolerance, RankPath};

    use super::*;
    use crate::planted::LayerRank;

    fn run() -> Recovery {
        let path =
            RankPath::new(&[0, 1, 2], &[2.0, 2.2, 1.0, 1.2, 1.0, 1.1], PathTolerance::default())
                .unwrap();
        let layer =
            LayerRank { path: "layer.0".to_owned(), found: 1, singular_values: vec![2.0, 0.5] };
        Recovery {
            seed: 7,
            planted_rank: 1,
            layers: vec![layer],
            nll_mean: 1.1,
            nll_mc: 1.1,
            nll_oracle: 1.0,
            path,
            seconds: 1.0,
        }
    }

    #[test]
    fn bars_are_to_scale_and_the_found_rank_is_marked() {
        let text = terminal(&run());
        let line = |start: &str| text.lines().find(|line| line.starts_with(start)).unwrap();
        let bar = |line: &str| line.matches('█').count();
        assert_eq!((bar(line("   1  2.0000")), bar(line("   2  0.5000"))), (BAR, BAR / 4));
        assert!(line("   1  2.0000").ends_with("kept") && !line("   2  0.5000").contains("kept"));
        assert!(line("   1  1.1000").ends_with("found") && bar(line("   0  2.1000")) == BAR);
    }

    #[test]
    fn the_image_marks_what_was_kept() {
        let text = svg(&[run(), run()]);
        assert_eq!(text.matches("found: 1<").count(), 2);
        assert_eq!(text.matches("#c9c9c9").count(), 2, "one direction of each run was cut");
        assert!(text.starts_with("<svg") && text.ends_with("</svg>\n"));
    }
}
