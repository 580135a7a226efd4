//! The rule that chooses the KL weight, beside constants and beside a search over ranks.

use std::collections::BTreeMap;

use crate::settings::Preset;
use crate::study::design::{Arm, Base, Claim, Column, Curves, Figure, Study};
use crate::study::evidence::{Evidence, Paired, Quantity};
use crate::study::verdict::{Judgement, Verdict};

const AUTO: &str = "auto";
/// Ranks of the search.
const SEARCHED: [usize; 5] = [1, 2, 4, 8, 16];
const NLL: Quantity = Quantity::at("nll", 0.0);
const PARAMETERS: Quantity = Quantity::of("parameters");
const PERCENT: Quantity = Quantity::of("percent_rank");

/// Does a rule serve where no constant does?
pub(super) const STUDY: Study = Study {
    name: "rule",
    question: "Does the KL weight that held-out training rows choose in one run serve as well as a search over ranks?",
    claims: &[
        Claim {
            id: "neither-end",
            sentence: "The adapter is neither emptied nor kept whole: between 1 and 90 % of the ranks stay, in every run",
            source: "ours",
            judge: neither_end,
        },
        Claim {
            id: "search",
            sentence: "The NLL of the mean is no higher than that of LoRA at the rank of 1, 2, 4, 8, 16 that is best on the \
                       very rows it is measured on",
            source: "ours",
            judge: |e| {
                let best = best_of_search(e);
                let pairs: Vec<f64> = e
                    .values(AUTO, NLL)
                    .into_iter()
                    .filter_map(|(run, value)| Some(value - best.get(&run)?))
                    .collect();
                let paired = Paired::of("nll at 0: auto less LoRA at its best rank", &pairs);
                let verdict = paired.below(0.0);
                Judgement::all([(paired, verdict)])
            },
        },
        Claim {
            id: "smaller",
            sentence: "It trains fewer numbers than LoRA at rank 8 in the end",
            source: "ours",
            judge: |e| below(e, PARAMETERS, "LoRA, rank 8"),
        },
        Claim {
            id: "constants",
            sentence: "Its NLL is within .02 of the better of two constants, w = .03 and .1",
            source: "ours",
            judge: |e| {
                Judgement::all(["w = 0.03", "w = 0.1"].map(|other| {
                    let difference = e.difference(NLL, AUTO, other);
                    let verdict = difference.below(0.02);
                    (difference, verdict)
                }))
            },
        },
    ],
    arms,
    analysis: None,
    columns: &[
        Column::new("accuracy", Quantity::at("accuracy", 0.0), 3),
        Column::new("NLL, k = 0", NLL, 3),
        Column::new("NLL, k = 10", Quantity::at("nll", 10.0), 3),
        Column::new("ECE, k = 0", Quantity::at("ece", 0.0), 3),
        Column::new("ECE, k = 10", Quantity::at("ece", 10.0), 3),
        Column::new("ranks", Quantity::of("total_rank"), 1),
        Column::new("parameters", PARAMETERS, 0),
        Column::new("training, s", Quantity::of("train_seconds"), 0),
    ],
    figures: &[Figure {
        name: "nll",
        title: "Held-out NLL",
        x: "setting",
        y: "nats",
        log_x: false,
        curves: Curves::OverArms(&[("k = 0", NLL), ("k = 10", Quantity::at("nll", 10.0))]),
    }],
    notes: "The rule holds a tenth of the training rows out and trains on nine tenths; all others train on all of them. LoRA \
            keeps its scale at 2 whatever its rank, so that rows differ in rank alone. Parameters include the head.",
};

fn arms() -> Vec<Arm> {
    let fixed = |weight: &str, more: &[&str]| {
        let weight_is = format!("kl_weight={weight}");
        let energy = [weight_is.as_str(), "prune.statistic=energy", "prune.log_alpha_threshold=0"];
        Arm::new(format!("w = {weight}"), "bayeslora", &[&energy, more].concat())
    };
    let ard = "prior={ard={scales=\"shared\", hyper=\"empirical-bayes\"}}";
    let bound = Arm { label: "ARD, w = 1".to_owned(), ..fixed("1", &[ard]) };
    let mut arms = vec![
        Arm::new(AUTO, "bayeslora", &[]).on(Base::Preset(Preset::Default)),
        fixed("0.03", &[]),
        fixed("0.1", &[]),
        bound,
    ];
    arms.extend(SEARCHED.map(|rank| {
        let set = [format!("initial_rank={rank}"), format!("lora_alpha={}", 2 * rank)];
        Arm::new(format!("LoRA, rank {rank}"), "lora", &set.each_ref().map(String::as_str))
    }));
    arms
}

/// The smallest NLL of LoRA over the ranks of the search, by task and seed.
fn best_of_search(evidence: &Evidence) -> BTreeMap<(&str, u64), f64> {
    let mut best = BTreeMap::new();
    for rank in SEARCHED {
        for (run, value) in evidence.values(&format!("LoRA, rank {rank}"), NLL) {
            best.entry(run).and_modify(|b: &mut f64| *b = b.min(value)).or_insert(value);
        }
    }
    best
}

fn below(evidence: &Evidence, quantity: Quantity, other: &str) -> Judgement {
    let difference = evidence.difference(quantity, AUTO, other);
    let verdict = difference.below(0.0);
    Judgement::all([(difference, verdict)])
}

fn neither_end(evidence: &Evidence) -> Judgement {
    let shares: Vec<f64> = evidence.values(AUTO, PERCENT).into_values().collect();
    let verdict = match shares.len() {
        0 | 1 => Verdict::CannotBeSaid,
        _ if shares.iter().all(|share| (1.0..=90.0).contains(share)) => Verdict::Holds,
        _ => Verdict::Fails,
    };
    Judgement::all([(Paired::of("% of ranks: auto", &shares), verdict)])
}
