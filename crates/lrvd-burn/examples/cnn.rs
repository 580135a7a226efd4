//! Fine-tunes a CNN with attention that knows nothing of adapters: convolutions are frozen, the attention gets adapters.
//!
//! ```text
//! cargo run -p lrvd-burn --example cnn
//! ```
#![allow(clippy::print_stdout)]

use lrvd_burn::burn;
use lrvd_burn::burn::module::Module;
use lrvd_burn::burn::nn::attention::{MhaInput, MultiHeadAttention, MultiHeadAttentionConfig};
use lrvd_burn::burn::nn::conv::{Conv2d, Conv2dConfig};
use lrvd_burn::burn::nn::loss::CrossEntropyLossConfig;
use lrvd_burn::burn::nn::{BatchNorm, BatchNormConfig, Linear, LinearConfig};
use lrvd_burn::burn::optim::AdamWConfig;
use lrvd_burn::burn::tensor::activation::relu;
use lrvd_burn::burn::tensor::{Device, Int, Tensor, TensorData};
use lrvd_burn::core::noise::{NoiseKey, fill_normal};
use lrvd_burn::{BayesLora, Error, Selection};

/// Two convolutions leave 3 x 3 places of it for the attention.
const SIDE: usize = 16;
const CHANNELS: usize = 16;
const ROWS: usize = 96;
const STEPS: usize = 80;

#[derive(Module, Debug)]
struct Net {
    convolutions: Vec<Conv2d>,
    norms: Vec<BatchNorm>,
    attention: MultiHeadAttention,
    head: Linear,
}

impl Net {
    /// A "pretrained" model: random weights.
    fn pretrained(device: &Device) -> Self {
        let convolution = |channels| {
            Conv2dConfig::new([channels, CHANNELS], [3, 3]).with_stride([2, 2]).init(device)
        };
        Self {
            convolutions: vec![convolution(1), convolution(CHANNELS)],
            norms: (0..2).map(|_| BatchNormConfig::new(CHANNELS).init(device)).collect(),
            attention: MultiHeadAttentionConfig::new(CHANNELS, 2).with_dropout(0.0).init(device),
            head: LinearConfig::new(CHANNELS, 2).init(device),
        }
    }

    /// Images `[rows, 1, height, width]` to logits `[rows, 2]`.
    fn forward(&self, images: Tensor<4>) -> Tensor<2> {
        let layers = self.convolutions.iter().zip(&self.norms);
        let x = layers
            .fold(images, |x, (convolution, norm)| relu(norm.forward(convolution.forward(x))));
        let places = x.flatten::<3>(2, 3).swap_dims(1, 2);
        let context = self.attention.forward(MhaInput::self_attn(places)).context;
        self.head.forward(context.mean_dim(1).squeeze_dim(1))
    }
}

/// Noise with a stripe, vertical in class 1.
fn data(seed: u64, device: &Device) -> (Tensor<4>, Tensor<1, Int>) {
    let mut values = vec![0.0; ROWS * SIDE * SIDE];
    fill_normal(NoiseKey::new(seed), 0, &mut values);
    for (row, image) in values.chunks_mut(SIDE * SIDE).enumerate() {
        for i in 0..SIDE {
            let place = 1 + row / 2 % (SIDE - 2);
            image[if row % 2 == 1 { i * SIDE + place } else { place * SIDE + i }] += 2.5;
        }
    }
    let images = Tensor::from_data(TensorData::new(values, [ROWS, 1, SIDE, SIDE]), device);
    (images, Tensor::arange(0..ROWS as i64, device) % 2)
}

fn main() -> Result<(), Error> {
    let device = Device::flex().autodiff();
    let nll = CrossEntropyLossConfig::new().init(&device);
    let (images, labels) = data(1, &device);
    let attention = Selection::Matching(|path| path.starts_with("attention."));
    let config = BayesLora { kl_weight: 0.02, ..BayesLora::new(4) };
    let adaptation = config.targets(attention).unfreeze(["norms", "head"]);
    let mut tuned = adaptation.attach(Net::pretrained(&device), 7)?;
    let mut optimizer = AdamWConfig::new().init();
    for step in 0..STEPS {
        let logits = tuned.draw(step).forward(images.clone());
        let loss = nll.forward(logits, labels.clone()) + tuned.kl(ROWS)?;
        if step % 20 == 0 {
            println!("step {step}: loss {:.3}", loss.clone().into_scalar::<f64>());
        }
        tuned.step(&mut optimizer, 1e-2, loss);
    }
    tuned.prune()?;
    for (path, rank) in tuned.ranks() {
        println!("{path}: rank {rank} of 4");
    }
    let (images, _) = data(2, &Device::flex());
    let batches = images.split(32, 0);
    let answers = tuned.predict(10, batches, |net, images| net.forward(images.clone()))?;
    for (row, answer) in answers.classes()?.iter().take(4).enumerate() {
        let class = answer.class;
        let probability = answer.probabilities[class];
        println!(
            "row {row}: class {class}, probability {probability:.3}, {:.3} nats",
            answer.entropy
        );
    }
    Ok(())
}
