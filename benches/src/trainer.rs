//! One training step, ours and that of Burn's own LoRA.

use std::error::Error;
use std::time::Instant;

use burn::grad_clipping::GradientClippingConfig;
use burn::module::{Lora, Module, ModuleVisitor, Param, ParamGroup};
use burn::optim::{AdamWConfig as BurnAdamW, GradientsParams, ModuleOptimizer};
use burn::tensor::{Device, Tensor, activation};
use clap::ValueEnum;
use lrvd_burn::adapter::{AdapterConfig, AdapterKind, Prior};
use lrvd_burn::model::{NamedModule, total_kl};
use lrvd_burn::optimizer::{AdamW, AdamWConfig, GroupRates, NamedGradients, ParameterGroups};
use lrvd_burn::parameters::ParameterValue;
use lrvd_burn::sampling::{DrawPer, Pass, Scheme};
use lrvd_burn::train::Model;
use lrvd_core::kl::KlReduction;
use lrvd_core::moments::CrossTerm;
use lrvd_core::noise::NoiseKey;
use lrvd_models::{AutoModel, Precision, TokenBatch};

use crate::model::{Architecture, model};

const LEARNING_RATE: f64 = 1e-3;
const CLIP: f64 = 0.1;
const LORA_ALPHA: f64 = 16.0;

/// What is trained, and how it is sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Method {
    /// LoRA.
    Lora,
    /// `BayesLoRA`, weights drawn for each sequence.
    Bayeslora,
    /// `BayesLoRA`, outputs drawn for each token.
    MomentMatched,
    /// LoRA as Burn has it: the dense weight is composed at every use.
    ApplyLora,
}

/// A model with its optimiser.
pub struct Trainer {
    /// The model, which a prune may change before the first step.
    pub model: AutoModel,
    scheme: Scheme,
    optimizer: Optimizer,
}

enum Optimizer {
    Ours(AdamW),
    Burn(ModuleOptimizer),
}

impl Trainer {
    /// A fresh model of `method` with adapters of `rank`.
    pub fn new(
        architecture: Architecture,
        layers: Option<usize>,
        method: Method,
        rank: usize,
        device: &Device,
        precision: Precision,
    ) -> Result<Self, Box<dyn Error>> {
        let scheme = match method {
            Method::Lora | Method::ApplyLora => Scheme::Mean,
            Method::Bayeslora => Scheme::Weights(DrawPer::Sequence),
            Method::MomentMatched => Scheme::MomentMatched(CrossTerm::Exact),
        };
        if method == Method::ApplyLora {
            let model = model(architecture, layers, None, device, precision)?;
            let model = burns_lora(model, architecture, rank);
            let optimizer = BurnAdamW::new()
                .with_weight_decay(0.0)
                .with_grad_clipping(Some(GradientClippingConfig::Norm(CLIP as f32)))
                .init();
            return Ok(Self { model, scheme, optimizer: Optimizer::Burn(optimizer) });
        }
        let kind = match method {
            Method::Lora | Method::ApplyLora => AdapterKind::Lora { b_bound: 0.0 },
            Method::Bayeslora | Method::MomentMatched => AdapterKind::bayes_lora(),
        };
        let adapter = AdapterConfig { kind, rank, lora_alpha: LORA_ALPHA, dropout: 0.0 };
        let rates = GroupRates { learning_rate: LEARNING_RATE, weight_decay: 0.0 };
        let groups = ParameterGroups {
            adapter: rates,
            log_variance: rates,
            pooler: rates,
            head: rates,
            backbone: rates,
        };
        Ok(Self {
            model: model(architecture, layers, Some(&adapter), device, precision)?,
            scheme,
            optimizer: Optimizer::Ours(AdamW::new(AdamWConfig::default(), groups)),
        })
    }

    /// Number of values that a step updates.
    pub fn trainable(&self) -> usize {
        struct Count(usize);
        impl ModuleVisitor for Count {
            fn visit_float<const D: usize>(&mut self, parameter: &Param<Tensor<D>>) {
                if parameter.is_require_grad() {
                    self.0 += parameter.len();
                }
            }
        }
        let mut count = Count(0);
        self.model.visit(&mut count);
        count.0
    }

    /// Forward, backward, clipping and update; returns the seconds of the forward part, with the loss read.
    pub fn step(&mut self, input: &TokenBatch, labels: &Tensor<2>, number: usize) -> f64 {
        let begun = Instant::now();
        let pass = Pass::sampled(self.scheme, NoiseKey::new(7).at_step(number as u32));
        let logits = self.model.logits(input, &pass);
        let nll = (activation::log_softmax(logits, 1) * labels.clone()).sum().neg();
        let mut loss = nll.mul_scalar(1.0 / labels.dims()[0] as f64);
        // Every family has this divergence.
        if let Ok(Some(kl)) = total_kl(&self.model, Prior::LogUniform, KlReduction::Element) {
            loss = loss + kl.mul_scalar(1e-6);
        }
        let forward = begun.elapsed().as_secs_f64();
        let backward = loss.backward();
        // As in a training step: read when all is under way.
        let _: f64 = loss.into_scalar();
        match &mut self.optimizer {
            Optimizer::Ours(optimizer) => {
                let mut gradients = NamedGradients::collect(&self.model, &backward);
                let norm = gradients.global_norm();
                gradients.clip(norm, CLIP);
                optimizer.step(&mut self.model, &gradients, 1.0);
            }
            Optimizer::Burn(optimizer) => {
                let gradients = GradientsParams::from_grads(backward, &self.model);
                self.model = optimizer.step(LEARNING_RATE, self.model.clone(), gradients);
            }
        }
        forward
    }
}

/// `model` with Burn's LoRA on the weights of the targets; trainable parameters stay trainable.
fn burns_lora(mut model: AutoModel, architecture: Architecture, rank: usize) -> AutoModel {
    let targets = architecture.targets();
    let (mut bases, mut trained) = (Vec::new(), Vec::new());
    model.visit_layers_mut(&mut |path, layer| {
        if targets.select(path) {
            // The factors are made where the weight is, and must take part in the graph.
            layer.weight.set_trainable(true);
            bases.push(layer.weight.id);
        }
    });
    model.visit_parameters(&mut |p| {
        if p.value.is_trainable() && !bases.contains(&p.value.id()) {
            trained.push(p.value.id());
        }
    });
    let lora = Lora::new(rank, LORA_ALPHA).set_param_group(ParamGroup::from_ids(bases));
    model.apply_lora(lora).unfreeze_group(ParamGroup::from_ids(trained))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use burn::tensor::DType;

    use super::*;
    use crate::model::batch;

    /// One layer, batch 2, 8 tokens: trainable values, and logits before and after two steps.
    fn two_steps(architecture: Architecture, method: Method) -> (usize, Vec<f32>, Vec<f32>) {
        let device = Device::flex();
        let mut trainer =
            Trainer::new(architecture, Some(1), method, 4, &device, DType::F32.into()).unwrap();
        let (input, labels) = batch(architecture, 2, 8, &device).unwrap();
        let logits = |trainer: &Trainer| -> Vec<f32> {
            trainer.model.logits(&input, &Pass::mean()).into_data().iter::<f32>().collect()
        };
        let before = logits(&trainer);
        for number in 0..2 {
            assert!(trainer.step(&input, &labels, number) > 0.0);
        }
        (trainer.trainable(), before, logits(&trainer))
    }

    #[test]
    fn burns_lora_trains_as_many_values_from_the_same_model() {
        let [ours, burns] =
            [Method::Lora, Method::ApplyLora].map(|m| two_steps(Architecture::Nano, m));
        assert_eq!((ours.0, &ours.1), (burns.0, &burns.1));
        for (_, before, after) in [ours, burns] {
            assert_ne!(before, after);
        }
    }

    #[test]
    fn every_method_takes_steps_on_a_llama() {
        for method in [Method::Lora, Method::Bayeslora, Method::MomentMatched] {
            let (trainable, before, after) = two_steps(Architecture::Smollm2, method);
            // Factors of q_proj [576, 576] and v_proj [576, 192].
            assert!(trainable >= 4 * (576 + 576 + 576 + 192), "{trainable}");
            assert_ne!(before, after);
        }
    }
}
