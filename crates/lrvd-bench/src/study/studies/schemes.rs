//! How the posterior is sampled in training.

use crate::study::design::{Arm, Claim, Column, Curves, Figure, Study};
use crate::study::evidence::Quantity;
use crate::study::verdict::Judgement;

const NLL: Quantity = Quantity::at("nll", 0.0);
const NLL_DRAWN: Quantity = Quantity::at("nll", 10.0);
const SEQUENCE: &str = "weight-per-sequence";
const SCHEMES: [&str; 5] = ["mean", SEQUENCE, "weight-per-batch", "moment-matched", "nested"];

/// Which noise in training?
pub(super) const STUDY: Study = Study {
    name: "schemes",
    question: "Which way of sampling in training leaves the better model?",
    claims: &[
        Claim {
            id: "sampling",
            sentence: "Noise in training pays: one draw per sequence has a lower NLL than none",
            source: "ours; the authors' script has none",
            judge: |e| {
                let difference = e.difference(NLL, SEQUENCE, "mean");
                let verdict = difference.below(0.0);
                Judgement::all([(difference, verdict)])
            },
        },
        Claim {
            id: "weights",
            sentence: "With ten draws, one draw per sequence has a lower NLL than noise on activations (either scheme)",
            source: "ours: only draws of weights are those of the objective",
            judge: |e| {
                Judgement::all(["moment-matched", "nested"].map(|arm| {
                    let difference = e.difference(NLL_DRAWN, SEQUENCE, arm);
                    let verdict = difference.below(0.0);
                    (difference, verdict)
                }))
            },
        },
        Claim {
            id: "sequence",
            sentence: "One draw per sequence has a lower NLL than one per batch",
            source: "ours: less noise in the gradient",
            judge: |e| {
                let difference = e.difference(NLL_DRAWN, SEQUENCE, "weight-per-batch");
                let verdict = difference.below(0.0);
                Judgement::all([(difference, verdict)])
            },
        },
        Claim {
            id: "ranks",
            sentence: "Without noise in training more ranks stay than with it",
            source: "ours, as on planted tasks",
            judge: |e| {
                let ranks = Quantity::of("percent_rank");
                let difference = e.difference(ranks, "mean", SEQUENCE);
                let verdict = difference.above(0.0);
                Judgement::all([(difference, verdict)])
            },
        },
    ],
    arms: || {
        let arm =
            |scheme: &str| Arm::new(scheme, "bayeslora", &[&format!("training_scheme={scheme}")]);
        SCHEMES.map(arm).to_vec()
    },
    analysis: None,
    columns: Column::COMMON,
    figures: &[Figure {
        name: "nll",
        title: "Held-out NLL",
        x: "sampling in training",
        y: "nats",
        log_x: false,
        curves: Curves::OverArms(&[("k = 0", NLL), ("k = 10", NLL_DRAWN)]),
    }],
    notes: "",
};
