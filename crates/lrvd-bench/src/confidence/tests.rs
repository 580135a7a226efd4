//! Gate gradients against difference quotients, and every candidate on tiny random models.
#![allow(clippy::unwrap_used)]

use burn::tensor::{DType, Device, Tensor, TensorData};
use lrvd_burn::adapter::{Extension, Posterior, RankParameters};
use lrvd_burn::host::values;
use lrvd_burn::parameters::ParameterValue;
use lrvd_burn::sampling::Pass;
use lrvd_burn::train::GateGradients;
use lrvd_core::noise::{NoiseKey, fill_normal_f64};

use super::noise::Noisy;
use super::*;
use crate::data::PreparedTask;
use crate::eval::PeakMemory;
use crate::method::fixture::{
    LABELS, NO_POSITIONS, SHARED_KEYS, close, deberta, examples, inputs, llama,
};
use crate::settings::{ExperimentConfig, MethodName, Preset, RankRequest};
use crate::task::Goal;

/// `model` with a posterior of standard deviation `exp(log/2)` for every rank.
fn noisy(mut model: AutoClassifier, log: f64) -> AutoClassifier {
    model.visit_layers_mut(&mut |_, layer| {
        let Some(adapter) = layer.low_rank() else { return };
        let a = adapter.a.val().inner();
        let value = Tensor::full([adapter.rank()], log, (&a.device(), a.dtype()));
        let value = burn::module::Param::from_tensor(value);
        let posterior = Posterior::RankVariance(RankParameters { value });
        layer.extend(Some(Extension::Posterior(posterior))).unwrap();
    });
    model
}

/// `model` with gate `rank` of the layer at `path` at `gate`.
fn gated(model: &AutoClassifier, path: &str, rank: usize, gate: f64) -> AutoClassifier {
    let mut model = model.clone();
    model.visit_layers_mut(&mut |found, layer| {
        let Some(adapter) = layer.low_rank_mut().filter(|_| found == path) else { return };
        let [d_input, ranks] = adapter.a.val().dims();
        let mut a = values(adapter.a.val());
        a.iter_mut().skip(rank).step_by(ranks).for_each(|value| *value *= gate);
        adapter.a.set_data(TensorData::new(a, [d_input, ranks]));
    });
    model
}

#[test]
fn gate_gradients_are_difference_quotients_with_and_without_a_posterior() {
    let device = Device::flex();
    let examples = examples(&[5, 9, 2]);
    let inputs = inputs(&examples, 8, &device, DType::F64);
    let apart = crate::method::fixture::inputs(&examples, 1, &device, DType::F64);
    for model in
        [deberta(SHARED_KEYS, DType::F64), deberta(NO_POSITIONS, DType::F64), llama(DType::F64)]
    {
        let found = GateGradients::new(&model, &inputs.all()).unwrap();
        let logits =
            |model: &AutoClassifier| inputs.all().logits(model, &Pass::mean()).unwrap().values;
        close("logits", &found.logits, &logits(&model), 1e-12);
        // Neither padding nor a posterior changes anything.
        let by_row = GateGradients::new(&model, &apart.all()).unwrap();
        close("padding", &by_row.jacobians, &found.jacobians, 1e-10);
        let around = GateGradients::new(&noisy(model.clone(), -2.0), &inputs.all()).unwrap();
        close("posterior", &around.jacobians, &found.jacobians, 1e-12);
        assert_eq!(found.modules.values().map(ExactSizeIterator::len).sum::<usize>(), found.gates);
        let h = 1e-5;
        for (path, range) in &found.modules {
            let (rank, gate) = (1, range.start + 1);
            let [up, down] = [1.0 + h, 1.0 - h].map(|g| logits(&gated(&model, path, rank, g)));
            for row in 0..3 {
                let slope = |c: usize| (up[row * LABELS + c] - down[row * LABELS + c]) / (2.0 * h);
                for class in 0..LABELS {
                    let wanted = slope(class) - slope(LABELS - 1);
                    let gradient = found.jacobians[(row * LABELS + class) * found.gates + gate];
                    assert!((gradient - wanted).abs() < 1e-8, "{path} {row}: {gradient} {wanted}");
                }
            }
        }
        let last = found.modules.values().max_by_key(|range| range.start).cloned().unwrap();
        let part = found.only(last.clone());
        assert_eq!((part.gates, part.modules.len()), (last.len(), 1));
        assert_eq!(part.jacobians[..last.len()], found.jacobians[last]);
    }
}

/// Candidates of `model`, whose answers are compared with labels that are half noise.
fn asked(model: &AutoClassifier, key: &str, effort: Effort) -> (Vec<Candidate>, Vec<usize>) {
    let lengths: Vec<usize> = (0..36).map(|i| 3 + i % 7).collect();
    let all = examples(&lengths);
    let classes: Vec<&str> = vec!["a", "b", "c"];
    let goal = Goal::classification("tone", classes.into_iter().map(String::from).collect());
    let task = PreparedTask {
        labels: LABELS,
        train: all[..8].to_vec(),
        holdout: all[8..24].to_vec(),
        validation: all[24..].to_vec(),
        ..PreparedTask::without_examples(goal)
    };
    let config = ExperimentConfig { evaluation_batch_size: 8, ..Preset::ConstantWeight.config() };
    let config = config.validate().unwrap();
    let method = MethodName::from_name(key).unwrap().build(&config, RankRequest::Initial).unwrap();
    let device = Device::flex();
    let context = RunContext {
        config: &config,
        task: &task,
        seed: 4,
        device: &device,
        dtype: DType::F64,
        memory: PeakMemory::unknown(),
    };
    let found = candidates(&context, model, &*method, &[&task.validation], effort).unwrap();
    let labels = task.validation.iter().filter_map(|e| e.label.class()).collect();
    let empty = PreparedTask { holdout: Vec::new(), ..task.clone() };
    let context = RunContext { task: &empty, ..context };
    assert!(candidates(&context, model, &*method, &[], effort).is_err());
    (found, labels)
}

const EFFORT: Effort = Effort { draws: 3, noise: true, curvature_rows: 6, full_gates: 100 };

#[test]
fn every_candidate_fits_what_was_held_out_and_says_what_it_keeps() {
    let model = deberta(NO_POSITIONS, DType::F64);
    let gates = 12 * 4;
    let triangle = gates * (gates + 1) / 2;
    let with_posterior = noisy(model.clone(), -3.0);
    for (model, key, noise) in [(&model, "lora", 0), (&with_posterior, "bayeslora", gates)] {
        let (found, labels) = asked(model, key, EFFORT);
        let of = |name: &str| found.iter().find(|c| c.name == name).unwrap();
        let stored = |name: &str| of(name).stored;
        assert_eq!([stored("mean"), stored("mean+ts")], [0, 1]);
        assert_eq!([stored("noise"), stored("noise-module")], [noise + 1, noise + 12]);
        assert_eq!(
            [stored("gates"), stored("gates+ts"), stored("gates-diagonal")],
            [1, 2, gates + 1]
        );
        assert_eq!(
            [stored("gates-full-scaled"), stored("gates-last-full")],
            [triangle + 2, 10 + 2]
        );
        assert_eq!(found.iter().any(|c| c.name == "draws"), noise > 0);
        assert_eq!(found.iter().any(|c| c.name == "gates-own"), noise > 0);
        for candidate in &found {
            let [answers] = candidate.answers.as_slice() else { panic!("one set") };
            assert_eq!(answers.len(), labels.len() * LABELS);
            let measures = Measures::new(answers, LABELS, &labels).unwrap();
            let losses = row_losses(answers, LABELS, &labels);
            let mean = losses.iter().sum::<f64>() / labels.len() as f64;
            assert!((measures.nll - mean).abs() < 1e-12);
            if let Some(plain) = candidate.name.strip_suffix(TEMPERED) {
                assert!(candidate.held_out_nll <= of(plain).held_out_nll + 1e-12);
                assert!(candidate.fitted.contains_key("temperature"));
            }
        }
        // A scale can be (nearly) 0, so that no fitted noise is worse than none.
        for name in ["gates", "gates-last"] {
            assert!(of(name).held_out_nll <= of("mean").held_out_nll + 1e-3, "{name}");
        }
        assert!(of("noise-module").held_out_nll <= of("noise").held_out_nll);
        // Two fitted numbers are worth at least what one is.
        assert!(of("gates-full-scaled").held_out_nll <= of("gates").held_out_nll + 1e-3);
        let again = asked(model, key, EFFORT).0;
        for (one, two) in found.iter().zip(&again) {
            assert_eq!(
                (&one.name, &one.answers, &one.fitted),
                (&two.name, &two.answers, &two.fitted)
            );
        }
    }
}

#[test]
fn a_posterior_of_larger_noise_is_the_one_whose_deviations_were_scaled() {
    let plain = deberta(NO_POSITIONS, DType::F64);
    let model = noisy(plain.clone(), -3.0);
    let paths = lrvd_burn::model::ranks(&model).into_iter().map(|(path, _)| (path, 2.0));
    let scaled = Noisy::new(&model).unwrap().at(&paths.collect()).unwrap();
    let wanted = noisy(plain, -3.0 + 2.0 * 2.0_f64.ln());
    let device = Device::flex();
    let examples = examples(&[5, 9, 2]);
    let inputs = inputs(&examples, 8, &device, DType::F64);
    let of = |model: &AutoClassifier| inputs.all().predict(model, 2).unwrap().values;
    close("draws", &of(&scaled), &of(&wanted), 1e-12);
    assert!(of(&model).iter().zip(of(&wanted)).any(|(a, b)| (a - b).abs() > 1e-3));
}

#[test]
fn drawn_gates_agree_with_the_probit_of_a_models_own_gradients() {
    let device = Device::flex();
    let examples = examples(&[5, 9, 2, 6]);
    let inputs = inputs(&examples, 8, &device, DType::F64);
    let model = llama(DType::F64);
    let found = GateGradients::new(&model, &inputs.all()).unwrap();
    let energy: f64 = found.jacobians.iter().map(|j| j * j).sum::<f64>() / 4.0;
    let variances = vec![1.0 / energy; found.gates];
    let mut normals = vec![0.0; 8_000 * found.gates];
    fill_normal_f64(NoiseKey::new(2), 0, &mut normals);
    let draws =
        lrvd_core::gates::gate_draws(&found.logits, &found.jacobians, &variances, LABELS, &normals);
    let probit =
        lrvd_core::gates::gate_probit(&found.logits, &found.jacobians, &variances, LABELS).unwrap();
    let plain = lrvd_core::metrics::softmax(&found.logits, LABELS).unwrap();
    let draws = draws.unwrap();
    let apart = |p: &[f64]| p.iter().zip(&draws).map(|(a, b)| (a - b).abs()).sum::<f64>();
    assert!(apart(&probit) < 0.4 * apart(&plain), "{} {}", apart(&probit), apart(&plain));
}
