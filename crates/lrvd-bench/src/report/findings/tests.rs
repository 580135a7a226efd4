//! Sentences: where they appear, and where they do not.

use lrvd_burn::train::{Choice, ChoicePoint, LossMeasure};

use super::super::summary::{RowScores, key};
use super::*;
use crate::record::sample::{plan_runs, sample_results, set_accuracy};
use crate::record::{ParameterCounts, Results, RunStatus};

/// LoRA and BayesLoRA on RTE with these accuracies.
fn two(lora: [f64; 3], bayes: [f64; 3]) -> Results {
    let mut results = sample_results();
    results.runs.retain(|run| run.method != "AdaLoRA" && run.task == "rte");
    set_accuracy(&mut results, "rte", 0.5, [("LoRA", lora), ("BayesLoRA", bayes)]);
    results
}

fn change_ranks(results: &mut Results, change: impl Fn(&ModuleName, u32) -> u32) {
    for last in results.runs.iter_mut().filter_map(|run| run.checkpoints.last.as_mut()) {
        last.ranks
            .iter_mut()
            .for_each(|(path, rank)| *rank = change(&ModuleName::parse(path), *rank));
        let total: u32 = last.ranks.values().sum();
        last.average_rank = f64::from(total) / last.ranks.len() as f64;
    }
}

/// Sizes that are matched, on CoLA one of a third of what it is matched to; the rows and steps of a search; a run too few.
fn match_sizes(results: &mut Results) {
    results.config = Value::Null;
    for run in &mut results.runs {
        let learns = run.method == "BayesLoRA";
        let is_small = (&*run.method, &*run.task, run.seed) == ("LoRA", "cola", 2);
        let size = if learns { 41_440 } else { 41_472 };
        let adapter = if is_small { 13_824 } else { size };
        run.trainable_parameters = ParameterCounts { adapter, ..ParameterCounts::default() };
        if learns {
            (run.train_rows, run.held_out_rows) = (4461, 496);
            run.choice = Some(Choice {
                step: 700,
                rows: 496,
                measure: LossMeasure::default(),
                margin: 0.01,
                points: vec![ChoicePoint::default()],
                chosen: 0,
                refined: None,
            });
        } else {
            run.rank_budget.note = "parameters matched to BayesLoRA".into();
        }
    }
    plan_runs(results);
    results.runs.retain(|run| (&*run.method, &*run.task, run.seed) != ("AdaLoRA", "rte", 3));
}

/// Two methods more than `five` has, of which the best two are alike.
fn two_best_of_five(mut five: Results) -> Results {
    for (name, accuracy) in [("A", 0.6), ("B", 0.7)] {
        let copies: Vec<RunRecord> =
            five.runs.iter().filter(|run| run.method == "LoRA").cloned().collect();
        let named = |run| RunRecord { method: name.to_owned(), ..run };
        five.runs.extend(copies.into_iter().map(named));
        let values = [0.001, -0.001, 0.0].map(|shift| accuracy + shift);
        set_accuracy(&mut five, "rte", 0.5, [(name, values)]);
    }
    set_accuracy(&mut five, "rte", 0.5, [("AdaLoRA", [0.901, 0.902, 0.897])]);
    for run in &mut five.runs {
        run.held_out_rows = 500;
        // More methods than those of the first table are compared at their draws.
        let at = &mut run.checkpoints;
        for checkpoint in [&mut at.last, &mut at.best].into_iter().flatten() {
            checkpoint.metrics.retain(|k, _| *k == 0);
        }
    }
    five
}

/// Results by what they show.
fn cases() -> Vec<(&'static str, Results)> {
    let mut cases = vec![
        // Differences of .02, .01 and 0: the mean is .01, its standard error .00577, and 4.303 of them .0248.
        ("two alike", two([0.80, 0.82, 0.84], [0.82, 0.83, 0.84])),
        // .39 ± 4.303 · .00577
        ("a best of two", two([0.50, 0.52, 0.51], [0.90; 3])),
    ];
    let mut results = sample_results();
    results.runs.retain(|run| run.task == "rte");
    let accuracies = [
        ("LoRA", [0.50, 0.51, 0.49]),
        ("AdaLoRA", [0.80, 0.811, 0.789]),
        ("BayesLoRA", [0.90, 0.905, 0.895]),
    ];
    set_accuracy(&mut results, "rte", 0.5, accuracies);
    cases.push(("a best of three", results.clone()));
    cases.push(("a best two of five", two_best_of_five(results.clone())));
    let mut alike = results.clone();
    let accuracies = [
        ("LoRA", [0.82, 0.81, 0.83]),
        ("AdaLoRA", [0.80, 0.811, 0.84]),
        ("BayesLoRA", [0.84, 0.80, 0.83]),
    ];
    set_accuracy(&mut alike, "rte", 0.5, accuracies);
    cases.push(("three alike", alike));
    results.runs.retain(|run| run.method != "LoRA" || run.seed == 1);
    set_accuracy(&mut results, "rte", 0.5, [("LoRA", [1.0; 3])]);
    results.runs.retain(|run| run.method != "AdaLoRA" || run.seed < 3);
    cases.push(("one seed of the highest mean", results.clone()));
    for run in results.runs.iter_mut().filter(|run| run.method == "LoRA") {
        run.status = RunStatus::Failed { reason: "loss is NaN at step 3".into() };
        run.rank_budget.requested = Some(2.0);
        run.rank_budget.note = "as the settings ask".into();
    }
    cases.push(("a failed method", results.clone()));
    let failed: Vec<RunRecord> =
        results.runs.iter().filter(|run| run.method == "LoRA").cloned().collect();
    for name in ["a", "b", "c", "d"] {
        results.runs.extend(failed.iter().cloned().map(|run| RunRecord {
            method: name.into(),
            steps: 900,
            ..run
        }));
    }
    results.data.get_mut("rte").unwrap().train.origin = DataOrigin::LocalDev;
    cases.push(("many failed methods", results));
    let mut results = sample_results();
    for run in results.runs.iter_mut().filter(|run| run.method != "BayesLoRA") {
        run.rank_budget.requested = Some(2.0);
        run.rank_budget.note = "rank matched to BayesLoRA".into();
        run.checkpoints.candidates = 5;
    }
    results.config = json!({ "experiment": { "checkpoint": "best" } });
    cases.push(("a matched rank, the best checkpoint", results.clone()));
    match_sizes(&mut results);
    cases.push(("matched sizes, one run missing", results));
    // Layers have 0 + ⅓ to 3 + ⅓; query and ffn out 1.5, value 2.5; all seeds agree.
    let mut results = sample_results();
    results.runs.retain(|run| run.method == "BayesLoRA" && run.task == "rte");
    change_ranks(&mut results, |name, _| name.layer.unwrap_or(0) + u32::from(name.kind == "value"));
    cases.push(("ranks that all seeds share", results.clone()));
    // One seed has a rank more in one module: the layers still differ.
    let ranks = &mut results.runs[0].checkpoints.last.as_mut().unwrap().ranks;
    *ranks.values_mut().next().unwrap() += 1;
    cases.push(("ranks that differ by layer", results.clone()));
    for rank in results.runs[0].checkpoints.last.as_mut().unwrap().ranks.values_mut() {
        *rank = 4 - (*rank).min(4);
    }
    cases.push(("ranks that a seed has the other way round", results.clone()));
    let ranks = &mut results.runs[0].checkpoints.last.as_mut().unwrap().ranks;
    ranks.retain(|path, _| ModuleName::parse(path).layer != Some(0));
    cases.push(("a layer that one seed lacks", results.clone()));
    change_ranks(&mut results, |_, _| 0);
    cases.push(("no ranks", results));
    let mut results = two([0.5; 3], [0.9; 3]);
    let data = results.data.get_mut("rte").unwrap();
    data.train.origin = DataOrigin::Generated;
    data.validation.rows = 400;
    cases.push(("seeds that agree, generated training data", results.clone()));
    results.data.get_mut("rte").unwrap().validation.origin = DataOrigin::Generated;
    results.runs.retain(|run| run.seed == 1);
    cases.push(("generated data, one seed", results.clone()));
    results.runs.clear();
    cases.push(("no run", results));
    for (case, results) in &mut cases {
        if !case.contains("missing") {
            plan_runs(results);
        }
    }
    cases
}

fn in_print(results: &Results) -> String {
    let rows = RowScores::default();
    let Findings { ran, rule, budgets, scores, ranks, .. } =
        Findings::new(&Summary::new(results, &rows)).unwrap();
    format!("    {ran}\n    {rule}\n    {budgets:?}\n    {scores:#?}\n    {ranks:?}\n")
}

#[test]
fn sentences_say_what_was_run_and_found() {
    let cases = cases();
    let in_case = |(case, results): &(&str, Results)| format!("{case}\n{}", in_print(results));
    let shown = cases.iter().map(in_case).collect::<Vec<_>>().concat();
    insta::assert_snapshot!(shown);
}

#[test]
fn rows_are_said_to_be_the_measured_ones_only_where_they_are_not_known() {
    let results = two([0.5; 3], [0.9; 3]);
    let mut rows = RowScores::default();
    for seed in 1..=3 {
        for (method, n) in [("LoRA", 5), ("BayesLoRA", 9)] {
            let right = (0..10).map(|i| f64::from(u8::from(i < n)));
            let key = key(CheckpointChoice::Last, "rte", method, seed, Metric::ACCURACY);
            rows.0.insert(key, right.collect());
        }
    }
    let summary = Summary::new(&results, &rows);
    // The rows alone: .4 ± 2.262 · √(.4 · .6/9); scipy.stats.t.
    assert_eq!(
        Findings::new(&summary).unwrap().scores,
        [
            "RTE. Accuracy: BayesLoRA is best at 0.900 and differs significantly from the other method: BayesLoRA less LoRA \
          +0.4000 (95 % interval 0.0306 to 0.7694, p .037)."
        ]
    );
}

/// The words of every template, between what it puts in.
fn words() -> BTreeSet<String> {
    let texts = TEMPLATES.lines().filter(|line| !line.starts_with("## ")).flat_map(|line| {
        line.split('{').map(|part| part.rsplit('}').next().unwrap_or_default().trim().to_owned())
    });
    texts.filter(|text| text.len() > 4 && text.contains(' ')).collect()
}

#[test]
fn every_template_appears_in_some_case_and_not_in_all() {
    let shown: Vec<String> = cases().iter().map(|(_, results)| in_print(results)).collect();
    let words = words();
    assert!(words.len() > 30, "{words:?}");
    for part in words {
        let n = shown.iter().filter(|text| text.contains(&part)).count();
        assert!(n > 0 && n < shown.len(), "`{part}` appears in {n} of {} cases", shown.len());
    }
}

#[test]
fn a_best_checkpoint_names_what_it_was_chosen_from() {
    let mut results = two([0.5; 3], [0.9; 3]);
    for run in &mut results.runs {
        run.checkpoints.candidates = if run.method == "LoRA" { 3 } else { 1 };
    }
    let words = Findings::new(&Summary::of_last(&results)).unwrap().candidates.unwrap();
    let expected =
        "Evaluations that the best checkpoint is chosen from: 3 of LoRA, 1 of BayesLoRA.";
    assert_eq!(words, expected);
}
