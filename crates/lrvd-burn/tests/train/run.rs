//! The loop with batches, events and settings, damaged checkpoints, and predictions of a saved adapter.

use super::*;
use burn::backend::autodiff::NodeId;
use burn::module::Param;
use lrvd_burn::optimizer::{AdamWConfig, GroupRates, ParameterGroups};
use lrvd_burn::train::{AdaLora, Evaluation, Observer, latest_checkpoint};
use lrvd_core::adalora::AdaLoraConfig;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};

/// A run on a single layer, and its batches.
fn of_one<T: Method<One>>(
    method: T,
    learning_rate: f64,
    config: &TrainConfig,
) -> (Run<One, T>, Ordered<'static, Tensor<2>>) {
    let adapter = GroupRates { learning_rate, weight_decay: 0.0 };
    let config = TrainConfig { groups: ParameterGroups { adapter, ..config.groups }, ..*config };
    let order = OrderConfig::shuffled(16);
    let batches = Ordered::new(leaked(examples(1, 64)), order, config.seed).unwrap();
    let targets = Selection::Paths(vec!["layer".to_owned()]);
    (Run::new(one(), Box::new(method), &targets, &config).unwrap(), batches)
}

fn lora() -> Lora {
    Lora { rank: 3, ..Lora::default() }
}

#[test]
fn a_model_of_one_layer_learns_and_reports() {
    let config = TrainConfig { evaluate_every: 20, ..config(60) };
    let (mut run, mut batches) = of_one(lora(), 3e-2, &config);
    let (validation, mut losses, mut evaluations) = (examples(2, 40), Vec::new(), 0);
    let mut count = |event: &Event| match event {
        Event::Step { nll, kl, .. } => {
            assert_eq!(*kl, None);
            losses.push(*nll);
        }
        Event::Evaluated { .. } => evaluations += 1,
        _ => {}
    };
    let mut watch =
        Watch { validation: Some(&validation), sink: Some(&mut count), ..Watch::default() };
    run.fit(&mut batches, &mut watch).unwrap();
    assert_eq!((losses.len(), evaluations, run.state.journal.candidates), (60, 4, 4));
    let history = &run.state.journal.history;
    assert_eq!(history.iter().map(|p| p.step).collect::<Vec<_>>(), [0, 20, 40, 60]);
    // The training loss of an entry is the mean since the last one.
    assert_eq!(history[0].parts, None);
    for (point, losses) in history[1..].iter().zip(losses.chunks(20)) {
        let mean = losses.iter().sum::<f64>() / 20.0;
        assert!((point.parts.unwrap().nll - mean).abs() < 1e-9, "{point:?}");
    }
    let nll = |i: usize| history[i].evaluation.metrics["nll"];
    assert!(nll(3) < 0.7 * nll(0), "{} {}", nll(0), nll(3));
    let best = run.state.best.as_ref().unwrap();
    let scores = history.iter().filter_map(|p| p.evaluation.score);
    assert_eq!(best.info.score, scores.fold(0.0, f64::max));
}

/// Remembers the ranks of the models that it evaluates.
struct Ranks(Vec<usize>);

impl<M: Model, T: Method<M>> Observer<M, T> for Ranks {
    type Error = lrvd_burn::Error;

    fn evaluate(&mut self, model: &M, _method: &T) -> Result<Option<Evaluation>, Self::Error> {
        self.0.push(ranks(model).iter().map(|(_, rank)| rank).sum());
        Ok(Some(Evaluation::default()))
    }
}

#[test]
fn adalora_is_evaluated_without_masked_directions_that_have_grown_since() {
    let schedule = AdaLoraConfig {
        init_r: 5,
        target_r: 2,
        tinit: 1,
        tfinal: 2,
        delta_t: 3,
        total_step: 12,
        beta1: 0.85,
        beta2: 0.85,
        orth_reg_weight: 0.5,
    };
    let method = AdaLora::new(schedule, 16.0, 0.0, UpdatePhase::AfterUpdate).unwrap();
    let config = TrainConfig { evaluate_every: 1, ..config(12) };
    let (mut run, mut seen) = (run(method, &config), Ranks(Vec::new()));
    run.fit(&mut batches(&config), &mut seen).unwrap();
    let history = run.state.journal.history.iter();
    assert_eq!(seen.0, history.map(|point| point.total_rank).collect::<Vec<_>>());
    assert_eq!((seen.0[0], seen.0[12]), (5, 2));
}

/// Nodes that `run` adds to Burn's graph. Other tests of the process may add some meanwhile, so the least of several.
fn nodes(run: impl Fn()) -> u64 {
    let added = |_| {
        let before = NodeId::new().value;
        run();
        NodeId::new().value - before
    };
    (0..5).map(added).min().unwrap()
}

/// A tensor that no loss reaches stays in Burn's graph, and makes every later step slower.
#[test]
fn a_step_before_a_search_tracks_what_one_of_lora_does() {
    let lora = |steps| {
        let lora = Lora { rank: 5, ..Lora::default() };
        nodes(|| drop(trained(run(lora, &config(steps)))))
    };
    let search = |steps| {
        let run = || run(pruned(), &config(steps)).searching(RankSearch::default()).unwrap();
        nodes(|| drop(trained(run())))
    };
    assert_eq!(search(12) - search(8), lora(12) - lora(8));
}

#[test]
fn patience_ends_a_run_where_its_losses_say() {
    let validation = examples(2, 40);
    // An earlier process may have been stopped after its first step, or have come to the end.
    let trained = |patience, earlier: Option<bool>| {
        let config = TrainConfig { evaluate_every: 2, patience, ..config(60) };
        let folder = tempfile::tempdir().unwrap();
        let checkpoints = Checkpoints::open(folder.path().join("checkpoints")).unwrap();
        let (mut notes, mut ended) = (Vec::new(), None);
        for stops in earlier.into_iter().chain([false]) {
            // A rate at which the loss soon goes up and down.
            let (mut run, mut batches) = of_one(lora(), 0.5, &config);
            run.resume(&checkpoints).unwrap();
            let stop = AtomicBool::new(false);
            notes.clear();
            let mut note = |event: &Event| match event {
                Event::Note(text) if text.contains("stopped at step") => notes.push(text.clone()),
                Event::Step { .. } => stop.store(stops, Ordering::Relaxed),
                _ => {}
            };
            run.fit(
                &mut batches,
                &mut Watch {
                    validation: Some(&validation),
                    checkpoints: Some(&checkpoints),
                    sink: Some(&mut note),
                    stop: Some(&stop),
                    ..Watch::default()
                },
            )
            .unwrap();
            ended = Some(run.state);
        }
        let state = ended.unwrap();
        let history = state.journal.history.iter();
        let losses: Vec<f64> = history.map(|p| p.evaluation.metrics["nll"]).collect();
        (state.done, losses, notes.len(), state.best.map(|best| best.info.step))
    };
    let (done, whole, ..) = trained(None, None);
    assert_eq!((done, whole.len()), (60, 31));
    // The first place at which three evaluations in a row are no better than one before them.
    let ends = (3..31).find(|&i| {
        let best = whole[..=i].iter().copied().fold(f64::INFINITY, f64::min);
        whole[..=i - 3].iter().any(|loss| *loss <= best)
    });
    let ends = ends.expect("the losses rise somewhere");
    assert!(ends < 30, "nothing to stop");
    // The model that is kept is the one that the run waited from, also after a resume.
    let least = whole[..=ends].iter().copied().fold(f64::INFINITY, f64::min);
    let best = 2 * whole.iter().position(|loss| *loss <= least).unwrap();
    for earlier in [None, Some(true), Some(false)] {
        let expected = (2 * ends, whole[..=ends].to_vec(), 1, Some(best));
        assert_eq!(trained(Some(3), earlier), expected);
    }
}

#[test]
fn nothing_left_to_learn_is_no_error() {
    // One layer, no head, a threshold that no direction stays below.
    let schedule = PruneSchedule::new(2, 2, None).unwrap();
    let rule = PruneRule::new(-40.0, 0).unwrap();
    let posterior = BayesLora { rank: 3, rule, ..pruned().posterior };
    let pruning = Some(Pruning::at(schedule));
    let method = BayesLoraMethod { posterior, pruning, ..pruned() };
    let (mut run, mut batches) = of_one(method, 1e-3, &config(5));
    run.fit(&mut batches, &mut Watch::<Tensor<2>>::default()).unwrap();
    assert_eq!((run.state.done, run.state.model.layer.rank()), (5, 0));
    assert_eq!(run.state.journal.removed["layer"].len(), 3);
}

#[test]
fn settings_out_of_range_are_rejected_before_anything_is_attached() {
    let valid = pruned().posterior;
    let of = |posterior| BayesLoraMethod { posterior, ..pruned() };
    for (method, expected) in [
        (of(BayesLora { rule: PruneRule::new(3.0, 9).unwrap(), ..valid }), "prune.min_rank"),
        (of(BayesLora { rank: 0, ..valid }), "rank"),
        (of(BayesLora { kl_weight: f64::NAN, ..valid }), "kl_weight"),
        (BayesLoraMethod { weight_decay: -1.0, ..pruned() }, "weight_decay"),
    ] {
        let failed = Run::new(net(), Box::new(method), &targets(), &config(5));
        let failed = failed.err().unwrap().to_string();
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
    assert!(failed.contains("needs adapters with a posterior"), "{failed}");
    let mut wrong = config(5);
    wrong.optimizer.beta1 = 2.0;
    let failed = Run::new(net(), Box::new(pruned()), &targets(), &wrong);
    assert!(failed.err().unwrap().to_string().contains("optimizer.beta1"));
}

/// A head that is used a second time, transposed.
#[derive(Module, Debug)]
struct Tied {
    layer: AdaptedLinear,
    down: Named<AdaptedLinear>,
    up: AdaptedLinear,
}

impl Model for Tied {
    type Input = Tensor<2>;

    fn logits(&self, input: &Tensor<2>, pass: &Pass) -> Tensor<2> {
        let x = self.down.forward_with(self.layer.forward_with(input.clone(), pass), pass);
        self.down.forward_with(self.up.forward_with(x.tanh(), pass), pass)
    }
}

#[test]
fn every_micro_batch_reaches_a_weight_through_its_transpose() {
    let step = |accumulation| {
        let down = layer(2, [WIDTH, CLASSES]);
        let up = Param::initialized(down.weight.id, down.weight.val().transpose());
        let up = AdaptedLinear { weight: up, bias: None };
        let down = Named::new("down", Group::Head, down);
        let model = Tied { layer: layer(1, [WIDTH, WIDTH]), down, up };
        // Beside an epsilon of 1 an update depends on the size of its gradient.
        let optimizer = AdamWConfig { epsilon: 1.0, ..AdamWConfig::default() };
        let config = TrainConfig { warmup_ratio: 0.0, optimizer, ..config(1) };
        let lora = Lora { rank: 2, b_bound: 0.3, ..Lora::default() };
        let targets = Selection::Paths(vec!["layer".to_owned()]);
        let mut run = Run::new(model, Box::new(lora), &targets, &config).unwrap();
        let before = parameters(&run.state.model);
        let order = OrderConfig { accumulation, ..OrderConfig::shuffled(8) };
        let mut batches = Ordered::new(leaked(examples(7, 8)), order, 1).unwrap();
        run.fit(&mut batches, &mut Watch::default()).unwrap();
        let after = parameters(&run.state.model);
        let moves = |((name, old), (_, new)): ((String, Vec<f64>), (String, Vec<f64>))| {
            (name, new.iter().zip(old).map(|(new, old)| new - old).collect::<Vec<f64>>())
        };
        before.into_iter().zip(after).map(moves).collect::<Vec<_>>()
    };
    let whole = step(1);
    assert!(whole.iter().any(|(name, moves)| name == "down.weight" && moves[0].abs() > 1e-5));
    for ((name, whole), (_, parts)) in whole.iter().zip(step(4)) {
        assert!(whole.iter().zip(parts).all(|(a, b)| (a - b).abs() < 1e-6), "{name}");
    }
}

#[test]
fn a_search_has_one_form_in_files() {
    let search = RankSearch { min_rank: 2, log_alpha: -3.5, ..RankSearch::default() };
    let text = serde_json::to_string(&search).unwrap();
    assert_eq!(serde_json::from_str::<RankSearch>(&text).unwrap(), search);
    assert_eq!(serde_json::from_str::<RankSearch>("{}").unwrap(), RankSearch::default());
    for wrong in [r#"{"margins":0.1}"#, r#"{"statistic":{"median":true}}"#] {
        let error = serde_json::from_str::<RankSearch>(wrong).unwrap_err().to_string();
        assert!(error.contains("unknown field"), "{error}");
    }
}

#[test]
fn a_loss_that_is_not_finite_ends_the_run() {
    let config = config(5);
    let mut run = run(pruned(), &config);
    let mut source = batches(&config);
    run.method.posterior.kl_weight = f64::MAX;
    let failed = run.fit(&mut source, &mut Watch::<Tensor<2>>::default()).unwrap_err();
    assert!(matches!(failed, lrvd_burn::Error::Diverged { name: "loss", step: 0, .. }), "{failed}");
}

#[test]
fn a_folder_serves_one_run_and_keeps_its_newest_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("checkpoints");
    let checkpoints = Checkpoints::open(&path).unwrap();
    let failed = Checkpoints::open(&path).unwrap_err();
    assert!(matches!(&failed, lrvd_burn::Error::InUse { .. }), "{failed}");
    assert!(failed.to_string().contains("is in use by another run"), "{failed}");
    let mut done = run(pruned(), &config(9));
    let mut watch = Watch { checkpoints: Some(&checkpoints), ..Watch::default() };
    done.fit(&mut batches(&config(9)), &mut watch).unwrap();
    let mut names: Vec<_> =
        fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["lock", "step-00000009"]);
    // Without variances there is nothing that their moments could belong to.
    let mut other = run(Lora { rank: 5, ..Lora::default() }, &config(9));
    let failed = other.resume(&checkpoints).unwrap_err();
    assert!(matches!(failed, lrvd_burn::Error::Checkpoint { .. }), "{failed}");
    // A flipped byte is noticed in either file.
    for name in ["state.safetensors", "state.json"] {
        let file = latest_checkpoint(&path).unwrap().unwrap().join(name);
        let good = fs::read(&file).unwrap();
        for seed in 0..8 {
            let mut bad = good.clone();
            bad[(seed + 1) * good.len() / 9] ^= 1 << seed;
            fs::write(&file, bad).unwrap();
            match run(pruned(), &config(9)).resume(&checkpoints) {
                Err(lrvd_burn::Error::File { path, what }) => {
                    assert_eq!(path, file);
                    assert!(what.starts_with("has changed since it was written"), "{what}");
                }
                other => panic!("{name} {seed}: {other:?}"),
            }
        }
        fs::write(&file, good).unwrap();
    }
    let mut whole = run(pruned(), &config(9));
    assert!(whole.resume(&checkpoints).unwrap());
    assert!(numbers(&whole.state) == numbers(&done.state));
    checkpoints.remove().unwrap();
    assert!(!path.exists());
}

#[test]
fn mean_and_draws_come_back_bit_for_bit() {
    let run = trained(run(pruned(), &config(8)));
    assert!(ranks(&run.state.model)[0].1 < 5);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("adapter");
    run.save(&path).unwrap();

    let loaded = Tuned::load(net(), &path).unwrap().into_model();
    let asked = examples(9, 20);
    let inputs = Inputs::new(&asked);
    for draws in [0, 3] {
        let expected = run.predict(&inputs.drawn(draws)).unwrap();
        assert!(run.method.predict(&loaded, &inputs.drawn(draws)).unwrap() == expected);
        assert_eq!((expected.members(), expected.rows, expected.width), (draws.max(1), 20, 3));
        let answers = expected.classes().unwrap();
        let sampled = answers.iter().any(|answer| answer.mutual_information > Some(0.0));
        assert_eq!(sampled, draws > 0);
        assert!(answers.iter().all(|a| (a.probabilities.iter().sum::<f64>() - 1.0).abs() < 1e-6));
    }
    // Draws of a smaller number are the first ones of a larger.
    let three = run.predict(&inputs.drawn(3)).unwrap();
    assert!(run.predict(&inputs.drawn(2)).unwrap() == three.first(2));

    let failed = run.save(&path).unwrap_err();
    assert!(matches!(failed, lrvd_burn::Error::File { .. }), "{failed}");
}
