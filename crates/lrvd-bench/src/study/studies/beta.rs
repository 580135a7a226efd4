//! The weight of the KL.

use crate::study::design::{Arm, Claim, Column, Curves, Figure, Study};
use crate::study::evidence::{Paired, Quantity};
use crate::study::verdict::Judgement;

const PERCENT: Quantity = Quantity::of("percent_rank");
const NLL: Quantity = Quantity::at("nll", 0.0);

/// What does the KL weight do?
pub(super) const STUDY: Study = Study {
    name: "beta",
    question: "What do ranks, NLL and calibration owe to the KL weight, as a share w of the evidence bound's own?",
    claims: &[
        Claim {
            id: "published",
            sentence: "At the published weight (1e-6, w = .008 of 8000 rows) nearly all ranks stay: more than 90 %",
            source: "ours; the paper prunes 24 to 40 % of SST-2's",
            judge: |e| share(e, "kl_weight 0.008", |p| p.above(90.0)),
        },
        Claim {
            id: "bound",
            sentence: "At the evidence bound's own weight no rank is left on real text: less than 1 %",
            source: "ours",
            judge: |e| share(e, "kl_weight 1", |p| p.below(1.0)),
        },
        Claim {
            id: "regularises",
            sentence: "In between the posterior regularises: at w = .03 held-out NLL is below that of LoRA",
            source: "ours",
            judge: |e| {
                let difference = e.difference(NLL, "kl_weight 0.03", "LoRA");
                let verdict = difference.below(0.0);
                Judgement::all([(difference, verdict)])
            },
        },
        Claim {
            id: "front",
            sentence: "w moves along a front: w = .1 has fewer ranks than .03 and a lower calibration error at the mean",
            source: "ours",
            judge: |e| {
                Judgement::all([PERCENT, Quantity::at("ece", 0.0)].map(|quantity| {
                    let difference = e.difference(quantity, "kl_weight 0.1", "kl_weight 0.03");
                    let verdict = difference.below(0.0);
                    (difference, verdict)
                }))
            },
        },
    ],
    arms: || {
        let mut arms = Arm::sweep("kl_weight", &[0.008, 0.01, 0.03, 0.1, 0.3, 1.0]);
        arms.push(Arm::new("LoRA", "lora", &[]));
        arms
    },
    analysis: None,
    columns: Column::COMMON,
    figures: &[
        Figure {
            name: "ranks",
            title: "Share of ranks left",
            x: "KL weight w, divided by the training rows",
            y: "% of ranks",
            log_x: true,
            curves: Curves::OverArms(&[("% of ranks", PERCENT)]),
        },
        Figure {
            name: "nll",
            title: "Held-out NLL",
            x: "KL weight w, divided by the training rows",
            y: "nats",
            log_x: true,
            curves: Curves::OverArms(&[("k = 0", NLL), ("k = 10", Quantity::at("nll", 10.0))]),
        },
        Figure {
            name: "ece",
            title: "Calibration error",
            x: "KL weight w, divided by the training rows",
            y: "ECE",
            log_x: true,
            curves: Curves::OverArms(&[
                ("k = 0", Quantity::at("ece", 0.0)),
                ("k = 10", Quantity::at("ece", 10.0)),
            ]),
        },
    ],
    notes: "",
};

/// The share of ranks that `arm` is left with, judged by `rule`.
fn share(
    evidence: &crate::study::Evidence,
    arm: &str,
    rule: impl Fn(&Paired) -> crate::study::Verdict,
) -> Judgement {
    let values: Vec<f64> = evidence.values(arm, PERCENT).into_values().collect();
    let paired = Paired::of(format!("% of ranks: {arm}"), &values);
    let verdict = rule(&paired);
    Judgement::all([(paired, verdict)])
}
