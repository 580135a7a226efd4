//! One training step of a pretrained architecture.

use std::error::Error;
use std::time::Instant;

use burn::tensor::{Device, Tensor, activation};
use clap::ValueEnum;
use lrvd_burn::adapter::{AdapterConfig, AdapterKind, Prior};
use lrvd_burn::model::{NamedModule, TrainableCounts, total_kl, trainable_counts};
use lrvd_burn::optimizer::{AdamW, AdamWConfig, GroupRates, NamedGradients, ParameterGroups};
use lrvd_burn::sampling::{Pass, Scheme};
use lrvd_burn::train::Model;
use lrvd_core::kl::KlReduction;
use lrvd_core::moments::CrossTerm;
use lrvd_core::noise::NoiseKey;
use lrvd_models::{AutoModel, Precision, TokenBatch};

use crate::model::{ANSWERS, Architecture, model};

pub(crate) const LEARNING_RATE: f64 = 1e-3;
const CLIP: f64 = 0.1;
pub(crate) const LORA_ALPHA: f64 = 16.0;

/// Number of values of `model` that a step updates.
pub(crate) fn trainable(model: &impl NamedModule) -> usize {
    let TrainableCounts { adapter, posterior, head, backbone } = trainable_counts(model);
    adapter + posterior + head + backbone
}

/// A method of training with its sampling.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Method {
    /// LoRA.
    Lora,
    /// `BayesLoRA`, weights drawn for each sequence.
    Bayeslora,
    /// `BayesLoRA`, outputs drawn for each token.
    MomentMatched,
    /// LoRA on an encoder of Burn's parts with our linear layers.
    AttachLora,
    /// `BayesLoRA` on it, weights drawn for each sequence.
    AttachBayeslora,
    /// LoRA on it with Burn's linear layers, as Burn has it: the dense weight is composed at every use.
    ApplyLora,
}

impl Method {
    /// `true` for a method on an encoder of Burn's parts, an [`EncoderTrainer`](crate::EncoderTrainer).
    pub fn is_of_encoder(self) -> bool {
        matches!(self, Self::AttachLora | Self::AttachBayeslora | Self::ApplyLora)
    }
}

/// One rate and no decay for every parameter.
pub(crate) fn equal_rates() -> ParameterGroups {
    let rates = GroupRates { learning_rate: LEARNING_RATE, weight_decay: 0.0 };
    ParameterGroups {
        adapter: rates,
        log_variance: rates,
        pooler: rates,
        head: rates,
        backbone: rates,
    }
}

/// A model with its optimizer.
pub struct Trainer {
    /// The model, which a prune may change before the first step.
    pub model: AutoModel,
    scheme: Scheme,
    optimizer: AdamW,
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
        let (kind, scheme) = match method {
            Method::Lora => (AdapterKind::Lora { b_bound: 0.0 }, Scheme::Mean),
            Method::Bayeslora => (AdapterKind::bayes_lora(), Scheme::PerSequence),
            Method::MomentMatched => {
                (AdapterKind::bayes_lora(), Scheme::MomentMatched(CrossTerm::Exact))
            }
            other => return Err(format!("{other:?} is a method of another encoder").into()),
        };
        let adapter = AdapterConfig { kind, rank, lora_alpha: LORA_ALPHA, dropout: 0.0 };
        let model = match model(architecture, layers, Some(&adapter), device, precision)? {
            // A step chooses between two answers.
            AutoModel::Llama(model) if model.answer_ids().is_empty() => {
                AutoModel::Llama(model.answering(ANSWERS.to_vec())?)
            }
            other => other,
        };
        Ok(Self { model, scheme, optimizer: AdamW::new(AdamWConfig::default(), equal_rates()) })
    }

    /// Number of values that a step updates.
    pub fn trainable(&self) -> usize {
        trainable(&self.model)
    }

    /// Forward, backward, clipping and update; returns the seconds of the forward part, and the loss.
    pub fn step(&mut self, input: &TokenBatch, labels: &Tensor<2>, number: usize) -> (f64, f64) {
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
        let loss = loss.into_scalar();
        let mut gradients = NamedGradients::collect(&self.model, &backward);
        let norm = gradients.global_norm();
        gradients.clip(norm, CLIP);
        self.optimizer.step(&mut self.model, &gradients, 1.0);
        (forward, loss)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use burn::tensor::DType;

    use super::*;
    use crate::model::batch;

    /// One layer, batch 2, 8 tokens: ten steps lower the loss, and change every parameter that trains.
    fn learns(architecture: Architecture, method: Method) -> usize {
        let device = Device::flex();
        let mut trainer =
            Trainer::new(architecture, Some(1), method, 4, &device, DType::F32.into()).unwrap();
        let (input, labels) = batch(architecture, 2, 8, &device).unwrap();
        let values = |trainer: &Trainer| {
            let mut found = Vec::new();
            trainer.model.visit_parameters(&mut |p| {
                if p.value.is_trainable() {
                    let values: Vec<f64> = p.value.flat().into_data().iter().collect();
                    found.push((p.name.to_owned(), values));
                }
            });
            found
        };
        let before = values(&trainer);
        let losses: Vec<f64> =
            (0..10).map(|number| trainer.step(&input, &labels, number).1).collect();
        assert!(losses[9] < losses[0], "{method:?}: {losses:?}");
        for ((name, old), (_, new)) in before.iter().zip(values(&trainer)) {
            assert_ne!(*old, new, "{method:?}: {name}");
        }
        trainer.trainable()
    }

    #[test]
    fn every_method_learns_by_all_of_its_parameters() {
        // The factors, pooler and head of a layer of 192, whose inner width is 768; two of q_proj and v_proj.
        let nano = 4 * (4 * 2 * 192 + 2 * (192 + 768)) + 192 * 192 + 192 + 2 * 192 + 2;
        let llama = 4 * (576 + 576 + 576 + 192);
        for (method, own) in [(Method::Lora, 0), (Method::Bayeslora, 1), (Method::MomentMatched, 1)]
        {
            assert_eq!(learns(Architecture::Nano, method), nano + own * 6 * 4);
            assert_eq!(learns(Architecture::Smollm2, method), llama + own * 2 * 4);
            learns(Architecture::TinyLlama, method);
        }
    }
}
