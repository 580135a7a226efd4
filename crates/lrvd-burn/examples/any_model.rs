//! Fine-tunes a transformer of Burn's own layers, which know nothing of adapters: attach, train, prune, save, load into a
//! fresh process, predict with ten draws.
//!
//! ```text
//! cargo run --release -p lrvd-burn --example any_model
//! ```
#![allow(clippy::print_stdout)]

use std::error::Error;
use std::path::Path;
use std::process::Command;

use lrvd_burn::burn;
use lrvd_burn::burn::module::Module;
use lrvd_burn::burn::nn::transformer::{
    TransformerEncoder, TransformerEncoderConfig, TransformerEncoderInput,
};
use lrvd_burn::burn::nn::{Embedding, EmbeddingConfig, Linear, LinearConfig};
use lrvd_burn::burn::optim::AdamWConfig;
use lrvd_burn::burn::tensor::activation::log_softmax;
use lrvd_burn::burn::tensor::{Device, Int, Tensor, TensorData};
use lrvd_burn::core::noise::{Generator, NoiseKey, fill_normal};
use lrvd_burn::model::NamedModule;
use lrvd_burn::{BayesLora, Prediction, Tuned};

const VOCABULARY: usize = 16;
const TOKENS: usize = 8;
const WIDTH: usize = 64;
const CLASSES: usize = 3;
const ROWS: usize = 512;
const BATCH: usize = 64;
const STEPS: usize = 120;
const SEED: u64 = 7;

#[derive(Module, Debug)]
pub(crate) struct Classifier {
    embedding: Embedding,
    encoder: TransformerEncoder,
    head: Linear,
}

impl Classifier {
    /// A "pretrained" model: random weights, the same in every process.
    fn pretrained(device: &Device) -> Self {
        let encoder = TransformerEncoderConfig::new(WIDTH, 4 * WIDTH, 4, 2);
        let mut model = Self {
            embedding: EmbeddingConfig::new(VOCABULARY, WIDTH).init(device),
            encoder: encoder.with_dropout(0.0).with_norm_first(true).init(device),
            head: LinearConfig::new(WIDTH, CLASSES).init(device),
        };
        let mut matrices = 0;
        model.visit_parameters_mut(&mut |p| {
            if let &[rows, _] = p.value.shape().as_slice() {
                let mut values = vec![0.0; p.value.len()];
                fill_normal(NoiseKey::new(SEED).for_module(matrices), 0, &mut values);
                let values = Tensor::<1>::from_floats(values.as_slice(), device);
                p.value.set_flat(values / (rows as f64).sqrt());
                matrices += 1;
            } else if p.name.ends_with("bias") {
                p.value.set_flat(p.value.flat().zeros_like());
            }
        });
        model
    }

    /// `[rows, tokens]` to logits `[rows, classes]`.
    fn forward(&self, ids: Tensor<2, Int>) -> Tensor<2> {
        let x = TransformerEncoderInput::new(self.embedding.forward(ids));
        self.head.forward(self.encoder.forward(x).mean_dim(1).squeeze_dim(1))
    }
}

/// Rows whose class is the most frequent of three kinds of token, one-hot.
fn data(device: &Device) -> (Tensor<2, Int>, Tensor<2>) {
    let mut draws = Generator::new(NoiseKey::new(SEED));
    let ids: Vec<i64> = (0..ROWS * TOKENS).map(|_| draws.index(VOCABULARY) as i64).collect();
    let class = |row: &[i64]| {
        let count = |kind: i64| row.iter().filter(|id| *id % 3 == kind).count();
        (0..CLASSES as i64).max_by_key(|kind| count(*kind)).unwrap_or(0)
    };
    let classes: Vec<i64> = ids.chunks(TOKENS).map(class).collect();
    let ids = Tensor::from_data(TensorData::new(ids, [ROWS, TOKENS]), device);
    let classes = Tensor::<1, Int>::from_data(TensorData::new(classes, [ROWS]), device);
    (ids, classes.one_hot::<2>(CLASSES).float())
}

/// Trains an adapter and writes it into `folder`: the losses of all steps, and the model.
pub(crate) fn train(folder: &Path) -> Result<(Vec<f64>, Tuned<Classifier>), lrvd_burn::Error> {
    let device = Device::flex().autodiff();
    let config = BayesLora { kl_weight: 0.05, ..BayesLora::new(8) };
    let adaptation = config.targets(["query", "value", "linear_inner"]).unfreeze(["head"]);
    let mut tuned = adaptation.attach(Classifier::pretrained(&device), SEED)?;
    let mut optimizer = AdamWConfig::new().init();
    let (ids, labels) = data(&device);
    let mut losses = Vec::new();
    for step in 0..STEPS {
        let first = step * BATCH % ROWS;
        let logits = tuned.draw(step).forward(ids.clone().narrow(0, first, BATCH));
        let labels = labels.clone().narrow(0, first, BATCH);
        let nll = (log_softmax(logits, 1) * labels).sum() / -(BATCH as f64);
        let loss = nll + tuned.kl(ROWS)?;
        losses.push(loss.clone().into_scalar::<f64>());
        tuned.step(&mut optimizer, 2e-3, loss);
    }
    tuned.prune()?;
    tuned.save(folder)?;
    Ok((losses, tuned))
}

/// A fresh model with the adapter in `folder`.
pub(crate) fn loaded(folder: &Path) -> Result<Tuned<Classifier>, lrvd_burn::Error> {
    Tuned::load(Classifier::pretrained(&Device::flex()), folder)
}

/// Answers to the first rows by ten draws: class, probability and mutual information.
pub(crate) fn answers(tuned: &Tuned<Classifier>) -> Result<Vec<String>, lrvd_burn::Error> {
    let (ids, _) = data(&Device::flex());
    let batches = ids.split(BATCH, 0);
    let prediction: Prediction = tuned.predict(10, batches, |net, ids| net.forward(ids.clone()))?;
    let line = |answer: &lrvd_burn::train::ClassAnswer| {
        let information = answer.mutual_information.unwrap_or(f64::NAN);
        let probability = answer.probabilities[answer.class];
        format!("class {} with {probability:.3}, {information:.4} nats", answer.class)
    };
    Ok(prediction.classes()?.iter().take(3).map(line).collect())
}

fn main() -> Result<(), Box<dyn Error>> {
    if let Some(folder) = std::env::args().nth(1) {
        println!("{}", answers(&loaded(Path::new(&folder))?)?.join("\n"));
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let folder = folder.path().join("adapter");
    let (losses, tuned) = train(&folder)?;
    println!("loss {:.3} -> {:.3} in {STEPS} steps", losses[0], losses[STEPS - 1]);
    for (path, rank) in tuned.ranks() {
        println!("{path}: rank {rank} of 8");
    }
    let fresh = Command::new(std::env::current_exe()?).arg(&folder).output()?;
    println!("ten draws, in a fresh process:\n{}", String::from_utf8(fresh.stdout)?);
    Ok(())
}
