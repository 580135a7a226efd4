//! Training a model of one's own: resume bit for bit, prunes, checkpoints, tokens.

#![cfg(feature = "flex")]
#![allow(missing_docs, clippy::unwrap_used)]

mod labels;
mod resume;
mod rotation;
mod run;
mod tokens;

use burn::module::Module;
use burn::tensor::{Device, Int, Tensor, TensorData};
use lrvd_burn::adapter::AdaptedLinear;
use lrvd_burn::model::{Named, NamedModule, ranks};
use lrvd_burn::parameters::Group;
use lrvd_burn::sampling::Pass;
use lrvd_burn::train::{
    BayesLoraMethod, Checkpoints, Event, Inputs, Lora, Method, Model, OrderConfig, Ordered,
    Outcome, Pruning, RankSearch, Rows, Run, Targets, TrainConfig, TrainState, UpdatePhase, Watch,
};
use lrvd_burn::{BayesLora, Selection, Tuned};
use lrvd_core::noise::{NoiseKey, Stream, fill_normal_f64};
use lrvd_core::prune::{PruneRule, PruneSchedule};

const CLASSES: usize = 3;
const WIDTH: usize = 6;

/// A frozen layer, an adapted one and a head.
#[derive(Module, Debug)]
struct Net {
    hidden: Named<AdaptedLinear>,
    head: Named<AdaptedLinear>,
}

impl Model for Net {
    type Input = Tensor<2>;

    fn logits(&self, input: &Tensor<2>, pass: &Pass) -> Tensor<2> {
        self.head.forward_with(self.hidden.forward_with(input.clone(), pass).tanh(), pass)
    }
}

/// One adapted layer and nothing else.
#[derive(Module, Debug)]
struct One {
    layer: AdaptedLinear,
}

impl Model for One {
    type Input = Tensor<2>;

    fn logits(&self, input: &Tensor<2>, pass: &Pass) -> Tensor<2> {
        self.layer.forward_with(input.clone(), pass)
    }
}

fn normal(seed: u64, n: usize) -> Vec<f64> {
    let mut values = vec![0.0; n];
    fill_normal_f64(NoiseKey::new(seed).on_stream(Stream::DATA), 0, &mut values);
    values
}

fn tensor(values: Vec<f64>, shape: [usize; 2]) -> Tensor<2> {
    Tensor::from_data(TensorData::new(values, shape), &Device::flex())
}

fn layer(seed: u64, widths: [usize; 2]) -> AdaptedLinear {
    let scale = 1.0 / (widths[0] as f64).sqrt();
    let values: Vec<f64> = normal(seed, widths[0] * widths[1]).iter().map(|v| scale * v).collect();
    AdaptedLinear::new(tensor(values, widths), None)
}

fn net() -> Net {
    Net {
        hidden: Named::new("net.hidden", Group::Backbone, layer(1, [WIDTH, 8])),
        head: Named::new("net.head", Group::Head, layer(2, [8, CLASSES])),
    }
}

fn one() -> One {
    One { layer: layer(3, [WIDTH, CLASSES]) }
}

/// `n` examples whose class is the largest of three coordinates.
fn examples(seed: u64, n: usize) -> Rows<2> {
    let x = normal(seed, n * WIDTH);
    let mut one_hot = vec![0.0; n * CLASSES];
    for (row, x) in x.chunks(WIDTH).enumerate() {
        let class = (0..CLASSES).max_by(|&a, &b| x[a].total_cmp(&x[b])).unwrap();
        one_hot[row * CLASSES + class] = 1.0;
    }
    Rows::new(tensor(x, [n, WIDTH]), Targets::Classes(tensor(one_hot, [n, CLASSES])))
}

fn targets() -> Selection {
    Selection::Names(vec!["hidden".to_owned()])
}

fn config(steps: usize) -> TrainConfig {
    TrainConfig { steps, seed: 5, evaluate_every: 4, ..TrainConfig::default() }
}

/// Noise that grows so fast that prunes are due at steps 4 and 8.
fn pruned() -> BayesLoraMethod {
    let schedule = PruneSchedule::new(4, 4, None).unwrap();
    let posterior = BayesLora {
        initial: -2.0,
        noise_rate_factor: 400.0,
        rule: PruneRule::new(3.0, 1).unwrap(),
        ..BayesLora::new(5)
    };
    BayesLoraMethod { pruning: Some(Pruning::at(schedule)), ..posterior.into() }
}

fn run<T: Method<Net>>(method: T, config: &TrainConfig) -> Run<Net, T> {
    Run::new(net(), Box::new(method), &targets(), config).unwrap()
}

/// `run` trained to its end, without callbacks.
fn trained<T: Method<Net>>(mut run: Run<Net, T>) -> Run<Net, T> {
    let mut batches = batches(&run.config);
    run.fit(&mut batches, &mut Watch::default()).unwrap();
    run
}

fn leaked<E>(examples: E) -> &'static E {
    Box::leak(Box::new(examples))
}

fn batches(config: &TrainConfig) -> Ordered<'static, Tensor<2>> {
    Ordered::new(leaked(examples(7, 30)), OrderConfig::shuffled(8), config.seed).unwrap()
}

/// Every number that training changes, by name.
fn numbers<M: NamedModule>(state: &TrainState<M>) -> Vec<(String, Vec<f64>)> {
    let mut found = parameters(&state.model);
    for (name, moments) in state.optimizer.state() {
        for tensor in [&moments.first, &moments.second] {
            found.push((name.clone(), tensor.clone().into_data().iter::<f64>().collect()));
        }
        found.push((name.clone(), vec![moments.steps as f64]));
    }
    found
}

fn parameters(model: &impl NamedModule) -> Vec<(String, Vec<f64>)> {
    let mut found = Vec::new();
    model.visit_parameters(&mut |p| {
        found.push((p.name.to_owned(), p.value.flat().into_data().iter::<f64>().collect()));
    });
    found
}
