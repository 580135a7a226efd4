//! A run that is stopped and resumed is the run without a break, bit for bit.

use std::sync::atomic::AtomicBool;

use lrvd_burn::burn::tensor::Tensor;
use lrvd_burn::model::ranks;
use lrvd_burn::train::{
    AdaLora, BayesLora, Checkpoints, KlPath, LabelledRows, Lora, MaskPlacement, Method,
    OptimizerOnPrune, Outcome, Progress, PrunePlacement, Pruning, Run, Targets, TrainConfig,
    TrainError, Turn, Watch,
};
use lrvd_core::adalora::AdaLoraConfig;
use lrvd_core::prune::{
    PathTolerance, PruneRule, PruneSchedule, StatisticAggregate, StatisticOptions,
};

use crate::net::{Net, batches, config, examples, net, numbers, pruned, run, targets};

/// Trains to the end without a break, and once more with a stop after every step.
fn compare<T: Method<Net> + Clone>(method: &T, config: &TrainConfig, name: &str) -> usize {
    let (validation, against) = (examples(8, 12), contrary());
    let start = || Run::new(net(), method.clone(), &targets(), config).unwrap();
    // What chooses has rows that take part after the choice.
    let kept_back = if method.chooses().is_some() { 6 } else { 0 };
    let batches = || batches(config).keeping_back(kept_back).unwrap();
    let mut whole = start();
    let folder = tempfile::tempdir().unwrap();
    let never = folder.path().join("whole");
    let checkpoints = Checkpoints::open(&never).unwrap();
    let mut watch =
        Watch::default().validating(&validation).choosing_by(&against).keeping(&checkpoints);
    assert_eq!(whole.fit(&mut batches(), &mut watch).unwrap(), Outcome::Finished);

    let folder = folder.path().join("broken");
    let stop = AtomicBool::new(true);
    let mut restarts = 0;
    let broken = loop {
        let checkpoints = Checkpoints::open(&folder).unwrap();
        let mut run = start();
        assert_eq!(run.resume(&checkpoints).unwrap(), restarts > 0);
        assert_eq!(run.state.done, restarts);
        let watch =
            Watch::default().validating(&validation).choosing_by(&against).keeping(&checkpoints);
        let mut watch = watch.stopping_at(&stop);
        match run.fit(&mut batches(), &mut watch).unwrap() {
            Outcome::Stopped => restarts += 1,
            Outcome::Finished => break run,
        }
    };
    assert_eq!(restarts, config.steps - 1, "{name}");
    assert_eq!(numbers(&broken.state), numbers(&whole.state), "{name}");
    assert_eq!(whole.state.position["taken_in"].is_number(), kept_back > 0, "{name}");
    let (best, wanted) = (broken.state.best.as_ref().unwrap(), whole.state.best.as_ref().unwrap());
    assert_eq!(best.info, wanted.info, "{name}");
    assert_eq!(crate::net::parameters(&best.model), crate::net::parameters(&wanted.model));
    let (found, wanted) = (&broken.state.journal, &whole.state.journal);
    assert_eq!(found.rank_events, wanted.rank_events, "{name}");
    assert_eq!(found.history, wanted.history, "{name}");
    assert_eq!(found.removed, wanted.removed, "{name}");
    assert_eq!(found.choice, wanted.choice, "{name}");
    broken.method.ranks(&broken.state.model).values().sum()
}

#[test]
fn a_resumed_run_is_the_run_without_a_break_also_across_prunes() {
    let config = config(10);
    for placement in [PrunePlacement::AfterUpdate, PrunePlacement::BeforeUpdate] {
        for optimizer in
            [OptimizerOnPrune::Slice, OptimizerOnPrune::Reset, OptimizerOnPrune::ResetIfChanged]
        {
            let pruning = pruned().pruning.map(|p| Pruning { placement, optimizer, ..p });
            let rank = compare(
                &BayesLora { pruning, ..pruned() },
                &config,
                &format!("{placement:?} {optimizer:?}"),
            );
            assert!((1..5).contains(&rank), "{placement:?} {optimizer:?}: {rank}");
        }
    }
}

/// Rows of the next class, whose loss rises with what is learnt, so that early models are best.
fn contrary() -> LabelledRows<2> {
    let LabelledRows { inputs, targets } = examples(8, 12);
    let Targets::Classes(one_hot) = targets else { panic!("{targets:?}") };
    let columns: Vec<Tensor<2>> =
        [2, 0, 1].map(|class| one_hot.clone().narrow(1, class, 1)).to_vec();
    LabelledRows::new(inputs.0, Targets::Classes(Tensor::cat(columns, 1)))
}

#[test]
fn a_choice_takes_up_an_earlier_model_and_resumes_too() {
    let config = config(10);
    // Candidates after steps 2, 4, 6 and 8, at ever more noise; a tolerance of nothing takes the best.
    let schedule = PruneSchedule::new(2, 2, Some(8)).unwrap();
    let rule = PruneRule::new(6.0, 1).unwrap();
    let pruning = pruned().pruning.map(|p| Pruning { schedule, rule, ..p });
    let choosing = |nats| {
        let tolerance = PathTolerance { standard_errors: 0.0, nats, ..PathTolerance::default() };
        let (without, earned, rows_per_entry) = (0.0, 0.1, 1.0);
        let progress = Progress::Rising { since: 2, without, earned, rows_per_entry };
        let (low, high, steps, until, log_alpha) = (1.0, 10.0, 6, 8, -4.0);
        let path = KlPath { low, high, steps, until, log_alpha, tolerance, progress };
        BayesLora { pruning, path: Some(path), ..pruned() }
    };
    let mut ranks = Vec::new();
    for (nats, name) in [(0.0, "the best"), (1e3, "the smallest")] {
        assert!(compare(&choosing(nats), &config, name) > 0);
        let mut run = run(choosing(nats), &config);
        let held_out = contrary();
        run.fit(&mut batches(&config), &mut Watch::default().choosing_by(&held_out)).unwrap();
        let choice = run.state.journal.choice.clone().unwrap();
        let chosen = choice.point();
        let wanted = choice.points.iter().map(|p| p.loss).fold(f64::INFINITY, f64::min);
        assert_eq!(choice.points[choice.best].loss, wanted);
        let smallest = choice.points.iter().map(|p| p.total_rank).min().unwrap();
        assert_eq!(chosen.total_rank, if nats > 0.0 { smallest } else { chosen.total_rank });
        assert_eq!(lrvd_burn::model::ranks(&run.state.model)[0].1, choice.total_rank());
        // The cut begins with the whole and keeps what no prune may take.
        let cut: Vec<usize> = choice.cuts.iter().map(|cut| cut.total_rank).collect();
        assert!(cut[0] == chosen.total_rank && cut.iter().all(|&rank| rank >= 1), "{cut:?}");
        // Three in a row that are not good enough are the last ones.
        assert!(cut.len() <= choice.cut + 4, "{cut:?} {}", choice.cut);
        // The weight stays where the chosen model had it.
        assert_eq!(run.kl_weight(), chosen.kl_weight);
        assert!(run.state.candidates.is_empty());
        ranks.push(chosen.total_rank);
    }
    assert!(ranks[1] < ranks[0], "{ranks:?}");
    let mut alone = run(choosing(0.0), &config);
    let error = alone.fit(&mut batches(&config), &mut Watch::default()).unwrap_err();
    assert!(matches!(error, TrainError::NoHeldOut), "{error}");
    let endless = BayesLora { pruning: pruned().pruning, ..choosing(0.0) };
    assert!(endless.check().unwrap_err().to_string().contains("`path`"));
}

#[test]
fn a_path_begins_once_the_adapters_earn_something() {
    let mut config = config(40);
    config.groups.adapter.learning_rate = 0.05;
    let schedule = PruneSchedule::new(2, 2, Some(30)).unwrap();
    let rule = PruneRule::new(0.0, 0).unwrap();
    let statistic =
        StatisticOptions { aggregate: StatisticAggregate::Energy, ..Default::default() };
    let pruning = Some(Pruning { rule, statistic, ..Pruning::at(schedule) });
    let tolerance = PathTolerance { standard_errors: 0.0, ..PathTolerance::default() };
    let progress = Progress::Learning;
    let (low, high, steps, until, log_alpha) = (0.1, 5.0, 28, 20, -4.0);
    let path = Some(KlPath { low, high, steps, until, log_alpha, tolerance, progress });
    let method = BayesLora { pruning, path, noise_rate_factor: 5.0, ..pruned() };
    assert_eq!(compare(&method, &config, "what is not learnt"), 5);
    let fitted = |held_out: &LabelledRows<2>| {
        let mut run = run(method.clone(), &config);
        run.fit(&mut batches(&config), &mut Watch::default().choosing_by(held_out)).unwrap();
        let choice = run.state.journal.choice.clone().unwrap();
        (run, choice.points)
    };

    let (run, points) = fitted(&examples(8, 200));
    let learning = points.iter().take_while(|point| point.kl_weight == 0.0).count();
    assert!((1..10).contains(&learning), "{points:?}");
    // Nothing goes before.
    assert!(points[..learning].iter().all(|point| point.total_rank == 5), "{points:?}");
    let weights: Vec<f64> =
        points[learning..].iter().take_while(|p| p.step <= 30).map(|p| p.kl_weight).collect();
    assert!(weights.is_sorted_by(|a, b| a <= b) && weights[0] > 0.0, "{points:?}");
    assert!(run.kl_weight() > 0.0);
    // Looks within the tolerance of all before put the end off.
    let late = points.iter().filter(|point| point.step >= 20).count();
    let within = |n: usize| points[..n].iter().all(|p| points[n].loss - p.loss <= tolerance.nats);
    let (first, last) = (points.len() - late, points.len() - 1);
    assert!((first..last).all(within), "{points:?}");
    assert!(points[last].step == 30 || !within(last), "{points:?}");

    // Adapters that earn nothing have no path, and no row tells which of their ranks matter.
    let (untaught, points) = fitted(&contrary());
    assert_eq!(ranks(&untaught.state.model)[0].1, 5);
    assert!(points.iter().all(|point| point.kl_weight == 0.0), "{points:?}");
    assert!(points.len() == 10 && untaught.kl_weight() > 0.0, "{points:?}");
}

#[test]
fn a_run_that_turns_its_adapters_resumes_too() {
    let config = config(10);
    let turn = Some(Turn { after: 5, kl_factor: 0.5 });
    let method = BayesLora { turn, pruning: None, noise_rate_factor: 5.0, ..pruned() };
    assert_eq!(compare(&method, &config, "turned"), 5);
    let (mut turned, mut plain) =
        (run(method.clone(), &config), run(BayesLora { turn: None, ..method }, &config));
    for run in [&mut turned, &mut plain] {
        run.fit(&mut batches(&config), &mut Watch::<Tensor<2>>::default()).unwrap();
    }
    assert_ne!(numbers(&turned.state), numbers(&plain.state));
    // The moments began anew with the turn.
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
    for placement in [MaskPlacement::AfterUpdate, MaskPlacement::BeforeUpdate] {
        let method = AdaLora::new(schedule, 16.0, 0.0, placement).unwrap();
        assert_eq!(compare(&method, &config, "AdaLoRA"), 2);
    }
}

#[test]
fn gradients_are_cut_with_their_tensors() {
    // Before the update, a prune that slices leaves an update of the pruned size to be made.
    let config = config(6);
    let start = |placement| {
        let pruning = pruned().pruning.map(|p| Pruning { placement, ..p });
        run(BayesLora { pruning, ..pruned() }, &config)
    };
    let mut before = start(PrunePlacement::BeforeUpdate);
    before.fit(&mut batches(&config), &mut Watch::<Tensor<2>>::default()).unwrap();
    let events = &before.state.journal.rank_events;
    let [first, prune] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!((first.total_rank, prune.step), (5, 4));
    assert!((1..5).contains(&prune.total_rank), "{prune:?}");
    assert_eq!(ranks(&before.state.model)[0].1 as u64, prune.total_rank);
    // The step of the prune took part: every moment has seen six updates.
    for (name, moments) in before.state.optimizer.state() {
        assert_eq!(moments.steps, 6, "{name}");
    }
}
