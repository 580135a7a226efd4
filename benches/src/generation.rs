//! Continuations by a language model with random weights, and the least time that reading its weights takes.

use std::error::Error;
use std::path::Path;

use burn::tensor::{DType, Device};
use lrvd_core::noise::{Generator, NoiseKey};
use lrvd_models::llama::{GenerateOptions, LlamaConfig, LlamaForCausalLm};
use lrvd_models::{Precision, WeightSource};

use crate::ceiling::read_bandwidth;
use crate::model::Architecture;

/// Prompts of equal length, each continued by as many tokens.
pub struct Generation {
    config: LlamaConfig,
    precision: Precision,
    prompts: Vec<Vec<u32>>,
    tokens: usize,
}

impl Generation {
    /// `rows` prompts of `length` random tokens, for `tokens` new ones each.
    pub fn new(
        architecture: Architecture,
        layers: Option<usize>,
        precision: Precision,
        [rows, length, tokens]: [usize; 3],
    ) -> Result<Self, Box<dyn Error>> {
        let text = architecture.config(layers)?.to_string();
        let config = LlamaConfig::parse(text.as_bytes(), Path::new("config.json"))?;
        let mut draws = Generator::new(NoiseKey::new(3));
        let mut prompt = |_| (0..length).map(|_| draws.bounded(config.vocab_size as u32)).collect();
        let prompts = (0..rows).map(&mut prompt).collect();
        Ok(Self { config, precision, prompts, tokens })
    }

    /// Model with random weights.
    pub fn model(&self, device: &Device) -> LlamaForCausalLm {
        let mut source = WeightSource::random(NoiseKey::new(1), device, self.precision);
        LlamaForCausalLm::load(&mut source, &self.config)
    }

    /// Continues every prompt by the most likely tokens.
    pub fn run(&self, model: &LlamaForCausalLm) -> Result<(), Box<dyn Error>> {
        let max_new_tokens = self.tokens;
        let options = GenerateOptions { max_new_tokens, ..GenerateOptions::default() };
        let texts = model.generate_greedy(&self.prompts, &options)?;
        if texts.iter().any(|text| text.len() != self.tokens) {
            return Err("a continuation ended early".into());
        }
        Ok(())
    }

    /// Bytes that continuing every prompt reads at least: every matrix once for each new token.
    pub fn bytes(&self) -> usize {
        self.tokens * self.weight_bytes()
    }

    /// Seconds for which memory is read if every matrix is read once a token, and nothing else.
    pub fn limit(&self) -> f64 {
        self.bytes() as f64 / read_bandwidth()
    }

    /// Bytes of the matrices; the head is that of the embedding, which is never quantised.
    fn weight_bytes(&self) -> usize {
        let LlamaConfig { hidden_size, intermediate_size, head_dim, vocab_size, .. } = self.config;
        let heads = self.config.num_attention_heads + self.config.num_key_value_heads;
        let layer = hidden_size * (2 * heads * head_dim + 3 * intermediate_size);
        let linear = self.config.num_hidden_layers * layer;
        let float = if self.precision.dtype == DType::BF16 { 2 } else { 4 };
        let linear = match self.precision.bits {
            None => linear * float,
            // A byte each, and a scale of four bytes for 32 of them.
            Some(_) => linear * 9 / 8,
        };
        linear + vocab_size * hidden_size * float
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use lrvd_burn::adapter::BaseBits;

    use super::*;

    #[test]
    fn bytes_are_those_of_the_matrices_and_every_prompt_is_continued() {
        let generation = |precision| {
            Generation::new(Architecture::TinyLlama, None, precision, [2, 3, 4]).unwrap()
        };
        let f32 = generation(DType::F32.into());
        f32.run(&f32.model(&Device::flex())).unwrap();
        let parameters = |config: &LlamaConfig| {
            let [d, wide] = [config.hidden_size, config.intermediate_size];
            let heads = config.num_attention_heads * config.head_dim;
            let key_heads = config.num_key_value_heads * config.head_dim;
            let layer = d * heads + 2 * d * key_heads + heads * d + 3 * d * wide;
            [config.num_hidden_layers * layer, config.vocab_size * d]
        };
        let [linear, head] = parameters(&f32.config);
        assert_eq!(f32.weight_bytes(), 4 * (linear + head));
        assert_eq!(generation(DType::BF16.into()).weight_bytes(), 2 * (linear + head));
        let bits = Some(BaseBits::Q8);
        let q8 = generation(Precision { dtype: DType::F32, bits });
        assert_eq!(q8.weight_bytes(), linear * 9 / 8 + 4 * head);
    }
}
