//! The network and the data of `classifier.rs` through burn-train's own learner: its metrics, its dashboard, ranks that go.
//!
//! ```text
//! cargo run --release -p lrvd-burn --features dashboard --example learner
//! ```
//!
//! A run that is interrupted cannot be resumed bit for bit this way; `train::Run` can.
#![allow(clippy::print_stdout)]

#[allow(dead_code, reason = "its `main` is another program")]
#[path = "classifier.rs"]
pub(crate) mod classifier;

use std::error::Error;
use std::path::Path;

use classifier::{Net, examples};
use lrvd_burn::burn::data::dataloader::DataLoaderBuilder;
use lrvd_burn::burn::data::dataloader::batcher::Batcher;
use lrvd_burn::burn::data::dataset::InMemDataset;
use lrvd_burn::burn::optim::AdamWConfig;
use lrvd_burn::burn::tensor::{Device, Tensor};
use lrvd_burn::burn::train::metric::LossMetric;
use lrvd_burn::burn::train::{ExecutionStrategy, Learner, SupervisedTraining};
use lrvd_burn::burn_train::{Learning, StepMetric};
use lrvd_burn::core::prune::PruneSchedule;
use lrvd_burn::optimizer::{GroupRates, ParameterGroups};
use lrvd_burn::train::{Batch, BayesLoraMethod, Examples, Pruning, Rows, TrainConfig};
use lrvd_burn::{BayesLora, Run};

const BATCH: usize = 32;
const EXAMPLES: usize = 512;

/// Numbers of rows to batches of them.
struct Batches(Rows<2>);

impl Batcher<usize, Batch<Tensor<2>>> for Batches {
    fn batch(&self, rows: Vec<usize>, _: &Device) -> Batch<Tensor<2>> {
        self.0.batch(&rows).expect("a batch of the rows in memory")
    }
}

/// Trains for `epochs` and returns the ranks at the end by layer.
pub(crate) fn train(folder: &Path, epochs: usize) -> Result<Vec<(String, usize)>, Box<dyn Error>> {
    let loader = |seed, n| {
        let batches = DataLoaderBuilder::new(Batches(examples(seed, n)));
        batches.batch_size(BATCH).shuffle(7).build(InMemDataset::new((0..n).collect()))
    };
    let device = Device::flex().autodiff();
    let training = SupervisedTraining::new(folder, loader(10, EXAMPLES), loader(11, 256))
        .metrics((LossMetric::new(), StepMetric::nll(), StepMetric::kl()))
        .metrics((StepMetric::total_rank(), StepMetric::accuracy(), StepMetric::ece()))
        .with_training_strategy(ExecutionStrategy::single(device).into())
        .with_application_logger(None)
        .num_epochs(epochs)
        .summary();

    let steps = epochs * EXAMPLES / BATCH;
    let rates = GroupRates { learning_rate: 2e-2, weight_decay: 0.0 };
    let groups = ParameterGroups {
        adapter: rates,
        log_variance: rates,
        head: rates,
        ..TrainConfig::default().groups
    };
    let config = TrainConfig { steps, seed: 1, groups, ..TrainConfig::default() };
    let every = (steps / 8).max(1) as u64;
    let posterior = BayesLora { initial: -4.0, kl_weight: 1.0, ..BayesLora::new(8) };
    let pruning = Some(Pruning::at(PruneSchedule::new(every, every, None)?));
    let method = BayesLoraMethod { pruning, ..posterior.into() };
    let targets = ["first", "second"].into();
    let run = Run::new(Net::pretrained(), Box::new(method), &targets, &config)?;
    let model = Learning::new(run, EXAMPLES, training.interrupter())?;
    // The optimizer is lrvd's own; burn-train's schedule is the factor of its rates.
    let result = training.launch(Learner::new(model, AdamWConfig::new().init(), 1.0));
    if let Some(error) = &result.error {
        return Err(error.to_string().into());
    }
    if let Some(stop) = result.interrupted {
        return Err(stop.reason.unwrap_or_default().into());
    }
    Ok(lrvd_burn::model::ranks(&result.model.model))
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    for (path, rank) in train(folder.path(), 30)? {
        println!("{path}: rank {rank} of 8");
    }
    Ok(())
}
