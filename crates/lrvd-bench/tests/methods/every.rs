//! What holds for every method: training, resumed runs, exact numbers of parameters, rejected settings.

use std::fs::Metadata;
use std::sync::atomic::Ordering;

use lrvd_bench::method::{MethodForm, MethodName, RankRequest};
use lrvd_bench::progress::Event;
use lrvd_bench::run::{RunState, fit};
use lrvd_burn::model::NamedModule;
use lrvd_burn::sampling::Pass;
use lrvd_burn::train::{Checkpoints, Outcome, latest_checkpoint};

use super::harness::{Backbone, Bench, Finished, LABELS, method, trained};

/// Methods of one run on `backbone`: a regression on features is for encoders.
fn single(backbone: Backbone) -> impl Iterator<Item = MethodName> {
    let is_encoder = matches!(backbone, Backbone::Deberta | Backbone::Random);
    MethodName::all().filter(move |method| {
        let is_single = matches!(method.entry().form, MethodForm::Single { .. });
        is_single && (is_encoder || method.can().steps)
    })
}

fn answers(bench: &mut Bench, method: MethodName) -> Vec<(usize, Vec<f64>)> {
    let Finished { method: tuning, model, fitted, .. } = bench.finished(method);
    let numbers = [0].into_iter().chain(method.draws(&bench.config));
    let examples = bench.validation();
    let inputs = bench.context().inputs(&examples);
    let answer = |draws| tuning.predict(&model, &inputs.drawn(draws)).unwrap().values;
    // The table of methods says what the code does.
    let can = method.can();
    let mean = answer(0);
    let drawn = answer(2).chunks(mean.len()).any(|draw| draw != mean);
    assert_eq!(can.draws, drawn, "{method}: draws");
    if method.key() != "laplace" {
        assert_eq!(mean, inputs.logits(&model, &Pass::mean()).unwrap().values, "{method}");
    }
    assert_eq!(can.post_hoc, fitted.stored > 0, "{method}: post hoc");
    numbers.map(|draws| (draws, answer(draws))).collect()
}

/// The published share of the run is less than a step here, and the published noise changes too much.
fn fitting(backbone: Backbone) -> Bench {
    let mut bench = Bench::new(backbone);
    bench.assign("methods.swag.start=0.3 methods.swag.every=0.3 methods.tfb.tolerance=1e6");
    bench
}

#[test]
fn methods_train_and_predict_finite_numbers_that_repeat() {
    let backbones = [Backbone::Deberta, Backbone::Llama, Backbone::NarrowLlama].into_iter();
    for (backbone, method) in backbones.flat_map(|b| single(b).map(move |method| (b, method))) {
        let found = answers(&mut fitting(backbone), method);
        for (draws, logits) in &found {
            let what = format!("{method} on {backbone:?} with {draws} draws");
            assert!(logits.iter().all(|value| value.is_finite()), "{what}");
            assert!(!logits.is_empty() && logits.len() % (5 * LABELS) == 0, "{what}");
        }
        if let [_, (_, two), (_, three)] = &found[..] {
            // Two draws are the first two of three.
            assert!(three.starts_with(two), "{method}");
            assert_ne!(two[..5 * LABELS], two[5 * LABELS..], "{method}");
        }
        assert_eq!(answers(&mut fitting(backbone), method), found, "{method}");
    }
}

#[test]
fn methods_draw_in_every_way_that_settings_ask_for() {
    for method in single(Backbone::Llama) {
        let [fixed, fresh, activation] = ["weights", "fresh", "activation"].map(|draws| {
            let mut bench = fitting(Backbone::Llama);
            bench.assign(&format!("prediction_draws={draws}"));
            answers(&mut bench, method)
        });
        for other in [fresh, activation] {
            assert_eq!(other[0], fixed[0], "{method}: the mean is the same");
            for ((k, a), (_, b)) in other.iter().zip(&fixed) {
                assert!(a.len() == b.len() && a.iter().all(|v| v.is_finite()), "{method} {k}");
            }
        }
    }
}

#[test]
fn methods_that_are_stopped_and_resumed_end_in_the_same_bits() {
    let keys = ["mcd", "lora-ensemble", "bbb", "blob", "scalabl", "c-lora", "lrvd-nts", "swag"];
    let deberta = keys.map(|key| (key, Backbone::Deberta));
    // Optimiser state is in single precision beside a base that is not.
    let narrow = ["blob", "bayeslora"].map(|key| (key, Backbone::NarrowLlama));
    for (key, backbone) in deberta.into_iter().chain(narrow) {
        // SWAG collects at the second step and at the two that follow the stop.
        let mut bench = fitting(backbone);
        bench.assign("steps=4 evaluate_every=2");
        let whole = bench.trained(method(key));
        let is_second = |event: &Event| matches!(event, Event::Step { done: 2, .. });
        let resumed = stopped_and_resumed(&bench, method(key), 2, is_second);
        assert_eq!(trained(&resumed.state.model), trained(&whole.state.model), "{key}");
        // The evaluation of the step at which it was stopped is made up for.
        assert_eq!(resumed.state.journal.history, whole.state.journal.history, "{key}");
        let found = resumed.method.state();
        let expected = whole.method.state();
        assert_eq!(found.tensors, expected.tensors, "{key}");
        assert_eq!(found.values, expected.values, "{key}");
    }
}

/// A run that a stop at the one event `is_last` ends after `done` steps and that is taken up again by a method that knows nothing.
fn stopped_and_resumed(
    bench: &Bench,
    method: MethodName,
    done: usize,
    is_last: fn(&Event) -> bool,
) -> RunState {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::open(folder.path()).unwrap();
    let mut stopped = bench.fresh(method);
    let context = bench.context();
    let stop = &bench.stop;
    let mut sink = |event: &Event| {
        assert!(!is_last(event) || !stop.swap(true, Ordering::Relaxed), "{event:?}");
    };
    let ended = fit(&context, &mut stopped, Some(&checkpoints), stop, &mut sink);
    assert_eq!(ended.unwrap(), Outcome::Stopped);
    bench.stop.store(false, Ordering::Relaxed);
    let mut resumed = bench.fresh(method);
    assert!(resumed.resume(&checkpoints).unwrap());
    assert_eq!(resumed.state.done, done);
    bench.train(&mut resumed);
    resumed
}

/// 20 steps, a search for ranks with as many held-out rows as it takes to try smaller sizes, and 4 steps of refinement.
fn cutting() -> Bench {
    let mut bench = Bench::new(Backbone::Deberta);
    bench.assign("steps=20 kl_weight=auto kl_divisor=n_train rank_search.refine=0.2");
    bench.task.holdout = bench.task.train.iter().cycle().take(104).cloned().collect();
    bench
}

#[test]
fn a_search_for_ranks_stops_between_the_sizes_that_it_tries() {
    let bench = cutting();
    let state = bench.trained(MethodName::BAYES_LORA).state;
    let choice = state.journal.choice.as_ref().unwrap();
    assert!(choice.points.len() > 2, "{choice}");
    // Once a size is tried.
    let is_search = |event: &Event| matches!(event, Event::Searching { .. });
    let resumed = stopped_and_resumed(&bench, MethodName::BAYES_LORA, 20, is_search).state;
    assert_eq!(resumed.journal.choice, state.journal.choice);
    assert_eq!(resumed.position, state.position);
    assert_eq!(trained(&resumed.model), trained(&state.model));
}

#[test]
fn checkpoints_do_not_grow_with_the_looks_at_the_validation_rows() {
    let mut bench = cutting();
    bench.assign("evaluate_every=1");
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::open(folder.path()).unwrap();
    let mut run = bench.fresh(MethodName::BAYES_LORA);
    // Bytes of the checkpoints, at every step after the first one.
    let mut sizes: Vec<u64> = Vec::new();
    let mut sink = |event: &Event| {
        let newest = latest_checkpoint(folder.path()).unwrap();
        if let (Event::Step { .. }, Some(newest)) = (event, newest) {
            let files = std::fs::read_dir(folder.path()).unwrap().chain(newest.read_dir().unwrap());
            let files = files.map(|entry| entry.unwrap().metadata().unwrap());
            sizes.push(files.filter(Metadata::is_file).map(|file| file.len()).sum());
        }
    };
    let context = bench.context();
    let stop = &bench.stop;
    fit(&context, &mut run, Some(&checkpoints), stop, &mut sink).unwrap();
    assert_eq!((run.state.journal.history.len(), sizes.len()), (25, 23));
    assert!(sizes.iter().all(|size| 4 * size <= 5 * sizes[0]), "{sizes:?}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2, "the newest, and the lock");
}

#[test]
fn methods_on_all_linear_layers_leave_the_output_head_alone() {
    for backbone in [Backbone::Deberta, Backbone::Llama] {
        let mut bench = Bench::new(backbone);
        let mut all = Vec::new();
        let mut whole = Vec::new();
        bench.model().visit_layers(&mut |path, _| {
            if ["pooler.dense", "classifier", "lm_head"].contains(&path) {
                &mut whole
            } else {
                &mut all
            }
            .push(path.to_owned());
        });
        assert!(!whole.is_empty() && all.len() >= 12, "{backbone:?}: {all:?} {whole:?}");
        bench.assign("target_modules=all-linear");
        let state = bench.trained(method("bayeslora")).state;
        let adapted: Vec<String> = state.ranks().into_keys().collect();
        all.sort();
        assert_eq!(adapted, all, "{backbone:?}");
    }
}

#[test]
fn methods_at_another_rank_keep_the_scaling() {
    let bench = Bench::new(Backbone::Deberta);
    let uniform =
        ["lora", "map", "mcd", "tfb", "bbb", "bbb-a", "blob", "scalabl", "c-lora", "lora-ensemble"];
    for key in uniform {
        for (request, rank) in
            [(RankRequest::Initial, 4), (RankRequest::Average(1), 1), (RankRequest::Average(3), 3)]
        {
            let built = method(key).build(&bench.config, request).unwrap();
            let adapter = built.setup(&bench.config.training(1)).unwrap().adapter;
            // The published update of LoRA-Ensemble is not scaled.
            let scaling = if key == "lora-ensemble" { 1.0 } else { 6.0 / 4.0 };
            let found = (adapter.rank, adapter.lora_alpha / adapter.rank as f64);
            assert_eq!(found, (rank, scaling), "{key} {request:?}");
        }
    }
}
