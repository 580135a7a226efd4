//! Reliability diagrams: accuracy against confidence, and how many examples stand behind each bar.

use super::scale::{Scale, grouped};
use super::svg::{Anchor, Svg};
use crate::report::checkpoint::{BinRecord, Reliability};

const WIDTH: f64 = 268.0;
const HEIGHT: f64 = 318.0;
const LEFT: f64 = 52.0;
const RIGHT: f64 = 10.0;
const TOP: f64 = 10.0;
/// Lower edge of the diagram.
const PLOT: f64 = 218.0;
/// Upper and lower edge of the histogram.
const COUNTS: (f64, f64) = (230.0, 276.0);

/// Adds up the bins of several seeds: counts add, accuracy and confidence average by count.
pub(crate) fn pool(seeds: &[&Reliability]) -> Vec<BinRecord> {
    let mut pooled: Vec<BinRecord> = Vec::new();
    for bin in seeds.iter().flat_map(|r| &r.bins).filter(|bin| bin.count > 0) {
        match pooled.iter_mut().find(|p| p.low == bin.low && p.high == bin.high) {
            Some(sum) => {
                let (n, m) = (sum.count as f64, bin.count as f64);
                sum.accuracy = (sum.accuracy * n + bin.accuracy * m) / (n + m);
                sum.confidence = (sum.confidence * n + bin.confidence * m) / (n + m);
                sum.count += bin.count;
            }
            None => pooled.push(*bin),
        }
    }
    pooled.sort_by(|a, b| a.low.total_cmp(&b.low).then(a.high.total_cmp(&b.high)));
    pooled
}

/// Draws the pooled bins; none without examples.
pub(crate) fn diagram(bins: &[BinRecord], ece: f64, colour: usize, label: &str) -> Option<String> {
    let most = bins.iter().map(|bin| bin.count).max().filter(|n| *n > 0)?;
    let total: u64 = bins.iter().map(|bin| bin.count).sum();
    let x = Scale::new((0.0, 1.0), (LEFT, WIDTH - RIGHT));
    let y = Scale::new((0.0, 1.0), (PLOT, TOP));
    let height = Scale::new((0.0, most as f64), (COUNTS.1, COUNTS.0));
    let mut svg = Svg::new(WIDTH, HEIGHT, label);
    for (value, name) in y.ticks(4) {
        svg.line((LEFT, y.at(value)), (WIDTH - RIGHT, y.at(value)), "guide");
        svg.text((LEFT - 6.0, y.at(value) + 4.0), "tick", Anchor::End, &name);
    }
    for bin in bins {
        // The bin of confidence exactly 1 has no width of its own: it is drawn as a sliver at the edge.
        let (left, right) = (x.at(bin.low.clamp(0.0, 1.0)), x.at(bin.high.clamp(0.0, 1.0)));
        let (left, width) =
            if right - left < 3.0 { (right - 3.0, 3.0) } else { (left, right - left) };
        let (left, width) = (left + 0.6, width - 1.2);
        let (accuracy, confidence) = (bin.accuracy.clamp(0.0, 1.0), bin.confidence.clamp(0.0, 1.0));
        let tip = format!(
            "confidence {confidence:.3}, accuracy {accuracy:.3}, {} examples",
            grouped(bin.count)
        );
        let tip = Some(tip.as_str());
        let (acc, conf) = (y.at(accuracy), y.at(confidence));
        svg.rect((left, acc), (width, PLOT - acc), &format!("bar f{colour}"), tip);
        svg.rect((left, acc.min(conf)), (width, (acc - conf).abs()), "gap", tip);
        svg.line((left, conf), (left + width, conf), "mark");
        let top = height.at(bin.count as f64);
        svg.rect((left, top), (width, COUNTS.1 - top), &format!("bar f{colour}"), tip);
    }
    svg.line((x.at(0.0), y.at(0.0)), (x.at(1.0), y.at(1.0)), "diagonal");
    svg.line((LEFT, PLOT), (WIDTH - RIGHT, PLOT), "axis");
    svg.line((LEFT, COUNTS.1), (WIDTH - RIGHT, COUNTS.1), "axis");
    for (value, name) in x.ticks(5) {
        svg.text((x.at(value), COUNTS.1 + 15.0), "tick", Anchor::Middle, &name);
    }
    svg.text((LEFT - 6.0, COUNTS.0 + 8.0), "tick", Anchor::End, &count_label(most));
    svg.vertical_text((12.0, f64::midpoint(TOP, PLOT)), "title", "accuracy");
    svg.vertical_text((12.0, f64::midpoint(COUNTS.0, COUNTS.1)), "title", "count");
    let middle = f64::midpoint(LEFT, WIDTH - RIGHT);
    svg.text((middle, HEIGHT - 6.0), "title", Anchor::Middle, "confidence");
    svg.text((LEFT + 8.0, TOP + 14.0), "note strong", Anchor::Start, &format!("ECE {ece:.3}"));
    let n = format!("n = {}", grouped(total));
    svg.text((LEFT + 8.0, TOP + 29.0), "note", Anchor::Start, &n);
    Some(svg.finish())
}

fn count_label(n: u64) -> String {
    if n >= 10_000 { format!("{}k", n / 1000) } else { n.to_string() }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn bin(low: f64, count: u64, accuracy: f64, confidence: f64) -> BinRecord {
        BinRecord { low, high: low + 0.25, count, accuracy, confidence }
    }

    fn seed(bins: Vec<BinRecord>) -> Reliability {
        Reliability { convention: "torchmetrics".into(), ece: 0.1, bins }
    }

    #[test]
    fn pooled_bins_average_by_count() {
        let one = seed(vec![bin(0.5, 1, 1.0, 0.625), bin(0.75, 0, 0.0, 0.0)]);
        let two = seed(vec![bin(0.75, 2, 0.5, 0.875), bin(0.5, 3, 0.0, 0.5)]);
        let pooled = pool(&[&one, &two]);
        // (1·1 + 3·0)/4 and (1·0.625 + 3·0.5)/4.
        assert_eq!(pooled, [bin(0.5, 4, 0.25, 0.531_25), bin(0.75, 2, 0.5, 0.875)]);
    }

    #[test]
    fn a_bin_of_no_width_is_still_drawn() {
        let one = BinRecord { low: 1.0, high: 1.0, count: 5, accuracy: 1.0, confidence: 1.0 };
        let svg = diagram(&[one], 0.0, 2, "x").unwrap();
        assert!(svg.contains("width=\"1.8\"") && svg.contains("5 examples"));
        assert!(diagram(&[], 0.0, 2, "x").is_none());
    }
}
