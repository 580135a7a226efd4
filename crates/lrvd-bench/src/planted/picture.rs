//! What a run found, to look at: the singular values and the loss over rank.

use std::fmt::Write as _;
use std::path::Path;

use lrvd_core::prune::PathPoint;
use serde::Serialize;

use super::recover::Recovery;
use crate::chart::{COLOURS, Panel, document};
use crate::io::{IoError, JsonLayout, create_dir, write_json, write_text};

/// Colour of a direction that was cut.
const CUT: &str = "#c9c9c9";
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

/// The same as an SVG image: for every run the singular values beside the loss over rank.
pub fn svg(runs: &[Recovery]) -> String {
    let rows = runs.iter().enumerate();
    let body: String = rows.map(|(row, run)| spectrum(run, row) + &curve(run, row)).collect();
    let label = format!("planted and found rank, {} panels", 2 * runs.len());
    document(2.0 * WIDTH, HEIGHT * runs.len() as f64, &label, &body)
}

fn spectrum(run: &Recovery, row: usize) -> String {
    let bars: Vec<(f64, bool)> = run
        .layers
        .iter()
        .flat_map(|layer| {
            layer.singular_values.iter().enumerate().map(|(k, &value)| (value, k < layer.found))
        })
        .collect();
    let largest = bars.iter().map(|bar| bar.0).fold(f64::MIN_POSITIVE, f64::max);
    let corner = (0.0, row as f64 * HEIGHT);
    let x = (0.0, bars.len().max(1) as f64);
    let mut panel = Panel::new(corner, (WIDTH, HEIGHT), x, (0.0, largest));
    panel.title(&format!(
        "seed {}: singular values of the learnt update, {} of {} planted found",
        run.seed,
        run.found_rank(),
        run.planted_rank * run.layers.len()
    ));
    for (k, (value, kept)) in bars.iter().enumerate() {
        let colour = if *kept { COLOURS[0] } else { CUT };
        panel.bar((k as f64 + 0.1, *value), 0.8, colour, &format!("{value:.4}"));
    }
    panel.axes(&[]);
    panel.finish()
}

fn curve(run: &Recovery, row: usize) -> String {
    let (worst, best) = losses(run);
    let high = worst.max(best + f64::MIN_POSITIVE);
    let last = run.path.points.last().map_or(1, |point| point.rank).max(1) as f64;
    let corner = (WIDTH, row as f64 * HEIGHT);
    let mut panel = Panel::new(corner, (WIDTH, HEIGHT), (0.0, last), (best, high));
    panel.title("loss on fresh rows (nats) with the first k directions");
    let at = |point: &PathPoint| (point.rank as f64, point.loss);
    let points: Vec<(f64, f64)> = run.path.points.iter().map(at).collect();
    panel.curve(&points, COLOURS[0], "");
    panel.curve(&[(0.0, run.nll_oracle), (last, run.nll_oracle)], "#888888", "4 4");
    panel.words((last, run.nll_oracle), (0.0, -5.0), "end", "#666666", "the truth");
    if let Some(point) = run.path.points.iter().find(|point| point.rank == run.found_rank()) {
        let name = format!("found: {}", point.rank);
        panel.point(at(point), 6.0, COLOURS[1], "");
        panel.words(at(point), (9.0, -9.0), "start", COLOURS[1], &name);
    }
    let ticks: Vec<_> = points.iter().map(|point| (point.0, point.0.to_string())).collect();
    panel.axes(&ticks);
    panel.finish()
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
