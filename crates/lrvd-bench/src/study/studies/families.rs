//! Families of posteriors, and priors.

use crate::study::design::{Arm, Claim, Column, Curves, Figure, Study};
use crate::study::evidence::Quantity;
use crate::study::verdict::Judgement;

const NLL: Quantity = Quantity::at("nll", 0.0);
const NLL_DRAWN: Quantity = Quantity::at("nll", 10.0);
const LOG_UNIFORM: &str = "log-uniform";

/// Which posterior?
pub(super) const STUDY: Study = Study {
    name: "families",
    question: "Which posterior and which prior, at the same KL weight?",
    claims: &[
        Claim {
            id: "prior",
            sentence: "At w = .03 the log-uniform prior has a lower NLL than the hierarchical one (ARD, shared)",
            source: "ours, one seed so far",
            judge: |e| {
                let difference = e.difference(NLL, LOG_UNIFORM, "ARD shared");
                let verdict = difference.below(0.0);
                Judgement::all([(difference, verdict)])
            },
        },
        Claim {
            id: "a-only",
            sentence: "Under the hierarchical prior noise on A alone has a lower NLL than noise on both factors",
            source: "ours, one seed so far",
            judge: |e| {
                let difference = e.difference(NLL, "ARD, A only", "ARD shared");
                let verdict = difference.below(0.0);
                Judgement::all([(difference, verdict)])
            },
        },
        Claim {
            id: "elements",
            sentence: "One variance per rank is enough: one per element does not lower the NLL by more than .01",
            source: "paper, section 3 (parameters at O(r))",
            judge: |e| {
                let difference = e.difference(NLL_DRAWN, "one per element", LOG_UNIFORM);
                let verdict = difference.above(-0.01);
                Judgement::all([(difference, verdict)])
            },
        },
        Claim {
            id: "multiplicative",
            sentence: "The multiplicative family, which the paper writes down, prunes nothing at threshold 4: over 99 % stay",
            source: "ours, as on planted tasks",
            judge: |e| {
                let arm = "noise to signal";
                let values = e.values(arm, Quantity::of("percent_rank"));
                let values: Vec<f64> = values.into_values().collect();
                let share = crate::study::Paired::of(format!("% of ranks: {arm}"), &values);
                let verdict = share.above(99.0);
                Judgement::all([(share, verdict)])
            },
        },
    ],
    arms: || {
        let ard = |scales: &str| {
            format!("prior={{ard={{scales=\"{scales}\", hyper=\"empirical-bayes\"}}}}")
        };
        let a_only = "family=asym-rank-variance";
        let arm = |label: &str, set: &[&str]| Arm::new(label, "bayeslora", set);
        vec![
            arm(LOG_UNIFORM, &[]),
            arm("ARD shared", &[&ard("shared")]),
            arm("ARD separate", &[&ard("separate")]),
            arm("log-uniform, A only", &[a_only]),
            arm("ARD, A only", &[a_only, &ard("shared")]),
            arm("one per element", &["family=element-variance"]),
            // A rate of its own: it has farther to go.
            arm(
                "noise to signal",
                &[
                    "family=noise-to-signal",
                    "log_variance.initial=-4",
                    "log_variance.learning_rate_factor=10",
                ],
            ),
        ]
    },
    analysis: None,
    columns: Column::COMMON,
    figures: &[Figure {
        name: "nll",
        title: "Held-out NLL",
        x: "posterior and prior",
        y: "nats",
        log_x: false,
        curves: Curves::OverArms(&[("k = 0", NLL), ("k = 10", NLL_DRAWN)]),
    }],
    notes: "",
};
