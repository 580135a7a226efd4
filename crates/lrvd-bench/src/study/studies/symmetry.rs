//! The symmetry that the posterior breaks, and what its order of ranks is worth.

use crate::study::design::{Arm, Claim, Column, Curves, Figure, Study};
use crate::study::evidence::{Evidence, Paired, Quantity};
use crate::study::orders::{Order, Symmetry, ranks_at};
use crate::study::verdict::{Judgement, Verdict};

const COLD: &str = "w = 0.03";
const WARM: &str = "w = 0.1";
const LORA: &str = "LoRA";
const OWN: Quantity = Quantity::of("energy: own statistic");

/// Does the posterior find a basis, and is it the one to cut in?
pub(super) const STUDY: Study = Study {
    name: "symmetry",
    question: "Does the posterior break the freedom to mix ranks, and is the order that it finds a good one to cut by?",
    claims: &[
        Claim {
            id: "theorem",
            sentence: "The learnt posterior stays in its family under signed permutations of ranks and leaves it under \
                       rotations (by more than 1 % of the largest variance)",
            source: "paper, theorem 1",
            judge: |e| {
                let of = |metric| {
                    let values = e.values(COLD, Quantity::of(metric)).into_values();
                    Paired::of(format!("{metric}, {COLD}"), &values.collect::<Vec<_>>())
                };
                let (same, other) = (of("leaves by permutation"), of("leaves by rotation"));
                let verdicts = (same.below(1e-9), other.above(0.01));
                Judgement::all([(same, verdicts.0), (other, verdicts.1)])
            },
        },
        Claim {
            id: "random",
            sentence: "The learnt order captures more energy of the update than random orders (area under the curve)",
            source: "paper, section 4.3",
            judge: |e| more(e, "energy: random"),
        },
        Claim {
            id: "magnitude",
            sentence: "It captures more than the order by factor norms, which needs no posterior",
            source: "ours, the control that the paper lacks",
            judge: |e| more(e, "energy: magnitude"),
        },
        Claim {
            id: "sensitivity",
            sentence: "It captures more than the order by sensitivity of the loss",
            source: "ours, control",
            judge: |e| more(e, "energy: sensitivity"),
        },
        Claim {
            id: "carry",
            sentence: "At w = .1 an eighth of the ranks, by the own statistic, carries everything (held-out NLL within .005)",
            source: "ours",
            judge: |e| whole(e, WARM, Order::Statistic, |d| d.below(0.005)),
        },
        Claim {
            id: "lora",
            sentence: "After maximum likelihood an eighth of the singular directions is not enough: NLL higher by .02",
            source: "ours",
            judge: |e| whole(e, LORA, Order::Singular, |d| d.above(0.02)),
        },
        Claim {
            id: "basis",
            sentence: "Cut to an eighth at w = .1, the own basis and order are at least as good as singular directions \
                       (NLL within .005)",
            source: "ours, an open question",
            judge: |e| {
                let difference = e.contrast(
                    (WARM, at(e, WARM, Order::Statistic, 1.0 / 8.0)),
                    (WARM, at(e, WARM, Order::Singular, 1.0 / 8.0)),
                );
                let verdict = difference.below(0.005);
                Judgement::all([(difference, verdict)])
            },
        },
    ],
    arms: || {
        // Nothing is pruned in training: all orders cut the same model.
        let never = "prune.end=0";
        vec![
            Arm::new(COLD, "bayeslora", &[never]),
            Arm::new(WARM, "bayeslora", &[never, "kl_weight=0.1"]),
            Arm::new(LORA, "lora", &[]),
        ]
    },
    analysis: Some(&Symmetry),
    columns: &[
        Column::new("accuracy", Quantity::at("accuracy", 0.0), 3),
        Column::new("NLL", Quantity::at("nll", 0.0), 3),
        Column::new("energy: SVD", Quantity::of("energy: svd"), 3),
        Column::new("own", OWN, 3),
        Column::new("magnitude", Quantity::of("energy: magnitude"), 3),
        Column::new("sensitivity", Quantity::of("energy: sensitivity"), 3),
        Column::new("random", Quantity::of("energy: random"), 3),
        Column::new("enough: own", Quantity::of("enough by own statistic"), 0),
        Column::new("singular", Quantity::of("enough by singular value"), 0),
        Column::new("magnitude", Quantity::of("enough by magnitude"), 0),
        Column::new("sensitivity", Quantity::of("enough by sensitivity"), 0),
        Column::new("random", Quantity::of("enough at random"), 0),
    ],
    figures: &[
        Figure {
            name: "own",
            title: "Held-out NLL of what is kept by the own statistic",
            x: "ranks kept",
            y: "nats",
            log_x: false,
            curves: Curves::OverAt(&["nll by own statistic", "nll at random"]),
        },
        Figure {
            name: "singular",
            title: "Held-out NLL of what is kept of the singular directions",
            x: "ranks kept",
            y: "nats",
            log_x: false,
            curves: Curves::OverAt(&["nll by singular value", "nll by sensitivity"]),
        },
    ],
    notes: "Energy is the area under the share of the update's energy that the first k ranks of a module capture \
            (residual definition), a mean over modules; SVD is the bound. \"Enough\" is the fewest ranks of all modules \
            whose NLL on the validation rows is within one standard error (paired by row) of the best. LoRA has no \
            statistic: its own order is the one by magnitude. Sensitivity is the mean square of the loss's gradient by a \
            gate on the rank, 512 training rows, 8 at a time.",
};

/// The learnt order's area less that of another.
fn more(evidence: &Evidence, metric: &'static str) -> Judgement {
    let difference = evidence.contrast((COLD, OWN), (COLD, Quantity::of(metric)));
    let verdict = difference.above(0.0);
    Judgement::all([(difference, verdict)])
}

/// The loss of `arm` with `share` of its ranks by `order`.
fn at(evidence: &Evidence, arm: &str, order: Order, share: f64) -> Quantity {
    let total = evidence.places(arm, order.loss()).last().copied().unwrap_or(0.0);
    Quantity::at(order.loss(), ranks_at(total, share))
}

/// The loss with an eighth of the ranks less that with all, judged by `rule`.
fn whole(
    evidence: &Evidence,
    arm: &str,
    order: Order,
    rule: impl Fn(&Paired) -> Verdict,
) -> Judgement {
    let (eighth, all) = (at(evidence, arm, order, 1.0 / 8.0), at(evidence, arm, order, 1.0));
    let difference = evidence.contrast((arm, eighth), (arm, all));
    let verdict = rule(&difference);
    Judgement::all([(difference, verdict)])
}
