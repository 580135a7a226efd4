//! Fine-tunes a transformer of plain `burn::nn` layers, none of which knows of adapters: attach, train, prune, save,
//! load into a fresh process, predict with ten draws. Then the same model with `use lrvd_burn::nn::Linear`: the same
//! result, and the time of both.
//!
//! ```text
//! cargo run --release -p lrvd-burn --example any_model
//! ```
#![allow(clippy::print_stdout)]

use std::error::Error;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use lrvd_burn::burn;
use lrvd_burn::burn::module::{Module, ParamGroup};
use lrvd_burn::burn::tensor::activation::log_softmax;
use lrvd_burn::burn::tensor::{Device, Int, Tensor, TensorData};
use lrvd_burn::core::noise::{Draws, NoiseKey, fill_normal};
use lrvd_burn::core::prune::PruneRule;
use lrvd_burn::model::NamedModule;
use lrvd_burn::optimizer::{AdamW, AdamWConfig, NamedGradients};
use lrvd_burn::peft::PosteriorRun;
use lrvd_burn::train::TrainConfig;
use lrvd_burn::{
    AdapterConfig, BayesLora, DrawPer, Pass, Scheme, attach, kl, load, predict, prune, ranks, save,
    with_pass,
};

const VOCABULARY: usize = 16;
const TOKENS: usize = 8;
const WIDTH: usize = 64;
const HEADS: usize = 4;
const CLASSES: usize = 3;
const ROWS: usize = 512;
const BATCH: usize = 64;
const STEPS: usize = 120;
/// Factor of the KL divergence in the evidence lower bound.
const KL_WEIGHT: f64 = 0.05;
const SEED: u64 = 7;

/// The user's model, once for each source of `Linear`.
macro_rules! transformer {
    ($name:ident, $($linear:tt)+) => {
        pub(crate) mod $name {
            use super::*;
            use burn::nn::{Embedding, EmbeddingConfig, LayerNorm, LayerNormConfig};
            use burn::tensor::activation::{gelu, softmax};
            use $($linear)+::{Linear, LinearConfig};

            /// Attention and feed-forward, each behind a norm and beside a residual.
            #[derive(Module, Debug)]
            pub(crate) struct Block {
                norm: LayerNorm,
                query: Linear,
                key: Linear,
                value: Linear,
                output: Linear,
                norm_mlp: LayerNorm,
                up: Linear,
                down: Linear,
            }

            impl Block {
                fn new(device: &Device) -> Self {
                    let linear = |d_in, d_out| LinearConfig::new(d_in, d_out).init(device);
                    let norm = || LayerNormConfig::new(WIDTH).init(device);
                    Self {
                        norm: norm(),
                        query: linear(WIDTH, WIDTH),
                        key: linear(WIDTH, WIDTH),
                        value: linear(WIDTH, WIDTH),
                        output: linear(WIDTH, WIDTH),
                        norm_mlp: norm(),
                        up: linear(WIDTH, 4 * WIDTH),
                        down: linear(4 * WIDTH, WIDTH),
                    }
                }

                fn forward(&self, x: Tensor<3>) -> Tensor<3> {
                    let [rows, tokens, _] = x.dims();
                    let heads = |t: Tensor<3>| {
                        t.reshape([rows, tokens, HEADS, WIDTH / HEADS]).swap_dims(1, 2)
                    };
                    let normed = self.norm.forward(x.clone());
                    let query = heads(self.query.forward(normed.clone()));
                    let key = heads(self.key.forward(normed.clone()));
                    let value = heads(self.value.forward(normed));
                    let scale = (WIDTH / HEADS) as f64;
                    let weights = softmax(query.matmul(key.swap_dims(2, 3)) / scale.sqrt(), 3);
                    let mixed = weights.matmul(value).swap_dims(1, 2);
                    let x = x + self.output.forward(mixed.reshape([rows, tokens, WIDTH]));
                    let wide = gelu(self.up.forward(self.norm_mlp.forward(x.clone())));
                    x + self.down.forward(wide)
                }
            }

            #[derive(Module, Debug)]
            pub(crate) struct Transformer {
                embedding: Embedding,
                blocks: Vec<Block>,
                head: Linear,
            }

            impl Transformer {
                /// A "pretrained" model: the same one for every call.
                pub(crate) fn new(device: &Device) -> Self {
                    let mut model = Self {
                        embedding: EmbeddingConfig::new(VOCABULARY, WIDTH).init(device),
                        blocks: vec![Block::new(device), Block::new(device)],
                        head: LinearConfig::new(WIDTH, CLASSES).init(device),
                    };
                    pretrain(&mut model, device);
                    model
                }

                /// `[rows, tokens]` to logits `[rows, classes]`.
                pub(crate) fn forward(&self, ids: Tensor<2, Int>) -> Tensor<2> {
                    let x = self.embedding.forward(ids);
                    let x = self.blocks.iter().fold(x, |x, block| block.forward(x));
                    self.head.forward(x.mean_dim(1).squeeze_dim(1))
                }
            }
        }
    };
}

transformer!(plain, burn::nn);
transformer!(fast, lrvd_burn::nn);

/// Gives the matrices of `model` the same random values in every process, and biases 0.
fn pretrain<M: Module>(model: &mut M, device: &Device) {
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
}

/// Rows whose class is the most frequent of three tokens, one-hot.
fn data(device: &Device) -> (Tensor<2, Int>, Tensor<2>) {
    let mut draws = Draws::new(NoiseKey::new(SEED));
    let ids: Vec<i64> = (0..ROWS * TOKENS).map(|_| draws.index(VOCABULARY) as i64).collect();
    let class = |row: &[i64]| {
        let count = |token: i64| row.iter().filter(|id| *id % 3 == token).count();
        (0..CLASSES as i64).max_by_key(|token| count(*token)).unwrap_or(0)
    };
    let classes: Vec<i64> = ids.chunks(TOKENS).map(class).collect();
    let ids = Tensor::from_data(TensorData::new(ids, [ROWS, TOKENS]), device);
    let classes = Tensor::<1, Int>::from_data(TensorData::new(classes, [ROWS]), device);
    (ids, classes.one_hot::<2>(CLASSES).float())
}

/// `STEPS` steps of the evidence lower bound; the mean loss of the first and of the last ten.
fn train<M: Module>(
    model: &mut M,
    optimizer: &mut AdamW,
    forward: impl Fn(&M, Tensor<2, Int>) -> Tensor<2>,
    device: &Device,
) -> Result<[f64; 2], lrvd_burn::Error> {
    let (ids, labels) = data(device);
    let mut losses = Vec::new();
    for step in 0..STEPS {
        let first = step * BATCH % ROWS;
        let (ids, labels) =
            (ids.clone().narrow(0, first, BATCH), labels.clone().narrow(0, first, BATCH));
        let key = NoiseKey::new(SEED).at_step(step as u32);
        let pass = Pass::sampled(Scheme::Weights(DrawPer::Batch), key);
        let logits = forward(&with_pass(model, pass)?, ids);
        let nll = (log_softmax(logits, 1) * labels).sum() / -(BATCH as f64);
        let loss = match kl(model)? {
            Some(kl) => nll + kl * (KL_WEIGHT / ROWS as f64),
            None => nll,
        };
        let mut gradients = NamedGradients::collect(model, &loss.backward());
        let norm = gradients.global_norm();
        gradients.clip(norm, 1.0);
        optimizer.step(model, &gradients, 1.0);
        losses.push(loss.into_scalar::<f64>());
    }
    let mean = |losses: &[f64]| losses.iter().sum::<f64>() / losses.len() as f64;
    Ok([mean(&losses[..10]), mean(&losses[STEPS - 10..])])
}

/// What ten draws say of the first rows: class, probability and mutual information.
pub(crate) fn answers(folder: &Path) -> Result<Vec<String>, Box<dyn Error>> {
    let device = Device::flex();
    let (model, _) = load(plain::Transformer::new(&device), folder)?;
    let (ids, _) = data(&device);
    let logits = predict(&model, 10, SEED, |model| model.forward(ids.clone()))?;
    let line = |answer: &lrvd_burn::train::ClassAnswer| {
        let information = answer.mutual_information.unwrap_or(f64::NAN);
        let probability = answer.probabilities[answer.class];
        format!("class {} with {probability:.3}, {information:.4} nats", answer.class)
    };
    Ok(logits.classes()?.iter().take(3).map(line).collect())
}

/// What the program shows.
pub(crate) struct Shown {
    pub(crate) losses: [f64; 2],
    pub(crate) ranks: Vec<(String, usize)>,
    pub(crate) answers: Vec<String>,
    /// Largest difference of the logits at the mean between both models, relative to the largest logit.
    pub(crate) difference: f64,
    /// Seconds of `STEPS` steps with each.
    pub(crate) seconds: [f64; 2],
}

pub(crate) fn run(folder: &Path) -> Result<Shown, Box<dyn Error>> {
    let device = Device::flex().autodiff();
    let config = AdapterConfig::from(&BayesLora { rank: 8, ..BayesLora::default() });
    let targets = ["query", "value", "up"];
    let head = || ParamGroup::from_predicate("head");

    let model = plain::Transformer::new(&device);
    let mut model = attach(model, config, targets, SEED)?.unfreeze_group(head());
    let mut optimizer = AdamW::new(AdamWConfig::default(), TrainConfig::default().groups);
    let begun = Instant::now();
    let losses = train(&mut model, &mut optimizer, plain::Transformer::forward, &device)?;
    let plain_seconds = begun.elapsed().as_secs_f64();
    prune(&mut model, &PruneRule::default(), Some(&mut optimizer))?;
    save(&model, folder, PosteriorRun { seed: SEED, ..PosteriorRun::default() })?;

    let mut other = attach(fast::Transformer::new(&device), config, targets, SEED)?;
    other = other.unfreeze_group(head());
    let mut optimizer = AdamW::new(AdamWConfig::default(), TrainConfig::default().groups);
    let begun = Instant::now();
    train(&mut other, &mut optimizer, fast::Transformer::forward, &device)?;
    let fast_seconds = begun.elapsed().as_secs_f64();

    let inference = Device::flex();
    let (ids, _) = data(&inference);
    let (loaded, _) = load(fast::Transformer::new(&inference), folder)?;
    let mean = [model.valid().forward(ids.clone()), loaded.forward(ids)];
    let [composed, applied] =
        mean.map(|logits| logits.into_data().iter::<f64>().collect::<Vec<_>>());
    let largest = composed.iter().fold(0.0_f64, |most, x| most.max(x.abs()));
    let differences = composed.iter().zip(&applied).map(|(x, y)| (x - y).abs() / largest);
    Ok(Shown {
        losses,
        ranks: ranks(&model),
        answers: answers(folder)?,
        difference: differences.fold(0.0, f64::max),
        seconds: [plain_seconds, fast_seconds],
    })
}

fn main() -> Result<(), Box<dyn Error>> {
    if let Some(folder) = std::env::args().nth(1) {
        for line in answers(Path::new(&folder))? {
            println!("{line}");
        }
        return Ok(());
    }
    let folder = std::env::temp_dir().join(format!("lrvd-any-model-{}", std::process::id()));
    let shown = run(&folder)?;
    println!("loss {:.3} -> {:.3} in {STEPS} steps", shown.losses[0], shown.losses[1]);
    for (path, rank) in &shown.ranks {
        println!("{path}: rank {rank} of 8");
    }
    let fresh = Command::new(std::env::current_exe()?).arg(&folder).output()?;
    let fresh = String::from_utf8(fresh.stdout)?;
    println!("ten draws, in a fresh process:\n{fresh}");
    assert_eq!(fresh.lines().collect::<Vec<_>>(), shown.answers, "in this process");
    println!(
        "burn::nn and lrvd_burn::nn at the mean: relative difference {:.1e}",
        shown.difference
    );
    let [plain, fast] = shown.seconds;
    println!("{STEPS} steps: {plain:.2} s with burn::nn, {fast:.2} s with lrvd_burn::nn");
    std::fs::remove_dir_all(folder)?;
    Ok(())
}
