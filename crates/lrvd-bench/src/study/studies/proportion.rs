//! Final over initial rank.

use crate::study::design::{Arm, Claim, Column, Curves, Figure, Study};
use crate::study::evidence::{Evidence, Quantity};
use crate::study::verdict::{Judgement, Verdict};

const PERCENT: Quantity = Quantity::of("percent_rank");
const RANKS: Quantity = Quantity::of("total_rank");
const NLL: Quantity = Quantity::at("nll", 0.0);

/// Does the rank that is found depend on the rank that training begins with?
pub(super) const STUDY: Study = Study {
    name: "proportion",
    question: "How many ranks are left of 4, 8, 16 and 32 per module, a number or a share?",
    claims: &[
        Claim {
            id: "share",
            sentence: "The share of ranks that stays is about the same from r0 = 8 and 16, within 13 points",
            source: "paper, table 2 (the largest difference there is 12.5)",
            judge: |e| {
                let difference = e.difference(PERCENT, "r0 = 16", "r0 = 8");
                let verdict = difference.within(13.0);
                Judgement::all([(difference, verdict)])
            },
        },
        Claim {
            id: "number",
            sentence: "Not a share but a number is found: 32 per module end with at most a quarter more ranks than 16",
            source: "what \"learning the rank\" means",
            judge: number,
        },
        Claim {
            id: "quality",
            sentence: "Held-out NLL does not depend on the initial rank (8 to 32 within .02)",
            source: "ours",
            judge: |e| {
                Judgement::all(["r0 = 16", "r0 = 32"].map(|arm| {
                    let difference = e.difference(NLL, arm, "r0 = 8");
                    let verdict = difference.within(0.02);
                    (difference, verdict)
                }))
            },
        },
    ],
    arms: || {
        let arm = |r0: usize| {
            // The scale c = lora_alpha / r0 stays what it is at the recipe's rank.
            let set = [format!("initial_rank={r0}"), format!("lora_alpha={}", 2 * r0)];
            let set: Vec<&str> = set.iter().map(String::as_str).collect();
            Arm { value: Some(r0 as f64), ..Arm::new(format!("r0 = {r0}"), "bayeslora", &set) }
        };
        [4, 8, 16, 32].map(arm).to_vec()
    },
    analysis: None,
    columns: Column::COMMON,
    figures: &[
        Figure {
            name: "ranks",
            title: "Ranks left of all modules",
            x: "initial rank of a module",
            y: "ranks",
            log_x: true,
            curves: Curves::OverArms(&[("ranks", RANKS)]),
        },
        Figure {
            name: "nll",
            title: "Held-out NLL",
            x: "initial rank of a module",
            y: "nats",
            log_x: true,
            curves: Curves::OverArms(&[("k = 0", NLL), ("k = 10", Quantity::at("nll", 10.0))]),
        },
    ],
    notes: "The scale `c = lora_alpha / r0` is held at 2: otherwise another initial rank is another learning rate.",
};

/// Ranks from 32 less five quarters of those from 16, run by run.
fn number(evidence: &Evidence) -> Judgement {
    let (most, half) = (evidence.values("r0 = 32", RANKS), evidence.values("r0 = 16", RANKS));
    let excess: Vec<f64> =
        most.iter().filter_map(|(run, ranks)| Some(ranks - 1.25 * half.get(run)?)).collect();
    let name = "total_rank: r0 = 32 less 1.25 times r0 = 16";
    let paired = crate::study::Paired::of(name, &excess);
    // No rank from either is no number found.
    let empty = half.values().any(|&ranks| ranks == 0.0);
    let verdict = if empty { Verdict::CannotBeSaid } else { paired.below(0.0) };
    Judgement::all([(paired, verdict)])
}
