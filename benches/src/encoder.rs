//! An encoder of Burn's own parts, tuned by Burn's LoRA and by ours: the same model, values and optimizer on both sides.

use std::error::Error;
use std::time::Instant;

use burn::module::{Lora, Module, ModuleDisplay, Param, ParamGroup};
use burn::nn::{Embedding, EmbeddingConfig, LayerNorm, LayerNormConfig};
use burn::optim::{AdamWConfig as BurnAdamW, GradientsParams, ModuleOptimizer};
use burn::tensor::{Device, Gradients, Int, Tensor, activation};
use lrvd_burn::adapter::{AdapterConfig, AdapterKind, Prior};
use lrvd_burn::model::{NamedModule, attach_adapters, total_kl, with_pass};
use lrvd_burn::nn;
use lrvd_burn::optimizer::{AdamW, AdamWConfig, NamedGradients};
use lrvd_burn::sampling::{Pass, Scheme};
use lrvd_core::kl::KlReduction;
use lrvd_core::noise::{NoiseKey, fill_normal};
use serde_json::Value;

use crate::model::Architecture;
use crate::operations::{Operations, Reading};
use crate::trainer::{LEARNING_RATE, LORA_ALPHA, Method, equal_rates, trainable};

/// The layers with an adapter.
const TARGETS: [&str; 6] = ["query", "key", "value", "output", "inner", "outer"];
/// Decay of the mean by which Burn's AdamW differs from ours unless it is named.
const EPSILON: f32 = 1e-8;

/// A linear layer of Burn, or ours.
trait Layer: Module + ModuleDisplay {
    /// The layer with these values.
    fn of(weight: Param<Tensor<2>>, bias: Param<Tensor<1>>) -> Self;

    /// `[n, tokens, d_input]` to `[n, tokens, d_output]`.
    fn run(&self, x: Tensor<3>) -> Tensor<3>;
}

impl Layer for burn::nn::Linear {
    fn of(weight: Param<Tensor<2>>, bias: Param<Tensor<1>>) -> Self {
        Self { weight, bias: Some(bias) }
    }

    fn run(&self, x: Tensor<3>) -> Tensor<3> {
        self.forward(x)
    }
}

impl Layer for nn::Linear {
    fn of(weight: Param<Tensor<2>>, bias: Param<Tensor<1>>) -> Self {
        Self { weight, bias: Some(bias) }
    }

    fn run(&self, x: Tensor<3>) -> Tensor<3> {
        self.forward(x)
    }
}

/// A layer with norms after its two residuals.
#[derive(Module, Debug)]
struct Block<L: Module> {
    query: L,
    key: L,
    value: L,
    output: L,
    inner: L,
    outer: L,
    attention_norm: LayerNorm,
    norm: LayerNorm,
    heads: usize,
}

impl<L: Layer> Block<L> {
    fn forward(&self, x: Tensor<3>) -> Tensor<3> {
        let [n, tokens, width] = x.dims();
        let of_head = width / self.heads;
        let split = |x: Tensor<3>| x.reshape([n, tokens, self.heads, of_head]).swap_dims(1, 2);
        let [query, key, value] =
            [&self.query, &self.key, &self.value].map(|layer| split(layer.run(x.clone())));
        let scores = query.matmul(key.swap_dims(2, 3)).mul_scalar((of_head as f64).sqrt().recip());
        let context: Tensor<4> = activation::softmax(scores, 3).matmul(value).swap_dims(1, 2);
        let context = context.reshape([n, tokens, width]);
        let x = self.attention_norm.forward(x + self.output.run(context));
        let inner = activation::gelu(self.inner.run(x.clone()));
        self.norm.forward(x + self.outer.run(inner))
    }
}

/// A classifier by the mean over all tokens.
#[derive(Module, Debug)]
struct Encoder<L: Module> {
    embedding: Embedding,
    blocks: Vec<Block<L>>,
    head: burn::nn::Linear,
}

impl<L: Layer> Encoder<L> {
    /// The sizes of `config`, with values of the order of a pretrained model, the same for every kind of layer.
    fn new(config: &Value, device: &Device) -> Result<Self, Box<dyn Error>> {
        let size = |key: &str| {
            let found = config[key].as_u64().and_then(|size| usize::try_from(size).ok());
            found.ok_or_else(|| format!("no `{key}`"))
        };
        let width = size("hidden_size")?;
        let inner = size("intermediate_size")?;
        let heads = size("num_attention_heads")?;
        let zeros = |d_output| Param::from_tensor(Tensor::zeros([d_output], device));
        let matrix = |shape: [usize; 2]| Param::from_tensor(Tensor::zeros(shape, device));
        let layer = |d_input, d_output| L::of(matrix([d_input, d_output]), zeros(d_output));
        let norm = || LayerNormConfig::new(width).init(device);
        let block = |_| Block {
            query: layer(width, width),
            key: layer(width, width),
            value: layer(width, width),
            output: layer(width, width),
            inner: layer(width, inner),
            outer: layer(inner, width),
            attention_norm: norm(),
            norm: norm(),
            heads,
        };
        let mut model = Self {
            embedding: EmbeddingConfig::new(size("vocab_size")?, width).init(device),
            blocks: (0..size("num_hidden_layers")?).map(block).collect(),
            head: burn::nn::Linear { weight: matrix([width, 2]), bias: Some(zeros(2)) },
        };
        let is_matrix = |_: &str, shape: &[usize]| shape.len() == 2;
        fill(&mut model, 1, is_matrix, |shape| (shape[0] as f64).sqrt().recip());
        Ok(model)
    }

    fn forward(&self, ids: Tensor<2, Int>) -> Tensor<2> {
        let x = self.embedding.forward(ids);
        let x = self.blocks.iter().fold(x, |x, block| block.forward(x));
        self.head.forward(x.mean_dim(1).squeeze_dim(1))
    }

    /// The mean negative log-likelihood.
    fn loss(&self, ids: &Tensor<2, Int>, labels: &Tensor<2>) -> Tensor<1> {
        let logits = self.forward(ids.clone());
        let nll = (activation::log_softmax(logits, 1) * labels.clone()).sum().neg();
        nll.mul_scalar(1.0 / labels.dims()[0] as f64)
    }
}

/// Normals in the parameters that are `wanted` by name and shape, the same for the same order; `std` is by shape.
fn fill(
    model: &mut impl NamedModule,
    seed: u64,
    wanted: impl Fn(&str, &[usize]) -> bool,
    std: impl Fn(&[usize]) -> f64,
) {
    let mut number = 0;
    model.visit_parameters_mut(&mut |p| {
        let shape = p.value.shape();
        if wanted(p.name, &shape) {
            let mut values = vec![0.0; p.value.len()];
            fill_normal(NoiseKey::new(seed).for_module(number), 0, &mut values);
            let flat = p.value.flat();
            let values = Tensor::<1>::from_floats(values.as_slice(), &flat.device());
            p.value.set_flat(values.mul_scalar(std(&shape)));
            number += 1;
        }
    });
}

/// Lets the head train.
fn unfreeze_head(model: &mut impl NamedModule) {
    model.visit_parameters_mut(&mut |p| {
        if p.name.starts_with("head.") {
            p.value.set_trainable(true);
        }
    });
}

/// The encoder under training.
pub enum EncoderTrainer {
    /// With our adapters and our optimizer.
    Ours(Ours),
    /// With Burn's `apply_lora`, and Burn's optimizer.
    Burns(Burns),
}

/// Our side.
pub struct Ours {
    model: Encoder<nn::Linear>,
    optimizer: AdamW,
    scheme: Scheme,
}

/// Burn's side.
pub struct Burns {
    model: Encoder<burn::nn::Linear>,
    optimizer: ModuleOptimizer,
}

impl EncoderTrainer {
    /// A fresh encoder of the sizes of `architecture`. Gradients are not clipped: Burn clips those of each parameter, we all
    /// of them together.
    pub fn new(
        architecture: Architecture,
        layers: Option<usize>,
        method: Method,
        rank: usize,
        device: &Device,
    ) -> Result<Self, Box<dyn Error>> {
        let config = architecture.config(layers)?;
        let device = device.clone().autodiff();
        // Factors of the size that Burn draws.
        let factor_std = |_: &[usize]| 1.0 / rank as f64;
        if method == Method::ApplyLora {
            let model = Encoder::<burn::nn::Linear>::new(&config, &device)?;
            let is_target = |name: &str| {
                let layer = name.strip_suffix(".weight").and_then(|path| path.rsplit('.').next());
                layer.is_some_and(|layer| TARGETS.contains(&layer))
            };
            let mut targets = Vec::new();
            model.visit_parameters(&mut |p| {
                if is_target(p.name) {
                    targets.push(p.name.to_owned());
                }
            });
            let lora = Lora::new(rank, LORA_ALPHA);
            let lora = lora.set_param_group(ParamGroup::from_paths(targets));
            let mut model = model.apply_lora(lora);
            unfreeze_head(&mut model);
            fill(&mut model, 2, |name, _| name.ends_with(".lora.a"), factor_std);
            let optimizer = BurnAdamW::new().with_weight_decay(0.0).with_epsilon(EPSILON).init();
            return Ok(Self::Burns(Burns { model, optimizer }));
        }
        let (kind, scheme) = match method {
            Method::AttachBayeslora => (AdapterKind::bayes_lora(), Scheme::PerSequence),
            _ => (AdapterKind::Lora { b_bound: 0.0 }, Scheme::Mean),
        };
        let adapter = AdapterConfig { kind, rank, lora_alpha: LORA_ALPHA, dropout: 0.0 };
        let mut model = Encoder::<nn::Linear>::new(&config, &device)?.freeze();
        attach_adapters(&mut model, &TARGETS.into(), &adapter, NoiseKey::new(2))?;
        unfreeze_head(&mut model);
        fill(&mut model, 2, |name, _| name.ends_with(".lora_A"), factor_std);
        let optimizer = AdamW::new(AdamWConfig::default(), equal_rates());
        Ok(Self::Ours(Ours { model, optimizer, scheme }))
    }

    /// Number of values that a step updates.
    pub fn trainable(&self) -> usize {
        match self {
            Self::Ours(Ours { model, .. }) => trainable(model),
            Self::Burns(Burns { model, .. }) => trainable(model),
        }
    }

    /// Operations of a step of our side.
    pub fn operations(&self, rows: usize, tokens: usize) -> Option<Operations> {
        match self {
            Self::Ours(Ours { model, .. }) => {
                Some(Operations::of(model, Reading::plain(rows, tokens)))
            }
            Self::Burns(_) => None,
        }
    }

    /// Forward, backward and update; returns the seconds of the forward part and the loss.
    pub fn step(
        &mut self,
        ids: &Tensor<2, Int>,
        labels: &Tensor<2>,
        number: usize,
    ) -> Result<(f64, f64), lrvd_burn::Error> {
        let begun = Instant::now();
        match self {
            Self::Ours(Ours { model, optimizer, scheme }) => {
                let pass = Pass::sampled(*scheme, NoiseKey::new(7).at_step(number as u32));
                let mut loss = with_pass(model, pass)?.loss(ids, labels);
                if let Some(kl) = total_kl(model, Prior::LogUniform, KlReduction::Element)? {
                    loss = loss + kl.mul_scalar(1e-6);
                }
                let forward = begun.elapsed().as_secs_f64();
                let gradients = NamedGradients::collect(model, &loss.backward());
                optimizer.step(model, &gradients, 1.0);
                Ok((forward, loss.into_scalar()))
            }
            Self::Burns(Burns { model, optimizer }) => {
                let loss = model.loss(ids, labels);
                let forward = begun.elapsed().as_secs_f64();
                let gradients = GradientsParams::from_grads(loss.backward(), model);
                *model = optimizer.step(LEARNING_RATE, model.clone(), gradients);
                Ok((forward, loss.into_scalar()))
            }
        }
    }

    /// The gradient of every trainable parameter in the order of walks, which is that of both sides.
    pub fn gradients(&self, ids: &Tensor<2, Int>, labels: &Tensor<2>) -> Vec<Vec<f64>> {
        fn of(model: &impl NamedModule, gradients: &Gradients) -> Vec<Vec<f64>> {
            let mut found = Vec::new();
            model.visit_parameters(&mut |p| {
                found.extend(p.value.gradient(gradients).map(|g| g.into_data().iter().collect()));
            });
            found
        }
        match self {
            Self::Ours(Ours { model, .. }) => of(model, &model.loss(ids, labels).backward()),
            Self::Burns(Burns { model, .. }) => of(model, &model.loss(ids, labels).backward()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::model::batch;

    /// The two sides compute the same function by the same rule, and learn.
    #[test]
    fn both_sides_take_the_same_steps() {
        let device = Device::flex();
        let (input, labels) = batch(Architecture::Tiny, 4, 8, &device).unwrap();
        let mut sides = [Method::AttachLora, Method::ApplyLora].map(|method| {
            EncoderTrainer::new(Architecture::Tiny, None, method, 4, &device).unwrap()
        });
        assert_eq!(sides[0].trainable(), sides[1].trainable());
        let close = |found: f64, expected: f64, scale: f64, what: &str| {
            assert!((found - expected).abs() <= 1e-4 * scale, "{what}: {found}, {expected}");
        };
        let mut losses = Vec::new();
        for number in 0..10 {
            let [ours, burns] =
                sides.each_mut().map(|side| side.step(&input.ids, &labels, number).unwrap().1);
            close(ours, burns, burns, &format!("loss of step {number}"));
            losses.push(ours);
        }
        assert!(losses[9] < 0.9 * losses[0], "{losses:?}");
        let [ours, burns] = sides.each_ref().map(|side| side.gradients(&input.ids, &labels));
        // Two factors of every target, and the head.
        assert_eq!((ours.len(), burns.len()), (2 * 2 * TARGETS.len() + 2, ours.len()));
        for (ours, burns) in ours.iter().zip(&burns) {
            let largest = burns.iter().fold(0.0, |most: f64, value| most.max(value.abs()));
            assert!(largest > 0.0 && ours.len() == burns.len());
            ours.iter().zip(burns).for_each(|(o, b)| close(*o, *b, 10.0 * largest, "gradient"));
        }
    }

    #[test]
    fn a_posterior_takes_steps_by_the_users_own_loop() {
        let device = Device::flex();
        let (input, labels) = batch(Architecture::Tiny, 4, 8, &device).unwrap();
        let method = Method::AttachBayeslora;
        let mut side = EncoderTrainer::new(Architecture::Tiny, None, method, 4, &device).unwrap();
        let losses = [0, 1, 2].map(|n| side.step(&input.ids, &labels, n).unwrap().1);
        assert!(losses.iter().all(|loss| loss.is_finite()) && losses[0] != losses[1]);
    }
}
