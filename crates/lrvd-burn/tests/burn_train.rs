//! burn-train's learner on the example, and its metrics against the definitions in the core.
#![allow(clippy::unwrap_used)]

#[allow(dead_code)]
#[path = "../examples/learner.rs"]
mod example;

use burn::data::dataloader::Progress;
use burn::optim::{AdamWConfig as BurnAdamW, GradientsParams};
use burn::tensor::{Device, Tensor, TensorData};
use burn::train::metric::{Metric, MetricAttributes, MetricMetadata, Numeric, NumericEntry};
use burn::train::{Interrupter, TrainStep};
use lrvd_burn::BayesLora;
use lrvd_burn::burn_train::{Learning, StepMetric, StepOutput};
use lrvd_burn::model::NamedModule;
use lrvd_burn::optimizer::{AdamWConfig, GroupRates, ParameterGroups};
use lrvd_burn::sampling::Scheme;
use lrvd_burn::train::{Examples, Targets, TrainConfig};
use lrvd_core::metrics::{Predictions, softmax};
use lrvd_core::noise::{NoiseKey, fill_normal};

use example::classifier;

const CLASSES: usize = 3;

fn metadata() -> MetricMetadata {
    MetricMetadata { progress: Progress::new(1, 1, None), iteration: Some(1), lr: None }
}

fn scalar(value: f32) -> Tensor<1> {
    Tensor::from_floats([value], &Device::flex())
}

fn value(entry: Option<NumericEntry>) -> Option<f64> {
    entry.map(|entry| entry.current())
}

/// Logits and labels of `rows` examples, from example `first` on.
fn examples(first: usize, rows: usize) -> (Vec<f32>, Vec<usize>) {
    let mut logits = vec![0.0; rows * CLASSES];
    fill_normal(NoiseKey::new(5), (first * CLASSES) as u64, &mut logits);
    for logit in &mut logits {
        *logit *= 3.0;
    }
    (logits, (first..first + rows).map(|i| i * i % CLASSES).collect())
}

/// A step of `examples` scores.
fn output(nll: f32, examples: usize) -> StepOutput {
    let scores = Tensor::zeros([examples, 1], &Device::flex());
    StepOutput {
        loss: scalar(nll),
        nll: scalar(nll),
        kl: None,
        total_rank: 0,
        logits: scores.clone(),
        targets: Targets::Scores(scores),
    }
}

fn input(logits: &[f32], labels: &[usize]) -> StepOutput {
    let device = Device::flex();
    let tensor = |values: Vec<f32>| {
        Tensor::from_data(TensorData::new(values, [labels.len(), CLASSES]), &device)
    };
    let mut one_hot = vec![0.0; labels.len() * CLASSES];
    for (row, label) in labels.iter().enumerate() {
        one_hot[row * CLASSES + label] = 1.0;
    }
    let targets = Targets::Classes(tensor(one_hot));
    StepOutput { logits: tensor(logits.to_vec()), targets, ..output(0.0, 1) }
}

/// Feeds three batches of unlike sizes, and compares every batch and the epoch with `expected`.
fn agrees(mut metric: StepMetric, expected: fn(&Predictions<'_>) -> f64) {
    let name = metric.name();
    let check = |first: usize, rows: usize, found: f64| {
        let (logits, labels) = examples(first, rows);
        let logits: Vec<f64> = logits.iter().map(|&z| f64::from(z)).collect();
        let p = softmax(&logits, CLASSES).unwrap();
        let expected = expected(&Predictions::new(&p, CLASSES, &labels).unwrap());
        assert!((found - expected).abs() < 1e-12, "{name}: {found}, expected {expected}");
    };
    for (first, rows) in [(0, 7), (7, 32), (39, 11)] {
        let (logits, labels) = examples(first, rows);
        metric.update(&input(&logits, &labels), &metadata()).unwrap();
        check(first, rows, value(metric.value()).unwrap());
    }
    let (entry, found) = (metric.compute().unwrap(), metric.final_value().current());
    check(0, 50, found);
    assert!(matches!(
        NumericEntry::deserialize(&entry.serialized), Ok(NumericEntry::Final(v)) if v == found
    ));
    metric.clear();
    assert!(metric.running_value().is_none() && metric.final_value().current().is_nan());
}

#[test]
#[expect(clippy::redundant_closure_for_method_calls, reason = "a path is not general enough")]
fn accuracy_brier_and_ece_are_those_of_the_core() {
    agrees(StepMetric::accuracy(), |p| p.accuracy());
    agrees(StepMetric::brier(), |p| p.brier());
    agrees(StepMetric::ece(), |p| p.ece().unwrap());
}

#[test]
fn undefined_values_are_not_available() {
    let (mut logits, labels) = examples(0, 4);
    let scores = output(0.0, 4);
    logits[5] = f32::NAN;
    for undefined in [scores, input(&logits, &labels)] {
        let mut metric = StepMetric::ece();
        let entry = metric.update(&undefined, &metadata()).unwrap();
        assert!(entry.is_not_available() && metric.value().is_none());
        assert!(metric.compute().unwrap().is_not_available());
    }
}

#[test]
fn likelihoods_are_averaged_over_examples() {
    let mut metric = StepMetric::nll();
    for (nll, examples) in [(1.0, 30), (2.0, 10)] {
        metric.update(&output(nll, examples), &metadata()).unwrap();
        assert_eq!(value(metric.value()), Some(f64::from(nll)));
    }
    assert_eq!(value(metric.running_value()), Some(1.25));
    assert_eq!(metric.compute().unwrap().formatted, "epoch 1.2500 nats - batch 2.0000 nats");
}

#[test]
fn divergence_and_rank_are_the_latest() {
    let mut kl = StepMetric::kl();
    for value in [Some(scalar(50.0)), Some(scalar(40.0)), None] {
        kl.update(&StepOutput { kl: value, ..output(0.0, 1) }, &metadata()).unwrap();
    }
    assert_eq!((value(kl.value()), kl.final_value().current()), (None, 40.0));
    let mut rank = StepMetric::total_rank();
    for total_rank in [48, 32] {
        rank.update(&StepOutput { total_rank, ..output(0.0, 1) }, &metadata()).unwrap();
    }
    assert_eq!(rank.final_value().current(), 32.0);
    match rank.attributes() {
        MetricAttributes::Numeric(attributes) => assert!(!attributes.higher_is_better),
        MetricAttributes::None => panic!("a rank is a number"),
    }
}

#[test]
fn speed_counts_from_the_end_of_the_first_batch() {
    let mut metric = StepMetric::examples_per_second();
    let input = output(0.0, 10);
    assert!(metric.update(&input, &metadata()).unwrap().is_not_available());
    std::thread::sleep(std::time::Duration::from_millis(5));
    metric.update(&input, &metadata()).unwrap();
    let speed = value(metric.value()).unwrap();
    assert!(speed > 0.0 && speed <= 10.0 / 0.005, "{speed}");
}

#[test]
fn the_learner_prunes_and_trains_on() {
    let folder = tempfile::tempdir().unwrap();
    let ranks = example::train(folder.path(), 12).unwrap();
    assert_eq!(ranks.len(), 2);
    let total: usize = ranks.iter().map(|(_, rank)| rank).sum();
    assert!((1..16).contains(&total), "{ranks:?}");
}

/// The values after one update by the rows `0..first` and `first..16` as micro-batches, or by all of them.
fn updated(first: Option<usize>) -> Vec<f64> {
    let rows = classifier::examples(10, 16);
    // Beside an epsilon of 1 an update depends on the size of its gradient, which Adam would hide.
    let optimizer = AdamWConfig { epsilon: 1.0, ..AdamWConfig::default() };
    let rates = GroupRates { learning_rate: 1.0, weight_decay: 0.0 };
    let groups = ParameterGroups {
        adapter: rates,
        log_variance: rates,
        head: rates,
        ..TrainConfig::default().groups
    };
    let config = TrainConfig { gradient_clip: None, optimizer, groups, ..TrainConfig::default() };
    let posterior = BayesLora { kl_weight: 30.0, scheme: Some(Scheme::Mean), ..BayesLora::new(4) };
    let run = posterior.targets(["first", "second"]).run(classifier::Net::pretrained(), &config);
    let learning = Learning::new(run.unwrap(), 64, Interrupter::new()).unwrap();
    let before = values(&learning.model);
    let all: Vec<usize> = (0..16).collect();
    for part in first.map_or(vec![&all[..]], |first| vec![&all[..first], &all[first..]]) {
        TrainStep::step(&learning, rows.batch(part).unwrap());
    }
    let mut unused = BurnAdamW::new().init();
    let learning = learning.optimize(&mut unused, 1.0.into(), GradientsParams::new());
    values(&learning.model).iter().zip(before).map(|(new, old)| new - old).collect()
}

fn values(model: &impl NamedModule) -> Vec<f64> {
    let mut found = Vec::new();
    model.visit_parameters(&mut |p| {
        if p.value.is_trainable() {
            found.extend(p.value.flat().into_data().iter::<f64>());
        }
    });
    found
}

#[test]
fn accumulated_batches_are_one_batch_of_all_their_rows() {
    let whole = updated(None);
    let largest = whole.iter().fold(0.0, |most: f64, value| most.max(value.abs()));
    assert!(largest > 0.0);
    for first in [8, 10] {
        for (found, expected) in updated(Some(first)).iter().zip(&whole) {
            assert!((found - expected).abs() < 1e-4 * largest, "{first}: {found}, {expected}");
        }
    }
}
