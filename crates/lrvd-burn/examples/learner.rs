//! The same method through burn-train's own learner: its metrics, its dashboard, ranks that go.
//!
//! ```text
//! cargo run --release -p lrvd-burn --features dashboard --example learner
//! ```
//!
//! A run that is interrupted cannot be resumed bit for bit this way; `train::Run` can.
#![allow(clippy::print_stdout)]

use std::path::Path;

use lrvd_burn::burn::data::dataloader::DataLoaderBuilder;
use lrvd_burn::burn::data::dataloader::batcher::Batcher;
use lrvd_burn::burn::data::dataset::InMemDataset;
use lrvd_burn::burn::module::Module;
use lrvd_burn::burn::optim::AdamWConfig;
use lrvd_burn::burn::tensor::{Device, Tensor, TensorData};
use lrvd_burn::burn::train::metric::LossMetric;
use lrvd_burn::burn::train::{ExecutionStrategy, Learner, SupervisedTraining};
use lrvd_burn::burn_train::{Learning, StepMetric};
use lrvd_burn::core::noise::{NoiseKey, fill_normal};
use lrvd_burn::core::prune::PruneSchedule;
use lrvd_burn::core::schedule::KlSchedule;
use lrvd_burn::model::Names;
use lrvd_burn::optimizer::{GroupRates, ParameterGroups};
use lrvd_burn::parameters::Group;
use lrvd_burn::train::{Batch, BayesLora, Model, Pruning, Targets, TrainConfig};
use lrvd_burn::{AdaptedLinear, AdapterTargets, Pass};

const WIDTH: usize = 16;
const CLASSES: usize = 3;
const BATCH: usize = 32;
const EXAMPLES: usize = 512;

/// A "pretrained" network: two layers of random weights and a fresh head.
#[derive(Module, Debug)]
struct Net {
    names: Names,
    first: AdaptedLinear,
    second: AdaptedLinear,
    head: AdaptedLinear,
}

impl Model for Net {
    type Input = Tensor<2>;

    fn logits(&self, input: &Tensor<2>, pass: &Pass) -> Tensor<2> {
        let hidden = self.first.forward_with(input.clone(), pass).tanh();
        self.head.forward_with(self.second.forward_with(hidden, pass).tanh(), pass)
    }
}

fn normal(seed: u64, len: usize, scale: f32) -> Vec<f32> {
    let mut values = vec![0.0; len];
    fill_normal(NoiseKey::new(seed), 0, &mut values);
    values.into_iter().map(|value| value * scale).collect()
}

impl Net {
    fn pretrained(device: &Device) -> Self {
        let layer = |seed, width| {
            let values = normal(seed, WIDTH * width, 0.25);
            let data = TensorData::new(values, [WIDTH, width]);
            AdaptedLinear::new(Tensor::from_data(data, device), None)
        };
        Self {
            names: Names::below("net").with_groups(&[("net.head", Group::Head)]),
            first: layer(1, WIDTH),
            second: layer(2, WIDTH),
            head: layer(3, CLASSES),
        }
    }
}

/// An input and its class: the nearest of three random directions.
#[derive(Clone, Debug)]
struct Item {
    input: Vec<f32>,
    class: usize,
}

fn items(seed: u64, n: usize) -> InMemDataset<Item> {
    let directions = normal(99, CLASSES * WIDTH, 1.0);
    let nearest = |input: &[f32]| {
        let dot = |d: &[f32]| d.iter().zip(input).map(|(a, b)| a * b).sum::<f32>();
        let scores: Vec<f32> = directions.chunks(WIDTH).map(dot).collect();
        (0..CLASSES).fold(0, |best, c| if scores[c] > scores[best] { c } else { best })
    };
    let item = |input: &[f32]| Item { input: input.to_vec(), class: nearest(input) };
    InMemDataset::new(normal(seed, n * WIDTH, 1.0).chunks(WIDTH).map(item).collect())
}

struct Items;

impl Batcher<Item, Batch<Tensor<2>>> for Items {
    fn batch(&self, items: Vec<Item>, device: &Device) -> Batch<Tensor<2>> {
        let rows = items.len();
        let inputs: Vec<f32> = items.iter().flat_map(|item| item.input.clone()).collect();
        let one_hot: Vec<f32> = items
            .iter()
            .flat_map(|item| (0..CLASSES).map(|c| f32::from(u8::from(c == item.class))))
            .collect();
        let tensor =
            |values, width| Tensor::from_data(TensorData::new(values, [rows, width]), device);
        Batch::new(tensor(inputs, WIDTH), Targets::Classes(tensor(one_hot, CLASSES)))
    }
}

/// Trains for `epochs` and returns the ranks at the end by layer.
pub(crate) fn train(
    folder: &Path,
    epochs: usize,
) -> Result<Vec<(String, usize)>, Box<dyn std::error::Error>> {
    let device = Device::flex();
    let loader =
        |seed, n| DataLoaderBuilder::new(Items).batch_size(BATCH).shuffle(7).build(items(seed, n));
    let training = SupervisedTraining::new(folder, loader(10, EXAMPLES), loader(11, 256))
        .metrics((LossMetric::new(), StepMetric::nll(), StepMetric::kl()))
        .metrics((StepMetric::total_rank(), StepMetric::accuracy(), StepMetric::ece()))
        .with_training_strategy(ExecutionStrategy::single(device.clone().autodiff()).into())
        .with_application_logger(None)
        .num_epochs(epochs)
        .summary();

    let steps = epochs * EXAMPLES / BATCH;
    let mut config = TrainConfig { steps, seed: 1, ..TrainConfig::default() };
    let rates = GroupRates { learning_rate: 2e-2, weight_decay: 0.0 };
    config.groups = ParameterGroups {
        adapter: rates,
        log_variance: rates,
        pooler: rates,
        head: rates,
        backbone: rates,
    };
    let targets = AdapterTargets::Names(vec!["first".into(), "second".into()]);
    let every = (steps / 8).max(1) as u64;
    let pruning = Some(Pruning::at(PruneSchedule::new(every, every, None)?));
    let method = BayesLora {
        rank: 8,
        initial: -4.0,
        kl: KlSchedule::constant(1.0)?,
        pruning,
        ..BayesLora::default()
    };
    let net = Net::pretrained(&device);
    let stop = training.interrupter();
    let model = Learning::new(net, method, &targets, &config, EXAMPLES, stop)?;
    // The optimizer is lrvd's own; burn-train's schedule is the factor of its rates.
    let result = training.launch(Learner::new(model, AdamWConfig::new().init(), 1.0));
    if let Some(error) = &result.error {
        return Err(error.to_string().into());
    }
    if let Some(stop) = result.interrupted {
        return Err(stop.reason.unwrap_or_default().into());
    }
    Ok(lrvd_burn::ranks(&result.model.model))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    for (path, rank) in train(folder.path(), 30)? {
        println!("{path}: rank {rank} of 8");
    }
    Ok(())
}
