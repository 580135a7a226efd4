//! A run that is stopped and resumed is the run without a break, bit for bit.

use super::*;
use lrvd_burn::train::{AdaLora, OptimizerOnPrune};
use lrvd_core::adalora::AdaLoraConfig;
use rstest::rstest;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, Ordering};

/// The end of the name of a log-variance.
const NOISE: &str = "rank_log_sigma2";

/// Trains to the end without a break, and once more with a stop after every step. Returns the ranks in the end.
fn compare<T: Method<Net> + Clone>(method: &T, config: &TrainConfig, name: &str) -> usize {
    compare_runs(|| run(method.clone(), config), 0, name)
}

/// Validates on the first of `rows`, and searches ranks by the others.
fn watching<'a>(rows: &'a [Rows<2>; 2], kept: &'a Checkpoints) -> Watch<'a, Tensor<2>> {
    let (validation, held_out) = (Some(&rows[0] as _), Some(&rows[1] as _));
    Watch { validation, held_out, checkpoints: Some(kept), ..Watch::default() }
}

/// The last `held_out` rows take part after the cut of a search.
fn compare_runs<T: Method<Net>>(
    start: impl Fn() -> Run<Net, T>,
    held_out: usize,
    name: &str,
) -> usize {
    let rows = [examples(8, 12), examples(9, 200)];
    let batches = || {
        let order = OrderConfig { held_out, ..OrderConfig::shuffled(8) };
        Ordered::new(leaked(examples(7, 30)), order, start().config.seed).unwrap()
    };
    let mut whole = start();
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::open(folder.path().join("whole")).unwrap();
    let mut watch = watching(&rows, &checkpoints);
    assert_eq!(whole.fit(&mut batches(), &mut watch).unwrap(), Outcome::Finished);

    let folder = folder.path().join("broken");
    let stop = AtomicBool::new(true);
    let mut restarts = 0;
    let broken = loop {
        let checkpoints = Checkpoints::open(&folder).unwrap();
        let mut run = start();
        assert_eq!(run.resume(&checkpoints).unwrap(), restarts > 0);
        assert_eq!(run.state.done, restarts);
        let mut watch = Watch { stop: Some(&stop), ..watching(&rows, &checkpoints) };
        match run.fit(&mut batches(), &mut watch).unwrap() {
            Outcome::Stopped => restarts += 1,
            Outcome::Finished => break run,
        }
    };
    assert_eq!(restarts, whole.steps() - 1, "{name}");
    assert!(numbers(&broken.state) == numbers(&whole.state), "{name}");
    assert_eq!(whole.state.position.unwrap().merged, held_out > 0, "{name}");
    let (best, expected) =
        (broken.state.best.as_ref().unwrap(), whole.state.best.as_ref().unwrap());
    assert_eq!(best.info, expected.info, "{name}");
    assert!(parameters(&best.model) == parameters(&expected.model), "{name}");
    let (found, expected) = (&broken.state.journal, &whole.state.journal);
    assert_eq!(found.rank_events, expected.rank_events, "{name}");
    assert_eq!(found.history, expected.history, "{name}");
    assert_eq!(found.removed, expected.removed, "{name}");
    assert_eq!(found.choice, expected.choice, "{name}");
    broken.state.total_rank()
}

#[rstest]
fn a_resumed_run_is_the_run_without_a_break_also_across_prunes(
    #[values(Placement::AfterUpdate, Placement::BeforeUpdate)] placement: Placement,
    #[values(OptimizerOnPrune::Slice, OptimizerOnPrune::Reset, OptimizerOnPrune::ResetIfChanged)]
    optimizer: OptimizerOnPrune,
) {
    let pruning = pruned().pruning.map(|p| Pruning { placement, optimizer, ..p });
    let rank = compare(&BayesLora { pruning, ..pruned() }, &config(10), "pruned");
    assert!((1..5).contains(&rank), "{rank}");
}

/// 40 steps of a model of rank 5.
fn learning() -> TrainConfig {
    let mut config = config(40);
    config.groups.adapter.learning_rate = 0.05;
    config
}

/// A search for ranks in it, and six steps of refinement.
fn searching(margin: f64, refine_rate: f64) -> Run<Net, BayesLora> {
    let search = RankSearch { margin, refine_steps: 6, refine_rate, ..RankSearch::default() };
    run(pruned(), &learning()).searching(search).unwrap()
}

#[rstest]
#[case::within_a_margin(0.05, 2..=4)]
#[case::all(0.0, 5..=5)]
#[case::the_fewest(1e3, 1..=1)]
fn a_search_for_ranks_resumes_across_the_cut(
    #[case] margin: f64,
    #[case] expected: RangeInclusive<usize>,
) {
    let rank = compare_runs(|| searching(margin, 0.2), 6, "search");
    let held_out = examples(9, 200);
    let mut run = searching(margin, 0.2);
    let mut watch = Watch { held_out: Some(&held_out), ..Watch::default() };
    run.fit(&mut batches(&learning()), &mut watch).unwrap();
    assert_eq!((run.state.done, run.steps()), (46, 46));
    let choice = run.state.journal.choice.clone().unwrap();
    assert_eq!((choice.step, choice.rows, choice.points[0].total_rank), (40, 200, 5));
    assert_eq!((choice.points[0].difference, choice.points[0].upper), (0.0, 0.0));
    // Every size that is tried and is within the margin is at least as large as the one that is kept.
    let within = choice.points.iter().filter(|point| point.upper <= margin);
    assert_eq!(within.map(|point| point.total_rank).min(), Some(choice.total_rank()));
    assert_eq!(ranks(&run.state.model)[0].1, choice.total_rank());
    assert!(run.state.cut.is_none());
    assert!(expected.contains(&rank), "{choice:?}");
    // The posterior was fitted. A draw may cost .01 nats: 2 · .01 · 30 rows over 6 + 8 entries a rank.
    let expected = 0.6 / (14 * choice.total_rank()) as f64;
    let weight = run.posterior().unwrap().unwrap().kl_weight;
    assert!((weight / expected - 1.0).abs() < 1e-12, "{weight}");
    assert!(parameters(&run.state.model).iter().any(|(name, values)| {
        name.ends_with(NOISE) && values.iter().all(|&v| v != run.method.initial)
    }));
}

#[test]
fn the_whole_model_is_that_of_lora_bit_for_bit() {
    let (config, mut whole) = (learning(), searching(0.05, 0.2));
    let lora = Lora { rank: 5, lora_alpha: whole.method.lora_alpha, ..Lora::default() };
    let plain = trained(run(lora, &config));
    let stop = AtomicBool::new(false);
    let mut end = |event: &Event| {
        if let Event::Step { done: 40, .. } = event {
            stop.store(true, Ordering::Relaxed);
        }
    };
    let mut watch = Watch { sink: Some(&mut end), stop: Some(&stop), ..Watch::default() };
    assert_eq!(whole.fit(&mut batches(&config), &mut watch).unwrap(), Outcome::Stopped);
    let weight = whole.posterior().unwrap().unwrap().kl_weight;
    assert_eq!((whole.state.done, weight), (40, 0.0));
    let mut found = numbers(&whole.state);
    found.retain(|(name, _)| !name.ends_with(NOISE));
    assert!(found == numbers(&plain.state));
}

#[test]
fn a_refinement_that_does_harm_changes_the_variances_alone() {
    let held_out = examples(9, 200);
    let fitted = |refine_rate: f64, rows: &Rows<2>| {
        let mut run = searching(0.05, refine_rate);
        let mut notes = Vec::new();
        let mut note = |event: &Event| {
            if let Event::Note(text) = event {
                notes.push(text.clone());
            }
        };
        let mut watch = Watch { held_out: Some(rows), sink: Some(&mut note), ..Watch::default() };
        run.fit(&mut batches(&learning()), &mut watch).unwrap();
        let means = |(name, _): &(String, Vec<f64>)| !name.ends_with(NOISE);
        let (means, noise): (Vec<_>, Vec<_>) =
            parameters(&run.state.model).into_iter().partition(means);
        (means, noise, run.state.journal.choice.unwrap(), notes)
    };
    let (still, start, ..) = fitted(0.0, &held_out);
    let (means, noise, choice, notes) = fitted(100.0, &held_out);
    assert!(choice.refined.unwrap().upper > 0.05, "{choice:?}");
    assert!(notes.iter().any(|note| note.contains("before the refinement stay")), "{notes:?}");
    assert!(means == still);
    assert!(noise != start);
    let (means, _, choice, _) = fitted(0.2, &held_out);
    assert!(choice.refined.unwrap().upper <= 0.05, "{choice:?}");
    assert!(means != still);
    // Too few rows show nothing: no rank goes, and the means stay.
    let (means, _, choice, notes) = fitted(0.2, &examples(9, 99));
    assert_eq!((choice.total_rank(), choice.points.len()), (5, 1));
    assert!(notes.iter().any(|note| note.contains("99 held-out rows are too few")), "{notes:?}");
    assert!(means == fitted(0.0, &examples(9, 99)).0);
}

#[test]
fn a_run_that_turns_its_adapters_resumes_too() {
    let config = config(10);
    let turn = Some(Turn { after: 5, kl_factor: 0.5 });
    let method = BayesLora { turn, pruning: None, noise_rate_factor: 5.0, ..pruned() };
    assert_eq!(compare(&method, &config, "turned"), 5);
    let [turned, plain] =
        [turn, None].map(|turn| trained(run(BayesLora { turn, ..method.clone() }, &config)));
    assert!(numbers(&turned.state) != numbers(&plain.state));
    // The moments were reset by the rotation.
    let adapter = |name: &&String| name.contains("hidden");
    for name in turned.state.optimizer.state().keys().filter(adapter) {
        assert_eq!(turned.state.optimizer.state()[name].steps, 5, "{name}");
        assert_eq!(plain.state.optimizer.state()[name].steps, 10, "{name}");
    }
}

#[test]
fn methods_without_a_posterior_resume_too() {
    let config = config(9);
    assert_eq!(compare(&Lora { rank: 3, dropout: 0.2, ..Lora::default() }, &config, "LoRA"), 3);
    let schedule = AdaLoraConfig {
        init_r: 5,
        target_r: 2,
        tinit: 1,
        tfinal: 2,
        delta_t: 1,
        total_step: config.steps as u32,
        beta1: 0.85,
        beta2: 0.85,
        orth_reg_weight: 0.5,
    };
    for placement in [Placement::AfterUpdate, Placement::BeforeUpdate] {
        let method = AdaLora::new(schedule, 16.0, 0.0, placement).unwrap();
        assert_eq!(compare(&method, &config, "AdaLoRA"), 2);
    }
}

#[test]
fn gradients_are_cut_with_their_tensors() {
    // Before the update, a prune that slices leaves an update of the pruned size to be made.
    let placement = Placement::BeforeUpdate;
    let pruning = pruned().pruning.map(|p| Pruning { placement, ..p });
    let run = trained(run(BayesLora { pruning, ..pruned() }, &config(6)));
    let events = &run.state.journal.rank_events;
    let [first, prune] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!((first.total_rank, prune.step), (5, 4));
    assert!((1..5).contains(&prune.total_rank), "{prune:?}");
    assert_eq!(ranks(&run.state.model)[0].1 as u64, prune.total_rank);
    // The step of the prune took part: every moment has seen six updates.
    for (name, moments) in run.state.optimizer.state() {
        assert_eq!(moments.steps, 6, "{name}");
    }
}
