//! What the loop does with batches, events and settings.

use lrvd_burn::burn::tensor::Tensor;
use lrvd_burn::model::AdapterTargets;
use lrvd_burn::train::{
    BayesLora, Checkpoints, Event, Lora, OrderConfig, Ordered, ProgressSink, Pruning, RankSearch,
    Run, TrainConfig, Watch,
};
use lrvd_core::prune::{PruneRule, PruneSchedule};

use crate::net::{batches, config, examples, one, pruned, run};

#[derive(Default)]
struct Heard(Vec<Event>);

impl ProgressSink for Heard {
    fn event(&mut self, event: &Event) {
        self.0.push(event.clone());
    }
}

#[test]
fn a_model_of_one_layer_learns_and_tells() {
    let config = TrainConfig { steps: 60, evaluate_every: 20, ..config(60) };
    let (train, validation) = (examples(1, 64), examples(2, 40));
    let order = OrderConfig::shuffled(16);
    let mut batches = Ordered::new(&train, order, config.seed).unwrap();
    let targets = AdapterTargets::Paths(vec!["layer".to_owned()]);
    let method = Lora { rank: 3, ..Lora::default() };
    let groups = lrvd_burn::optimizer::ParameterGroups {
        adapter: lrvd_burn::optimizer::GroupRates { learning_rate: 3e-2, weight_decay: 0.0 },
        ..config.groups
    };
    let mut run = Run::new(one(), method, &targets, &TrainConfig { groups, ..config }).unwrap();
    let mut heard = Heard::default();
    let mut watch = Watch::default().validating(&validation).telling(&mut heard);
    run.fit(&mut batches, &mut watch).unwrap();
    let history = &run.state.journal.history;
    assert_eq!(history.iter().map(|p| p.step).collect::<Vec<_>>(), [0, 20, 40, 60]);
    let nll = |i: usize| history[i].evaluation.metrics["nll"];
    assert!(nll(3) < 0.7 * nll(0), "{} {}", nll(0), nll(3));
    let best = run.state.best.as_ref().unwrap();
    let scores: Vec<f64> = history.iter().filter_map(|p| p.evaluation.score).collect();
    assert_eq!(best.info.score, scores.iter().copied().fold(0.0, f64::max));
    let steps = heard.0.iter().filter(|event| matches!(event, Event::Step { .. })).count();
    let evaluations = heard.0.iter().filter(|e| matches!(e, Event::Evaluated { .. })).count();
    assert_eq!((steps, evaluations), (60, 4));
}

#[test]
fn patience_ends_a_run_where_its_losses_say() {
    let (train, validation) = (examples(1, 64), examples(2, 40));
    let trained = |patience, steps_before: Option<usize>| {
        let config = TrainConfig { steps: 60, evaluate_every: 2, patience, ..config(60) };
        // A rate at which the loss soon goes up and down.
        let rates = lrvd_burn::optimizer::GroupRates { learning_rate: 0.5, weight_decay: 0.0 };
        let groups = lrvd_burn::optimizer::ParameterGroups { adapter: rates, ..config.groups };
        let config = TrainConfig { groups, ..config };
        let targets = AdapterTargets::Paths(vec!["layer".to_owned()]);
        let method = || Lora { rank: 3, ..Lora::default() };
        let order = OrderConfig::shuffled(16);
        let folder = tempfile::tempdir().unwrap();
        let checkpoints = Checkpoints::open(folder.path().join("checkpoints")).unwrap();
        let mut heard = Heard::default();
        if let Some(steps) = steps_before {
            // An earlier process that was stopped, which a shorter patience would not have been.
            let mut batches = Ordered::new(&train, order, config.seed).unwrap();
            let mut run = Run::new(one(), method(), &targets, &config).unwrap();
            let stop = std::sync::atomic::AtomicBool::new(false);
            let mut watch = Watch::default().validating(&validation).keeping(&checkpoints);
            watch = watch.stopping_at(&stop);
            stop.store(steps == 0, std::sync::atomic::Ordering::Relaxed);
            run.fit(&mut batches, &mut watch).unwrap();
        }
        let mut batches = Ordered::new(&train, order, config.seed).unwrap();
        let mut run = Run::new(one(), method(), &targets, &config).unwrap();
        run.resume(&checkpoints).unwrap();
        let mut watch = Watch::default().validating(&validation).telling(&mut heard);
        run.fit(&mut batches, &mut watch).unwrap();
        let history = run.state.journal.history;
        let losses: Vec<f64> = history.iter().map(|p| p.evaluation.metrics["nll"]).collect();
        (run.state.done, losses, heard.0)
    };
    let (done, whole, _) = trained(None, None);
    assert_eq!((done, whole.len()), (60, 31));
    let (done, losses, heard) = trained(Some(3), None);
    // The first place at which three evaluations in a row are no better than one before them.
    let ends = (3..31).find(|&i| {
        let best = whole[..=i].iter().copied().fold(f64::INFINITY, f64::min);
        whole[..=i - 3].iter().any(|loss| *loss <= best)
    });
    let ends = ends.expect("the losses rise somewhere");
    assert!(ends < 30, "nothing to stop");
    assert_eq!((done, &losses[..]), (2 * ends, &whole[..=ends]));
    let noted = |e: &Event| matches!(e, Event::Note(text) if text.contains("stopped at step"));
    assert_eq!(heard.iter().filter(|event| noted(event)).count(), 1);
    // Taken up after a kill behind the first step, and after its end.
    for before in [0, 1] {
        let (again, same, _) = trained(Some(3), Some(before));
        assert_eq!((again, same), (done, losses.clone()));
    }
}

#[test]
fn micro_batches_add_up_to_the_batch() {
    let config = TrainConfig { model_dropout: false, ..config(3) };
    let train = |parts: usize| {
        let order = OrderConfig::shuffled(8);
        let source = Ordered::new(examples(7, 32), order, config.seed).unwrap();
        let mut source = source.accumulating(parts).unwrap();
        let mut run = Run::new(
            crate::net::net(),
            Lora { rank: 3, ..Lora::default() },
            &crate::net::targets(),
            &config,
        )
        .unwrap();
        run.fit(&mut source, &mut Watch::<Tensor<2>>::default()).unwrap();
        crate::net::parameters(&run.state.model)
    };
    for ((name, whole), (_, parts)) in train(1).iter().zip(train(4)) {
        for (a, b) in whole.iter().zip(parts) {
            assert!((a - b).abs() < 1e-4, "{name}: {a} {b}");
        }
    }
    let order = OrderConfig::shuffled(8);
    for parts in [0, 3, 16] {
        let failed = Ordered::new(examples(7, 32), order, 0).unwrap().accumulating(parts);
        let expected = format!("`accumulation` is {parts}, which does not divide `batch_size` = 8");
        assert_eq!(failed.map(drop).unwrap_err().to_string(), expected);
    }
}

#[test]
fn nothing_left_to_learn_is_no_error() {
    // One layer, no head, a threshold that no direction stays below.
    let schedule = PruneSchedule::new(2, 2, None).unwrap();
    let rule = PruneRule::new(-40.0, 0).unwrap();
    let pruning = Some(Pruning { rule, ..Pruning::at(schedule) });
    let targets = AdapterTargets::Paths(vec!["layer".to_owned()]);
    let config = config(5);
    let method = BayesLora { rank: 3, pruning, ..pruned() };
    let mut run = Run::new(one(), method, &targets, &config).unwrap();
    let mut source = Ordered::new(examples(7, 30), OrderConfig::shuffled(8), 0).unwrap();
    run.fit(&mut source, &mut Watch::<Tensor<2>>::default()).unwrap();
    assert_eq!((run.state.done, run.state.model.layer.rank()), (5, 0));
    assert_eq!(run.state.journal.removed["layer"].len(), 3);
}

#[test]
fn settings_out_of_range_are_rejected_before_anything_is_attached() {
    let rejected = |method: BayesLora| {
        let failed = Run::new(crate::net::net(), method, &crate::net::targets(), &config(5));
        failed.err().unwrap().to_string()
    };
    let rule = PruneRule::new(3.0, 9).unwrap();
    let pruning = pruned().pruning.map(|p| Pruning { rule, ..p });
    assert!(rejected(BayesLora { pruning, ..pruned() }).contains("prune.min_rank"));
    assert!(rejected(BayesLora { weight_decay: -1.0, ..pruned() }).contains("weight_decay"));
    assert!(rejected(BayesLora { rank: 0, ..pruned() }).contains("rank"));
    let searched =
        |run: Run<_, BayesLora>, search| run.searching(search).err().unwrap().to_string();
    let search = RankSearch::default();
    for (search, name) in [
        (RankSearch { margin: -1.0, ..search }, "search.margin"),
        (RankSearch { min_rank: 9, ..search }, "search.min_rank"),
        (RankSearch { noise: -1.0, ..search }, "noise"),
    ] {
        assert!(searched(run(pruned(), &config(5)), search).contains(name));
    }
    let lora = Lora { rank: 3, ..Lora::default() };
    let plain = Run::new(crate::net::net(), lora, &crate::net::targets(), &config(5));
    let failed = plain.unwrap().searching(search).err().unwrap().to_string();
    assert!(failed.contains("have no posterior"), "{failed}");
    let mut wrong = config(5);
    wrong.optimizer.beta1 = 2.0;
    let failed = Run::new(crate::net::net(), pruned(), &crate::net::targets(), &wrong);
    assert!(failed.err().unwrap().to_string().contains("optimizer.beta1"));
}

#[test]
fn a_loss_that_is_not_finite_ends_the_run() {
    let config = config(5);
    let mut run = run(pruned(), &config);
    run.state.model = run.state.model.clone();
    let mut source = batches(&config);
    run.method.kl = lrvd_core::schedule::KlSchedule::constant(f64::MAX).unwrap();
    let failed = run.fit(&mut source, &mut Watch::<Tensor<2>>::default()).unwrap_err();
    assert!(matches!(failed, lrvd_burn::Error::Diverged { name: "loss", step: 0, .. }), "{failed}");
}
