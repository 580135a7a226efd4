//! A classifier on generated data, fine-tuned with BayesLoRA until only the ranks that matter are left.
//!
//! ```text
//! cargo run --release -p lrvd-burn --example classifier
//! ```
#![allow(clippy::print_stdout)]

use lrvd_burn::BayesLora;
use lrvd_burn::adapter::AdaptedLinear;
use lrvd_burn::burn::module::Module;
use lrvd_burn::burn::tensor::{Device, Tensor, TensorData};
use lrvd_burn::core::metrics::auroc;
use lrvd_burn::core::noise::{NoiseKey, fill_normal_f64};
use lrvd_burn::model::Named;
use lrvd_burn::parameters::Group;
use lrvd_burn::sampling::Pass;
use lrvd_burn::train::{
    ClassAnswer, Event, Inputs, Model, OrderConfig, Ordered, Rows, Targets, TrainConfig, Watch,
};

const WIDTH: usize = 32;
const CLASSES: usize = 4;

/// A "pretrained" network: two layers of random weights and a fresh head.
#[derive(Module, Debug)]
pub(crate) struct Net {
    first: AdaptedLinear,
    second: AdaptedLinear,
    head: Named<AdaptedLinear>,
}

impl Model for Net {
    type Input = Tensor<2>;

    fn logits(&self, input: &Tensor<2>, pass: &Pass) -> Tensor<2> {
        let hidden = self.first.forward_with(input.clone(), pass).tanh();
        self.head.forward_with(self.second.forward_with(hidden, pass).tanh(), pass)
    }
}

/// Standard normal numbers, `[rows, columns]`, times `scale`.
fn normal(seed: u64, [rows, columns]: [usize; 2], scale: f64) -> Tensor<2> {
    let mut values = vec![0.0; rows * columns];
    fill_normal_f64(NoiseKey::new(seed), 0, &mut values);
    Tensor::from_data(TensorData::new(values, [rows, columns]), &Device::flex()) * scale
}

impl Net {
    pub(crate) fn pretrained() -> Self {
        let scale = 1.0 / (WIDTH as f64).sqrt();
        let layer = |seed, width| AdaptedLinear::new(normal(seed, [WIDTH, width], scale), None);
        Self {
            first: layer(1, WIDTH),
            second: layer(2, WIDTH),
            head: Named::new("head", Group::Head, layer(3, CLASSES)),
        }
    }
}

/// `n` inputs whose class is the nearest of four random directions.
pub(crate) fn examples(seed: u64, n: usize) -> Rows<2> {
    let inputs = normal(seed, [n, WIDTH], 1.0);
    let nearest = inputs.clone().matmul(normal(99, [WIDTH, CLASSES], 1.0)).argmax(1);
    Rows::new(inputs, Targets::Classes(nearest.reshape([n]).one_hot::<2>(CLASSES).float()))
}

/// Prints what happens.
fn show(event: &Event) {
    match event {
        Event::Pruned { done, before, after } => {
            println!("step {done:4}: total rank {before} -> {after}");
        }
        Event::Evaluated { done, metric, value, .. } => {
            println!("step {done:4}: {metric} {value:.3}");
        }
        _ => {}
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (train, validation) = (examples(10, 512), examples(11, 256));
    let config = TrainConfig { steps: 800, evaluate_every: 200, ..TrainConfig::default() };
    let mut batches = Ordered::new(&train, OrderConfig::shuffled(32), config.seed)?;
    let adaptation = BayesLora::new(12).targets(["first", "second"]);
    let mut run = adaptation.run(Net::pretrained(), &config)?;
    let mut watch =
        Watch { validation: Some(&validation), sink: Some(&mut show), ..Watch::default() };
    run.fit(&mut batches, &mut watch)?;
    for (path, rank) in lrvd_burn::model::ranks(&run.state.model) {
        println!("{path}: rank {rank} of 12");
    }

    // In distribution, and far from the origin.
    let far = Rows { inputs: normal(12, [256, WIDTH], 3.0), targets: None };
    let inside = run.predict(&Inputs::new(&validation).drawn(20))?.classes()?;
    let outside = run.predict(&Inputs::new(&far).drawn(20))?.classes()?;
    let mutual = |answers: &[ClassAnswer]| -> Vec<f64> {
        answers.iter().filter_map(|answer| answer.mutual_information).collect()
    };
    for (name, answers) in [("in distribution", &inside), ("out of distribution", &outside)] {
        let n = answers.len() as f64;
        let entropy = answers.iter().map(|answer| answer.entropy).sum::<f64>() / n;
        let mutual = mutual(answers).iter().sum::<f64>() / n;
        println!("{name}: entropy {entropy:.3}, mutual information {mutual:.4} nats");
    }
    let auroc = auroc(&mutual(&inside), &mutual(&outside))?;
    println!("AUROC of the mutual information: {auroc:.3}");
    Ok(())
}
