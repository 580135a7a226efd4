//! What holds for every method on both backbones, and on one whose base is in half precision.

use lrvd_bench::backbone::{SequenceModel, TaskModel};
use lrvd_bench::eval::Inputs;
use lrvd_bench::progress::Silent;
use lrvd_bench::settings::PredictionDraws;
use lrvd_bench::settings::{MethodForm, MethodName};
use lrvd_bench::train::{fit, load_checkpoint, negative_log_likelihood, save_checkpoint};
use lrvd_burn::sampling::Pass;
use serde_json::json;

use super::harness::{Backbone, Bench, LABELS, method, numbers, trained};

fn single() -> impl Iterator<Item = MethodName> {
    MethodName::all().filter(|method| matches!(method.entry().form, MethodForm::Single))
}

/// Answers by number of draws after all steps.
fn answers(bench: &mut Bench, method: MethodName) -> Vec<(usize, Vec<f64>)> {
    let share = bench.build(method).holdout();
    if share > 0.0 {
        bench.task = bench.task.holding_out(share);
    }
    let (mut state, mut tuning) = bench.fresh(method);
    bench.train(&mut state, &mut tuning);
    assert_eq!(state.done, bench.config.steps);
    tuning.compact(&mut state.model);
    tuning.finish(&mut state.model, &bench.context()).unwrap();
    let numbers = [0].into_iter().chain(tuning.draws(&bench.config));
    let context = bench.context();
    let inputs = Inputs::validation(&context);
    numbers.map(|draws| (draws, tuning.predict(&state.model, &inputs, draws).unwrap())).collect()
}

#[test]
fn methods_train_and_predict_finite_numbers_that_repeat() {
    let bench = |backbone| {
        let mut bench = Bench::new(backbone);
        // The published share of the run is less than a step here.
        bench.set("swag", json!({ "start": 0.3, "every": 0.3 }));
        bench
    };
    for backbone in Backbone::ALL {
        for method in single() {
            let found = answers(&mut bench(backbone), method);
            for (draws, logits) in &found {
                let what = format!("{method} on {backbone:?} with {draws} draws");
                let answers = 5 * LABELS;
                assert!(logits.iter().all(|value| value.is_finite()), "{what}");
                assert!(!logits.is_empty() && logits.len() % answers == 0, "{what}");
            }
            assert_eq!(answers(&mut bench(backbone), method), found, "{method}");
        }
    }
}

#[test]
fn methods_draw_in_every_way_that_settings_ask_for() {
    for method in single() {
        let found = |prediction_draws| {
            let mut bench = Bench::new(Backbone::Llama);
            bench.set("swag", json!({ "start": 0.3, "every": 0.3 }));
            bench.change(|config| config.prediction_draws = prediction_draws);
            answers(&mut bench, method)
        };
        let fixed = found(PredictionDraws::Weights);
        for prediction_draws in [PredictionDraws::Fresh, PredictionDraws::Activation] {
            let other = found(prediction_draws);
            assert_eq!(other[0], fixed[0], "{method}: the mean is the same");
            for ((k, a), (_, b)) in other.iter().zip(&fixed) {
                assert!(a.len() == b.len() && a.iter().all(|v| v.is_finite()), "{method} {k}");
            }
        }
    }
}

#[test]
fn methods_that_are_stopped_and_resumed_end_in_the_same_bits() {
    let keys = ["mcd", "lora-ensemble", "bbb", "blob", "scalabl", "c-lora", "lrvd-nts"];
    let deberta = keys.map(|key| (key, Backbone::Deberta));
    // Optimiser state is in single precision beside a base that is not.
    let narrow = ["blob", "bayeslora"].map(|key| (key, Backbone::NarrowLlama));
    for (key, backbone) in deberta.into_iter().chain(narrow) {
        let mut bench = Bench::new(backbone);
        bench.change(|config| config.steps = 4);
        let folder = tempfile::tempdir().unwrap();
        let (mut state, mut tuning) = bench.fresh(method(key));
        fit(
            &bench.context(),
            &mut state,
            &mut tuning,
            &bench.stop,
            &mut Silent,
            &mut |state, tuning, _| {
                if state.done == 2 {
                    save_checkpoint(folder.path(), state, tuning)?;
                }
                Ok(())
            },
        )
        .unwrap();
        let (mut resumed, mut tuning) = bench.fresh(method(key));
        let checkpoint = folder.path().join("step-00000002");
        load_checkpoint(&checkpoint, &mut resumed, &mut tuning).unwrap();
        assert_eq!(resumed.done, 2);
        bench.train(&mut resumed, &mut tuning);
        assert_eq!(trained(&resumed.model), trained(&state.model), "{key}");
    }
}

#[test]
fn methods_learn_the_training_examples() {
    for key in ["map", "mcd", "lora-ensemble", "bbb", "blob", "scalabl", "c-lora", "lrvd-ard"] {
        let mut bench = Bench::new(Backbone::Deberta);
        bench.change(|config| config.steps = 40);
        bench.change(|config| config.evaluate_every = 40);
        let nll = |model: &TaskModel| {
            let members = bench.build(method(key)).members();
            let batch = bench.batch().0.repeat(members);
            let logits = model.logits(&batch.input, &Pass::mean());
            numbers(negative_log_likelihood(logits, &batch.targets))[0] / members as f64
        };
        let (mut state, mut tuning) = bench.fresh(method(key));
        let before = nll(&state.model);
        bench.train(&mut state, &mut tuning);
        let after = nll(&state.model);
        assert!(after < 0.7 * before, "{key}: {before} to {after}");
    }
}
