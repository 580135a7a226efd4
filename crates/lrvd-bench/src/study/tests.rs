#![allow(clippy::unwrap_used)]

use std::sync::atomic::AtomicBool;

use super::*;
use crate::progress::Silent;
use crate::record::Measurement;

/// Evidence in which every arm of `study` has `value` of `quantity` with seeds 1, 2 and so on.
fn made_up(
    study: &Study,
    seeds: u64,
    quantity: Quantity,
    value: impl Fn(&str, u64) -> f64,
) -> Evidence {
    let mut evidence = Evidence::new((study.arms)());
    for arm in evidence.arms.clone() {
        for seed in 1..=seeds {
            let found = value(&arm.label, seed);
            let found =
                Measurement { metric: quantity.metric.to_owned(), at: quantity.at, value: found };
            let (arm, task) = (arm.label.clone(), "sst2".to_owned());
            evidence.observations.push(Observation { arm, task, seed, found });
        }
    }
    evidence
}

fn verdict(study: &str, claim: &str, evidence: &Evidence) -> Verdict {
    let study = named(study).unwrap();
    let claim = study.claims.iter().find(|c| c.id == claim).unwrap();
    (claim.judge)(evidence).verdict
}

#[test]
fn every_study_can_be_planned_and_names_everything_once() {
    for study in STUDIES {
        for size in Size::ALL {
            let options = StudyOptions { size, ..StudyOptions::new(study, "unused".into()) };
            let plan = plan_study(&options).unwrap();
            assert_eq!(plan.runs, plan.arms.len() * size.seeds().len(), "{}", study.name);
            assert!(plan.seconds > 0.0 && plan.render_text().contains(&plan.arms[0].0));
            for (_, arm) in &plan.arms {
                let config = &arm.settings;
                assert_eq!((config.steps, config.train_rows), (size.steps(), Some(8000)));
            }
        }
        let once = |mut names: Vec<String>| {
            let n = names.len();
            names.sort();
            names.dedup();
            assert_eq!(names.len(), n, "{}: {names:?}", study.name);
        };
        once((study.arms)().into_iter().map(|arm| arm.label).collect());
        once(study.claims.iter().map(|claim| claim.id.to_owned()).collect());
        once(study.figures.iter().map(|figure| figure.name.to_owned()).collect());
        // No number, no verdict; and no claim that asks for what is not there.
        for claim in study.claims {
            let judgement = (claim.judge)(&Evidence::new((study.arms)()));
            assert_eq!(judgement.verdict, Verdict::CannotBeSaid, "{}/{}", study.name, claim.id);
        }
    }
    let error = named("betta").err().unwrap().to_string();
    assert!(error.starts_with("unknown study `betta`") && error.contains("did you mean `beta`?"));
}

#[test]
fn two_standard_errors_decide() {
    use Verdict::{CannotBeSaid, Fails, Holds};
    let of = |values: &[f64]| Paired::of("x", values);
    // Mean -2, standard error 0.577.
    let down = of(&[-1.0, -2.0, -3.0]);
    assert_eq!((down.below(0.0), down.above(0.0)), (Holds, Fails));
    assert_eq!((down.below(-1.5), down.within(4.0)), (CannotBeSaid, Holds));
    assert_eq!((down.within(0.5), down.within(1.5)), (Fails, CannotBeSaid));
    assert_eq!((of(&[-9.0]).below(0.0), of(&[]).below(0.0)), (CannotBeSaid, CannotBeSaid));
    assert_eq!(down.to_string(), "x: -2.0000 ± 0.5774 (3 runs)");
    assert_eq!(Verdict::all([Holds, CannotBeSaid, Fails]), Fails);
    assert_eq!(Verdict::all([Holds, CannotBeSaid]), CannotBeSaid);
    assert_eq!(Verdict::any([Fails, CannotBeSaid, Holds]), Holds);
    assert_eq!(Verdict::any([Fails, CannotBeSaid]), CannotBeSaid);
}

#[test]
fn differences_are_paired_by_run() {
    let study = named("beta").unwrap();
    // Seeds differ by far more than arms do: only pairs can tell.
    let nll = |arm: &str, seed: u64| {
        100.0 * seed as f64 + if arm == "LoRA" { 0.02 } else { 0.0 } + 1e-4 * (seed % 2) as f64
    };
    let mut evidence = made_up(study, 3, Quantity::at("nll", 0.0), nll);
    assert_eq!(verdict("beta", "regularises", &evidence), Verdict::Holds);
    // A seed that one arm lacks counts for neither.
    evidence.observations.retain(|o| o.arm != "LoRA" || o.seed == 2);
    let paired = evidence.difference(Quantity::at("nll", 0.0), "kl_weight 0.03", "LoRA");
    assert_eq!((paired.pairs, paired.error), (1, None));
    assert!((paired.mean.unwrap() + 0.02).abs() < 1e-9);
    assert_eq!(verdict("beta", "regularises", &evidence), Verdict::CannotBeSaid);
}

#[test]
fn claims_hold_and_fail_by_made_up_numbers() {
    let wobble = |seed: u64| 1e-3 * (seed % 2) as f64;
    let check = |study: &str,
                 claim: &str,
                 quantity: Quantity,
                 holds: &dyn Fn(&str) -> f64,
                 fails: &dyn Fn(&str) -> f64| {
        for (value, wanted) in [(holds, Verdict::Holds), (fails, Verdict::Fails)] {
            let evidence =
                made_up(named(study).unwrap(), 3, quantity, |arm, seed| value(arm) + wobble(seed));
            assert_eq!(verdict(study, claim, &evidence), wanted, "{study}/{claim}");
        }
    };
    let percent = Quantity::of("percent_rank");
    let is = |wanted: &'static str, there: f64, else_: f64| {
        move |arm: &str| if arm == wanted { there } else { else_ }
    };
    check("beta", "published", percent, &is("kl_weight 0.008", 97.0, 0.0), &is("", 0.0, 50.0));
    check("beta", "bound", percent, &is("kl_weight 1", 0.0, 60.0), &is("", 0.0, 50.0));
    check("proportion", "share", percent, &is("r0 = 16", 55.0, 60.0), &is("r0 = 16", 20.0, 60.0));
    let ranks = Quantity::of("total_rank");
    check("proportion", "number", ranks, &is("", 0.0, 60.0), &is("r0 = 32", 120.0, 60.0));
    check("tau", "ranks", percent, &is("", 0.0, 60.0), &is("log_alpha_threshold 5", 90.0, 60.0));
    let nll = Quantity::at("nll", 10.0);
    check(
        "schemes",
        "weights",
        nll,
        &is("weight-per-sequence", 0.5, 0.6),
        &is("weight-per-sequence", 0.7, 0.6),
    );
    check(
        "families",
        "elements",
        nll,
        &is("one per element", 0.6, 0.6),
        &is("one per element", 0.5, 0.6),
    );
    check(
        "families",
        "multiplicative",
        percent,
        &is("noise to signal", 100.0, 3.0),
        &is("noise to signal", 90.0, 3.0),
    );
    // One quantity on top of another, the same for all arms.
    let check = |study: &str, claim: &str, base: (Quantity, f64), other: (Quantity, [f64; 2])| {
        for (value, wanted) in other.1.into_iter().zip([Verdict::Holds, Verdict::Fails]) {
            let mut evidence = made_up(named(study).unwrap(), 3, base.0, |_, _| base.1);
            let more = made_up(named(study).unwrap(), 3, other.0, |_, seed| value + wobble(seed));
            evidence.observations.extend(more.observations);
            assert_eq!(verdict(study, claim, &evidence), wanted, "{study}/{claim}");
        }
    };
    let own = Quantity::of("energy: own statistic");
    check("symmetry", "magnitude", (Quantity::of("energy: magnitude"), 0.7), (own, [0.8, 0.6]));
    let (leaves, stays) = ("leaves by rotation", "leaves by permutation");
    check("symmetry", "theorem", (Quantity::of(stays), 0.0), (Quantity::of(leaves), [0.3, 0.0]));
    let by = |at| Quantity::at("nll by own statistic", at);
    check("symmetry", "carry", (by(192.0), 0.5), (by(24.0), [0.5, 0.6]));
    check(
        "symmetry",
        "lora",
        (Quantity::at("nll by singular value", 192.0), 0.5),
        (Quantity::at("nll by singular value", 24.0), [0.6, 0.5]),
    );
    check("k", "nll", (Quantity::at("nll", 0.0), 0.6), (nll, [0.5, 0.7]));
    // Nothing left of either is no number found.
    let empty = made_up(named("proportion").unwrap(), 3, ranks, |_, _| 0.0);
    assert_eq!(verdict("proportion", "number", &empty), Verdict::CannotBeSaid);
}

static STUDY: Study = Study {
    name: "two-arms",
    question: "Does it run?",
    claims: &[Claim {
        id: "it",
        sentence: "It does",
        source: "ours",
        judge: |e| {
            let difference =
                e.difference(Quantity::at("nll", 0.0), "initial_rank 2", "initial_rank 4");
            let verdict = difference.below(1e3);
            Judgement::all([(difference, verdict)])
        },
    }],
    arms: || Arm::sweep("initial_rank", &[2.0, 4.0]),
    analysis: Some(&orders::Symmetry),
    columns: Column::COMMON,
    figures: &[Figure {
        name: "nll",
        title: "NLL",
        x: "rank",
        y: "nats",
        log_x: true,
        curves: Curves::OverArms(&[("k = 0", Quantity::at("nll", 0.0))]),
    }],
    notes: "A note.",
};

#[test]
fn a_study_writes_its_page_and_goes_on_after_an_interruption() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let set = ["train_rows=48", "draws=[1]", "max_length=16", "target_modules=[\"query_proj\"]"];
    let mut options = StudyOptions {
        steps: Some(4),
        set: set.map(str::to_owned).to_vec(),
        command: "lrvd study two-arms".to_owned(),
        ..StudyOptions::new(&STUDY, out.clone())
    };
    let stopped = run_study(&options, &AtomicBool::new(true), &mut Silent).unwrap();
    assert_eq!((stopped.complete, stopped.finished, stopped.planned), (false, 0, 2));
    assert!(std::fs::read_to_string(&stopped.page).unwrap().contains("**Incomplete**"));
    let again = run_study(&options, &AtomicBool::new(false), &mut Silent).unwrap_err().to_string();
    assert!(again.contains("--resume"), "{again}");

    options.resume = true;
    let whole = run_study(&options, &AtomicBool::new(false), &mut Silent).unwrap();
    assert_eq!((whole.complete, whole.finished), (true, 2));
    let page = std::fs::read_to_string(&whole.page).unwrap();
    for part in [
        "| It does | ours | **cannot be said here** |",
        "2 of 2 runs",
        "two-arms-nll.svg",
        "A note.",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    let table = std::fs::read_to_string(&whole.table).unwrap();
    assert!(table.starts_with("arm,task,seed,metric,at,value\ninitial_rank 2,sst2,1,parameters,,"));
    check_orders(&table);
    let image = std::fs::read_to_string(&whole.figures[0]).unwrap();
    assert!(image.starts_with("<svg") && image.contains("polyline"), "{image}");

    // All of it again, out of the folder.
    assert_eq!(run_study(&options, &AtomicBool::new(false), &mut Silent).unwrap().rows, whole.rows);
    options.steps = Some(5);
    let other = run_study(&options, &AtomicBool::new(false), &mut Silent).unwrap_err().to_string();
    assert!(other.contains("other settings"), "{other}");
}

/// What orders have in common in `table`: nothing kept is nothing kept, and everything is the model as it is.
fn check_orders(table: &str) {
    let value = |start: String| -> f64 {
        let line = table.lines().find_map(|line| line.strip_prefix(&start));
        line.unwrap_or_else(|| panic!("{start}")).parse().unwrap()
    };
    for (arm, total) in [("initial_rank 2", 8), ("initial_rank 4", 16)] {
        let of = |metric: &str, at: &str| value(format!("{arm},sst2,1,{metric},{at},"));
        let total = total.to_string();
        let (whole, empty) = (of("nll", "0"), of("nll at random", "0"));
        assert!((whole - empty).abs() > 1e-6, "{whole} {empty}");
        for by in [
            "nll by own statistic",
            "nll by magnitude",
            "nll by sensitivity",
            "nll at random",
            "nll by singular value",
        ] {
            assert!((of(by, &total) - whole).abs() < 1e-4, "{arm} {by}");
            assert!((of(by, "0") - empty).abs() < 1e-6, "{arm} {by}");
        }
        let area = |name: &str| of(&format!("energy: {name}"), "");
        for name in ["own statistic", "magnitude", "sensitivity", "random"] {
            assert!(area(name) <= area("svd") + 1e-9, "{arm} {name}");
        }
        assert!(of("leaves by permutation", "") < 1e-9 && of("leaves by scaling", "") > 0.5);
    }
}
