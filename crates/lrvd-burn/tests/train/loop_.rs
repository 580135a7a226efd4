//! What the loop does with batches, events and settings.

use crate::prelude::*;
use lrvd_burn::optimizer::ParameterGroups;
use lrvd_core::family::VariationalFamily;
use std::sync::atomic::AtomicBool;

#[derive(Default)]
struct Events(Vec<Event>);

impl ProgressSink for Events {
    fn event(&mut self, event: &Event) {
        self.0.push(event.clone());
    }
}

/// A run of 60 steps on a single layer, and its batches.
fn of_one<T: Method<One>>(
    method: T,
    learning_rate: f64,
    config: &TrainConfig,
) -> (Run<One, T>, Ordered<Rows<2>>) {
    let adapter = GroupRates { learning_rate, weight_decay: 0.0 };
    let config = TrainConfig { groups: ParameterGroups { adapter, ..config.groups }, ..*config };
    let order = OrderConfig::shuffled(16);
    let batches = Ordered::new(examples(1, 64), order, config.seed).unwrap();
    let targets = AdapterTargets::Paths(vec!["layer".to_owned()]);
    (Run::new(one(), method, &targets, &config).unwrap(), batches)
}

fn lora() -> Lora {
    Lora { rank: 3, ..Lora::default() }
}

#[test]
fn a_model_of_one_layer_learns_and_reports() {
    let config = TrainConfig { evaluate_every: 20, ..config(60) };
    let (mut run, mut batches) = of_one(lora(), 3e-2, &config);
    let (validation, mut seen) = (examples(2, 40), Events::default());
    let mut watch =
        Watch { validation: Some(&validation), sink: Some(&mut seen), ..Watch::default() };
    run.fit(&mut batches, &mut watch).unwrap();
    let history = &run.state.journal.history;
    assert_eq!(history.iter().map(|p| p.step).collect::<Vec<_>>(), [0, 20, 40, 60]);
    let nll = |i: usize| history[i].evaluation.metrics["nll"];
    assert!(nll(3) < 0.7 * nll(0), "{} {}", nll(0), nll(3));
    let best = run.state.best.as_ref().unwrap();
    let scores = history.iter().filter_map(|p| p.evaluation.score);
    assert_eq!(best.info.score, scores.fold(0.0, f64::max));
    let steps = seen.0.iter().filter(|event| matches!(event, Event::Step { .. })).count();
    let evaluations = seen.0.iter().filter(|e| matches!(e, Event::Evaluated { .. })).count();
    assert_eq!((steps, evaluations), (60, 4));
}

#[test]
fn patience_ends_a_run_where_its_losses_say() {
    let validation = examples(2, 40);
    // An earlier process may have been stopped after its first step, or have come to the end.
    let trained = |patience, earlier: Option<bool>| {
        let config = TrainConfig { evaluate_every: 2, patience, ..config(60) };
        // A rate at which the loss soon goes up and down.
        let start = || of_one(lora(), 0.5, &config);
        let folder = tempfile::tempdir().unwrap();
        let checkpoints = Checkpoints::open(folder.path().join("checkpoints")).unwrap();
        if let Some(is_stopped) = earlier {
            let (stop, (mut run, mut batches)) = (AtomicBool::new(is_stopped), start());
            let (validation, checkpoints) = (Some(&validation as _), Some(&checkpoints));
            let stop = Some(&stop);
            let mut watch = Watch { validation, checkpoints, stop, ..Watch::default() };
            run.fit(&mut batches, &mut watch).unwrap();
        }
        let (mut events, (mut run, mut batches)) = (Events::default(), start());
        run.resume(&checkpoints).unwrap();
        let mut watch =
            Watch { validation: Some(&validation), sink: Some(&mut events), ..Watch::default() };
        run.fit(&mut batches, &mut watch).unwrap();
        let history = run.state.journal.history;
        let losses: Vec<f64> = history.iter().map(|p| p.evaluation.metrics["nll"]).collect();
        (run.state.done, losses, events.0)
    };
    let (done, whole, _) = trained(None, None);
    assert_eq!((done, whole.len()), (60, 31));
    let (done, losses, events) = trained(Some(3), None);
    // The first place at which three evaluations in a row are no better than one before them.
    let ends = (3..31).find(|&i| {
        let best = whole[..=i].iter().copied().fold(f64::INFINITY, f64::min);
        whole[..=i - 3].iter().any(|loss| *loss <= best)
    });
    let ends = ends.expect("the losses rise somewhere");
    assert!(ends < 30, "nothing to stop");
    assert_eq!((done, &losses[..]), (2 * ends, &whole[..=ends]));
    let noted = |e: &Event| matches!(e, Event::Note(text) if text.contains("stopped at step"));
    assert_eq!(events.iter().filter(|event| noted(event)).count(), 1);
    for is_stopped in [true, false] {
        let (again, same, _) = trained(Some(3), Some(is_stopped));
        assert_eq!((again, same), (done, losses.clone()));
    }
}

#[test]
fn nothing_left_to_learn_is_no_error() {
    // One layer, no head, a threshold that no direction stays below.
    let schedule = PruneSchedule::new(2, 2, None).unwrap();
    let rule = PruneRule::new(-40.0, 0).unwrap();
    let pruning = Some(Pruning { rule, ..Pruning::at(schedule) });
    let method = BayesLora { rank: 3, pruning, ..pruned() };
    let (mut run, mut batches) = of_one(method, 1e-3, &config(5));
    run.fit(&mut batches, &mut Watch::<Tensor<2>>::default()).unwrap();
    assert_eq!((run.state.done, run.state.model.layer.rank()), (5, 0));
    assert_eq!(run.state.journal.removed["layer"].len(), 3);
}

#[test]
fn settings_out_of_range_are_rejected_before_anything_is_attached() {
    let pruning = pruned().pruning.map(|p| Pruning { rule: PruneRule::new(3.0, 9).unwrap(), ..p });
    let turned = |after, kl_factor| BayesLora { turn: Some(Turn { after, kl_factor }), ..pruned() };
    let family = VariationalFamily::NoiseToSignal;
    for (method, expected) in [
        (BayesLora { pruning, ..pruned() }, "prune.min_rank"),
        (BayesLora { weight_decay: -1.0, ..pruned() }, "weight_decay"),
        (BayesLora { rank: 0, ..pruned() }, "rank"),
        (turned(0, 1.0), "turn.after"),
        (turned(1, -1.0), "turn.kl_factor"),
        (BayesLora { family, ..turned(1, 1.0) }, "turning"),
    ] {
        let failed = Run::new(net(), method, &targets(), &config(5)).err().unwrap().to_string();
        assert!(failed.contains(expected), "{failed}");
    }
    let search = RankSearch::default();
    for (search, expected) in [
        (RankSearch { margin: -1.0, ..search }, "search.margin"),
        (RankSearch { min_rank: 9, ..search }, "search.min_rank"),
        (RankSearch { noise: -1.0, ..search }, "noise"),
    ] {
        let failed = run(pruned(), &config(5)).searching(search).err().unwrap().to_string();
        assert!(failed.contains(expected), "{failed}");
    }
    let failed = run(lora(), &config(5)).searching(search).err().unwrap().to_string();
    assert!(failed.contains("have no posterior"), "{failed}");
    let mut wrong = config(5);
    wrong.optimizer.beta1 = 2.0;
    let failed = Run::new(net(), pruned(), &targets(), &wrong);
    assert!(failed.err().unwrap().to_string().contains("optimizer.beta1"));
}

#[test]
fn a_loss_that_is_not_finite_ends_the_run() {
    let config = config(5);
    let mut run = run(pruned(), &config);
    let mut source = batches(&config);
    run.method.kl = lrvd_core::schedule::KlSchedule::constant(f64::MAX).unwrap();
    let failed = run.fit(&mut source, &mut Watch::<Tensor<2>>::default()).unwrap_err();
    assert!(matches!(failed, lrvd_burn::Error::Diverged { name: "loss", step: 0, .. }), "{failed}");
}
