//! A run that is stopped and resumed is the run without a break, bit for bit.

use super::*;
use lrvd_burn::Error;
use lrvd_burn::train::{Examples, OptimizerOnPrune};
use rstest::rstest;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, Ordering};

/// The end of the name of a log-variance.
const NOISE: &str = "rank_log_sigma2";

/// Rows whose first reading is the moment of a stop request.
struct Interrupted<'a> {
    rows: &'a Rows<2>,
    stop: Option<&'a AtomicBool>,
}

impl Examples for Interrupted<'_> {
    type Input = Tensor<2>;

    fn len(&self) -> usize {
        self.rows.len()
    }

    fn input(&self, indices: &[usize]) -> Result<Tensor<2>, Error> {
        if let Some(stop) = self.stop {
            stop.store(true, Ordering::Relaxed);
        }
        self.rows.input(indices)
    }

    fn targets(&self, indices: &[usize]) -> Result<Targets, Error> {
        self.rows.targets(indices)
    }
}

/// Trains to the end without a break, and once more with a stop after every step and in every evaluation.
fn compare<T: Method<Net>>(start: impl Fn() -> Run<Net, T>) -> Run<Net, T> {
    // Three batches.
    let (validation, chosen_by) = (examples(8, 80), examples(9, 200));
    let folder = tempfile::tempdir().unwrap();
    let fit = |run: &mut Run<Net, T>, checkpoints: &Checkpoints, after_step, in_pass| {
        let stop = AtomicBool::new(false);
        let [validation, held_out] = [&validation, &chosen_by]
            .map(|rows| Interrupted { rows, stop: Some(&stop).filter(|_| in_pass) });
        let mut end = |event: &Event| {
            let is_last = after_step && matches!(event, Event::Step { .. });
            stop.fetch_or(is_last, Ordering::Relaxed);
        };
        let mut watch = Watch {
            validation: Some(&validation),
            held_out: Some(&held_out),
            checkpoints: Some(checkpoints),
            sink: Some(&mut end),
            stop: Some(&stop),
        };
        run.fit(&mut batches(&run.config), &mut watch).unwrap()
    };
    let mut whole = start();
    let checkpoints = Checkpoints::open(folder.path().join("whole")).unwrap();
    assert_eq!(fit(&mut whole, &checkpoints, false, false), Outcome::Finished);
    let mut interrupted = Vec::new();
    let mut done = 0;
    let broken = loop {
        let checkpoints = Checkpoints::open(folder.path().join("broken")).unwrap();
        let mut run = start();
        assert_eq!(run.resume(&checkpoints).unwrap(), done > 0);
        assert_eq!(run.state.done, done);
        let in_pass = interrupted.last() != Some(&done);
        if fit(&mut run, &checkpoints, true, in_pass) == Outcome::Finished {
            break run;
        }
        if run.state.done == done {
            interrupted.push(done);
        } else {
            done += 1;
        }
    };
    let steps = whole.steps();
    let due: Vec<usize> = (0..steps).step_by(whole.config.evaluate_every).chain([steps]).collect();
    assert_eq!((done, interrupted), (steps, due));
    assert!(numbers(&broken.state) == numbers(&whole.state));
    let best = |run: &Run<Net, T>| run.state.best.clone().unwrap();
    assert_eq!(best(&broken).info, best(&whole).info);
    assert!(parameters(&best(&broken).model) == parameters(&best(&whole).model));
    let mut journal = broken.state.journal.clone();
    let expected = &whole.state.journal;
    journal.train_seconds = expected.train_seconds;
    journal.evaluate_seconds = expected.evaluate_seconds;
    assert_eq!(&journal, expected);
    broken
}

#[rstest]
fn a_resumed_run_is_the_run_without_a_break_also_across_prunes(
    #[values(UpdatePhase::AfterUpdate, UpdatePhase::BeforeUpdate)] placement: UpdatePhase,
    #[values(OptimizerOnPrune::Slice, OptimizerOnPrune::Reset, OptimizerOnPrune::ResetIfChanged)]
    optimizer: OptimizerOnPrune,
) {
    let pruning = pruned().pruning.map(|p| Pruning { placement, optimizer, ..p });
    let run = compare(|| run(BayesLoraMethod { pruning, ..pruned() }, &config(10)));
    assert!((1..5).contains(&run.state.total_rank()));
}

/// 40 steps of a model of rank 5.
fn learning() -> TrainConfig {
    let mut config = config(40);
    config.groups.adapter.learning_rate = 0.05;
    config
}

/// A search for ranks in it, and six steps of refinement.
fn searching(margin: f64, refine_rate: f64) -> Run<Net, BayesLoraMethod> {
    let search = RankSearch { margin, refine_steps: 6, refine_rate, ..RankSearch::default() };
    run(pruned(), &learning()).searching(search).unwrap()
}

#[rstest]
#[case::within_a_margin(0.05, 2..=4)]
// Without the weakest direction this model is better than with it, by more than its rows leave open.
#[case::nothing_lost(0.0, 4..=4)]
#[case::the_fewest(1e3, 1..=1)]
fn a_search_for_ranks_resumes_across_the_cut(
    #[case] margin: f64,
    #[case] expected: RangeInclusive<usize>,
) {
    let run = compare(|| searching(margin, 0.2));
    assert_eq!((run.state.done, run.steps()), (46, 46));
    let choice = run.state.journal.choice.clone().unwrap();
    assert_eq!((choice.step, choice.rows, choice.points[0].total_rank), (40, 200, 5));
    assert_eq!((choice.points[0].difference, choice.points[0].upper), (0.0, 0.0));
    // The first size that fails, if there is one, is the last that is tried.
    let failed = choice.points.iter().position(|point| point.upper > margin);
    assert_eq!(choice.chosen, choice.points.len() - 1 - usize::from(failed.is_some()));
    assert!(failed.is_none_or(|place| place == choice.chosen + 1), "{choice:?}");
    assert_eq!(ranks(&run.state.model)[0].1, choice.total_rank());
    assert!(choice.refined.is_some(), "{choice:?}");
    // Evaluations after steps 44 and 46; those before the cut are of other ranks.
    assert_eq!(run.state.journal.candidates, 2);
    assert!(expected.contains(&choice.total_rank()), "{choice:?}");
    // The posterior was fitted. A draw may cost .01 nats: 2 · .01 · 30 rows over 6 + 8 entries a rank.
    let expected = 0.6 / (14 * choice.total_rank()) as f64;
    let weight = run.posterior().unwrap().unwrap().kl_weight.unwrap();
    assert!((weight / expected - 1.0).abs() < 1e-12, "{weight}");
    assert!(parameters(&run.state.model).iter().any(|(name, values)| {
        name.ends_with(NOISE) && values.iter().all(|&v| v != run.method.posterior.initial)
    }));
}

#[test]
fn the_whole_model_is_that_of_lora_bit_for_bit() {
    let (config, mut whole) = (learning(), searching(0.05, 0.2));
    let lora = Lora { rank: 5, lora_alpha: whole.method.posterior.lora_alpha, ..Lora::default() };
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
    assert_eq!((whole.state.done, weight), (40, None));
    let mut found = numbers(&whole.state);
    found.retain(|(name, _)| !name.ends_with(NOISE));
    assert!(found == numbers(&plain.state));
}

/// Without a refinement the state before the cut and the one after it are of the same step.
#[test]
fn the_state_after_a_cut_takes_the_place_of_that_before_it() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::open(folder.path().join("checkpoints")).unwrap();
    let held_out = examples(9, 200);
    let fitted = |stops: bool| {
        let search = RankSearch { margin: 0.05, refine_steps: 0, ..RankSearch::default() };
        let mut run = run(pruned(), &learning()).searching(search).unwrap();
        run.resume(&checkpoints).unwrap();
        let (stop, mut tried) = (AtomicBool::new(false), 0);
        let mut sink = |event: &Event| {
            if let Event::Searching { .. } = event {
                tried += 1;
                stop.store(stops, Ordering::Relaxed);
            }
        };
        let mut watch = Watch {
            held_out: Some(&held_out),
            checkpoints: Some(&checkpoints),
            sink: Some(&mut sink),
            stop: Some(&stop),
            ..Watch::default()
        };
        let outcome = run.fit(&mut batches(&learning()), &mut watch).unwrap();
        (outcome, tried, run.state.done, run.state.journal.choice.map(|choice| choice.total_rank()))
    };
    assert_eq!(fitted(true), (Outcome::Stopped, 1, 40, None));
    let (outcome, tried, done, rank) = fitted(false);
    assert!(tried > 1 && rank.is_some(), "{tried} {rank:?}");
    // The search is not repeated.
    assert_eq!(fitted(false), (outcome, 0, done, rank));
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
fn gradients_are_cut_with_their_tensors() {
    // Before the update, a prune that slices leaves an update of the pruned size to be made.
    let placement = UpdatePhase::BeforeUpdate;
    let pruning = pruned().pruning.map(|p| Pruning { placement, ..p });
    let run = trained(run(BayesLoraMethod { pruning, ..pruned() }, &config(6)));
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
