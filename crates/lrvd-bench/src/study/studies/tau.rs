//! The threshold of the relevance statistic.

use crate::study::design::{Arm, Claim, Column, Curves, Figure, Study};
use crate::study::evidence::Quantity;
use crate::study::verdict::Judgement;

const KEY: &str = "prune.log_alpha_threshold";
const PERCENT: Quantity = Quantity::of("percent_rank");
const ACCURACY: Quantity = Quantity::at("accuracy", 0.0);
const NLL: Quantity = Quantity::at("nll", 0.0);
/// Labels of the two thresholds that the paper's figure ends at.
const LOW: &str = "log_alpha_threshold 2";
const HIGH: &str = "log_alpha_threshold 5";

/// Does the threshold matter?
pub(super) const STUDY: Study = Study {
    name: "tau",
    question: "How much do ranks and quality depend on the threshold of the relevance statistic?",
    claims: &[
        Claim {
            id: "accuracy",
            sentence: "Accuracy is stable in the threshold: 2 and 5 (a factor of 20 in alpha) differ by less than .02",
            source: "paper, section 4 (\"stable over two orders of magnitude\")",
            judge: |e| {
                let difference = e.difference(ACCURACY, HIGH, LOW);
                let verdict = difference.within(0.02);
                Judgement::all([(difference, verdict)])
            },
        },
        Claim {
            id: "ranks",
            sentence: "So is the rank: thresholds 2 and 5 leave shares that differ by less than 10 points",
            source: "paper, section 4",
            judge: |e| {
                let difference = e.difference(PERCENT, HIGH, LOW);
                let verdict = difference.within(10.0);
                Judgement::all([(difference, verdict)])
            },
        },
        Claim {
            id: "gap",
            sentence: "There is a gap about 0, where noise and signal are equal: -1 and 1 leave shares within 10 points",
            source: "ours, as on planted tasks",
            judge: |e| {
                let (low, high) = ("log_alpha_threshold -1", "log_alpha_threshold 1");
                let difference = e.difference(PERCENT, high, low);
                let verdict = difference.within(10.0);
                Judgement::all([(difference, verdict)])
            },
        },
    ],
    arms: || Arm::sweep(KEY, &[-3.0, -1.0, 1.0, 2.0, 3.0, 4.0, 5.0]),
    analysis: None,
    columns: Column::COMMON,
    figures: &[
        Figure {
            name: "ranks",
            title: "Share of ranks left",
            x: "threshold of the statistic (log alpha)",
            y: "% of ranks",
            log_x: false,
            curves: Curves::OverArms(&[("% of ranks", PERCENT)]),
        },
        Figure {
            name: "nll",
            title: "Held-out NLL",
            x: "threshold of the statistic (log alpha)",
            y: "nats",
            log_x: false,
            curves: Curves::OverArms(&[("k = 0", NLL), ("k = 10", Quantity::at("nll", 10.0))]),
        },
    ],
    notes: "",
};
