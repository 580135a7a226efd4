//! What the authors' script runs, against what we recommend, at equal ranks.

use crate::settings::Preset;
use crate::study::design::{Arm, Base, Claim, Column, Curves, Figure, Study};
use crate::study::evidence::{Evidence, Quantity};
use crate::study::orders::{Order, Orders, ranks_at};
use crate::study::verdict::Judgement;

const AUTHOR: &str = "author-glue";
const DEFAULT: &str = "default";
/// The same, trained whole and cut afterwards.
const AUTHOR_CUT: &str = "author-glue, cut";
const CONSTANT_CUT: &str = "constant-weight, cut";
const RECIPE_CUT: &str = "recipe, cut";
const OWN: &str = Order::Statistic.loss();

/// Is it the posterior that finds the ranks?
pub(super) const STUDY: Study = Study {
    name: "published",
    question: "At equal ranks, is the model that the authors' script leaves as good as that of our preset?",
    claims: &[
        Claim {
            id: "magnitude",
            sentence: "Without noise in training, as the authors' script runs, the statistic is magnitude: cut to a half or \
                       a quarter, both orders have the same held-out NLL (within .01)",
            source: "ours, from reading the script",
            judge: |e| {
                Judgement::all([0.5, 0.25].map(|share| {
                    let of = |order: Order| (AUTHOR_CUT, kept(e, AUTHOR_CUT, order.loss(), share));
                    let difference = e.contrast(of(Order::Statistic), of(Order::Magnitude));
                    let verdict = difference.within(0.01);
                    (difference, verdict)
                }))
            },
        },
        Claim {
            id: "noise",
            sentence: "Cut to a half or a quarter of the ranks, noise in training at the same KL weight has a lower held-out NLL",
            source: "ours",
            judge: |e| less(e, CONSTANT_CUT, AUTHOR_CUT),
        },
        Claim {
            id: "recipe",
            sentence: "Cut as far, w = .03 with its warm-up has a lower held-out NLL than the published weight",
            source: "ours",
            judge: |e| less(e, RECIPE_CUT, CONSTANT_CUT),
        },
        Claim {
            id: "accuracy",
            sentence: "As they run, pruning in training, our default and the authors' preset end within .01 in accuracy",
            source: "ours",
            judge: |e| {
                let difference = e.difference(Quantity::at("accuracy", 0.0), DEFAULT, AUTHOR);
                let verdict = difference.within(0.01);
                Judgement::all([(difference, verdict)])
            },
        },
    ],
    arms: || {
        let of = |label: &str, preset: Preset, set: &[&str]| {
            Arm::new(label, "bayeslora", set).on(Base::Preset(preset))
        };
        let never = "prune.end=0";
        vec![
            of(AUTHOR, Preset::AuthorGlue, &[]),
            of(DEFAULT, Preset::Default, &[]),
            of(AUTHOR_CUT, Preset::AuthorGlue, &[never]),
            of(CONSTANT_CUT, Preset::ConstantWeight, &[never]),
            Arm::new(RECIPE_CUT, "bayeslora", &[never]),
        ]
    },
    analysis: Some(&Orders(&[Order::Statistic, Order::Magnitude])),
    columns: Column::COMMON,
    figures: &[Figure {
        name: "ranks",
        title: "Held-out NLL of what is kept by the own statistic",
        x: "ranks kept",
        y: "nats",
        log_x: false,
        curves: Curves::OverAt(&[OWN]),
    }],
    notes: "Both presets have the recipe's data, lengths, rank and rates, and what makes them differ: sampling in \
            training, the pooler, and how pruning treats the optimiser. Arms that are \"cut\" are trained whole, and their \
            ranks go afterwards in the order of the statistic: so ranks are equal by construction.",
};

/// `metric` of `arm` with `share` of its ranks.
fn kept(evidence: &Evidence, arm: &str, metric: &'static str, share: f64) -> Quantity {
    let total = evidence.places(arm, metric).last().copied().unwrap_or(0.0);
    Quantity::at(metric, ranks_at(total, share))
}

/// Whether `arm` has a lower loss than `other` at a half and at a quarter of the ranks.
fn less(evidence: &Evidence, arm: &str, other: &str) -> Judgement {
    Judgement::all([0.5, 0.25].map(|share| {
        let of = |arm| kept(evidence, arm, OWN, share);
        let difference = evidence.contrast((arm, of(arm)), (other, of(other)));
        let verdict = difference.below(0.0);
        (difference, verdict)
    }))
}
