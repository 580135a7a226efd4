//! The number of draws.

use crate::study::design::{Arm, Claim, Column, Curves, Figure, Study};
use crate::study::evidence::{Evidence, Quantity};
use crate::study::verdict::{Judgement, Verdict};

const COLD: &str = "w = 0.03";
const WARM: &str = "w = 0.1";

/// Do draws pay?
pub(super) const STUDY: Study = Study {
    name: "k",
    question: "What do 1, 5, 10 and 20 draws give beyond the posterior mean, and what do they cost?",
    claims: &[
        Claim {
            id: "nll",
            sentence: "Ten draws lower the NLL of the mean",
            source: "paper, table 3",
            judge: |e| draws(e, "nll", COLD, |d| d.below(0.0)),
        },
        Claim {
            id: "ece",
            sentence: "Ten draws lower the calibration error of the mean",
            source: "paper, table 3",
            judge: |e| draws(e, "ece", COLD, |d| d.below(0.0)),
        },
        Claim {
            id: "accuracy",
            sentence: "Ten draws keep the accuracy within .01",
            source: "paper, table 3 (there it falls by up to .015)",
            judge: |e| draws(e, "accuracy", COLD, |d| d.within(0.01)),
        },
        Claim {
            id: "warm",
            sentence: "Where the posterior is warm enough to calibrate the mean (w = .1), draws add nothing: NLL within .005",
            source: "ours",
            judge: |e| draws(e, "nll", WARM, |d| d.within(0.005)),
        },
        Claim {
            id: "enough",
            sentence: "Ten draws are enough: twenty change the NLL by less than .002",
            source: "ours",
            judge: |e| {
                let (ten, twenty) = (Quantity::at("nll", 10.0), Quantity::at("nll", 20.0));
                let difference = e.contrast((COLD, twenty), (COLD, ten));
                let verdict = difference.within(0.002);
                Judgement::all([(difference, verdict)])
            },
        },
    ],
    arms: || {
        let arm = |label: &str, weight: &str| {
            Arm::new(label, "bayeslora", &[weight, "draws=[1, 5, 10, 20]"])
        };
        vec![arm(COLD, "kl_weight=0.03"), arm(WARM, "kl_weight=0.1")]
    },
    analysis: None,
    columns: &[
        Column::new("accuracy, k = 0", Quantity::at("accuracy", 0.0), 3),
        Column::new("k = 10", Quantity::at("accuracy", 10.0), 3),
        Column::new("NLL, k = 0", Quantity::at("nll", 0.0), 4),
        Column::new("k = 1", Quantity::at("nll", 1.0), 4),
        Column::new("k = 5", Quantity::at("nll", 5.0), 4),
        Column::new("k = 10", Quantity::at("nll", 10.0), 4),
        Column::new("k = 20", Quantity::at("nll", 20.0), 4),
        Column::new("ECE, k = 0", Quantity::at("ece", 0.0), 3),
        Column::new("k = 10", Quantity::at("ece", 10.0), 3),
        Column::new("seconds, k = 0", Quantity::at("predict_seconds", 0.0), 2),
        Column::new("k = 20", Quantity::at("predict_seconds", 20.0), 2),
    ],
    figures: &[
        Figure {
            name: "nll",
            title: "Held-out NLL",
            x: "draws (0: the mean)",
            y: "nats",
            log_x: false,
            curves: Curves::OverAt(&["nll"]),
        },
        Figure {
            name: "ece",
            title: "Calibration error",
            x: "draws (0: the mean)",
            y: "ECE",
            log_x: false,
            curves: Curves::OverAt(&["ece"]),
        },
    ],
    notes: "Seconds are those of the validation split; fewer draws than the most are part of it, by their share.",
};

/// `metric` at ten draws less that at the mean.
fn draws(
    evidence: &Evidence,
    metric: &'static str,
    arm: &str,
    rule: impl Fn(&crate::study::Paired) -> Verdict,
) -> Judgement {
    let (ten, mean) = (Quantity::at(metric, 10.0), Quantity::at(metric, 0.0));
    let difference = evidence.contrast((arm, ten), (arm, mean));
    let verdict = rule(&difference);
    Judgement::all([(difference, verdict)])
}
