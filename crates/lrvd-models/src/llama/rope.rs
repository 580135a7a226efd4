//! Rotary positions: the angle by which a feature pair is rotated at a position.
//!
//! Pure numbers first, tensors below: angles, cosines and sines are computed on the host in double precision and
//! rounded once, because a single-precision product of a late position and a frequency is wrong in its fourth digit.

use std::f64::consts::TAU;

use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use lrvd_burn::sampling::Pass;

use super::config::LlamaConfig;

/// The rotary frequencies of a model in radians a token, by pair; half as many as a head has features.
///
/// # Formula
///
/// ```text
/// f_i = theta^(−2i/d)                         i = 0 … d/2 − 1, d the head width
/// wavelength = 2π/f_i,  s = (L/wavelength − low)/(high − low), limited to [0, 1]
/// llama3: f_i ← (1 − s)·f_i/factor + s·f_i    L the original length in tokens
/// ```
///
/// so that short wavelengths stay, long ones are stretched by `factor`, and those between pass over smoothly.
///
/// # References
///
/// Su et al. 2021, arXiv:2104.09864; the stretching is that of Llama 3.1.
fn frequencies(config: &LlamaConfig) -> Vec<f64> {
    let width = config.head_dim as f64;
    let plain = |i: usize| config.rope_theta.powf(-((2 * i) as f64) / width);
    let frequencies = (0..config.head_dim / 2).map(plain);
    let Some(scaling) = &config.rope_scaling else { return frequencies.collect() };
    let length = scaling.original_max_position_embeddings as f64;
    let (low, high) = (scaling.low_freq_factor, scaling.high_freq_factor);
    let stretched = |frequency: f64| {
        let wavelength = TAU / frequency;
        let keep = ((length / wavelength - low) / (high - low)).clamp(0.0, 1.0);
        (1.0 - keep) * frequency / scaling.factor + keep * frequency
    };
    frequencies.map(stretched).collect()
}

/// Cosines and sines by position, `[limit, d/2]`.
#[derive(Clone, Debug)]
pub(super) struct Table {
    cos: Tensor<2>,
    sin: Tensor<2>,
}

impl Table {
    /// Table of the positions below `limit`.
    pub(super) fn new(config: &LlamaConfig, limit: usize, device: &Device, dtype: DType) -> Self {
        let frequencies = frequencies(config);
        let shape = [limit, frequencies.len()];
        let table = |of: fn(f64) -> f64| {
            let row = |position| frequencies.iter().map(move |f| of(position as f64 * f));
            let data = TensorData::new((0..limit).flat_map(row).collect::<Vec<f64>>(), shape);
            Tensor::<2>::from_data(data, (device, dtype))
        };
        Self { cos: table(f64::cos), sin: table(f64::sin) }
    }

    /// Number of positions.
    pub(super) fn limit(&self) -> usize {
        self.cos.dims()[0]
    }

    /// The rotations of the tokens at `positions`, `[batch, tokens]`, all below the limit.
    pub(super) fn at(&self, positions: Tensor<2, Int>) -> RotaryEmbedding {
        let [batch, tokens] = positions.dims();
        let rows = positions.reshape([batch * tokens]);
        let [cos, sin] = [&self.cos, &self.sin].map(|table| {
            let half = table.dims()[1];
            table.clone().select(0, rows.clone()).reshape([batch, tokens, 1, 1, half])
        });
        RotaryEmbedding { cos, sin }
    }
}

/// Cosines and sines of one batch, shared by all layers.
///
/// Features `i` and `i + d/2` of a head make a pair, as in Hugging Face checkpoints:
///
/// ```text
/// out = (first·cos − second·sin | second·cos + first·sin)
/// ```
///
/// Both are `[batch, tokens, 1, 1, d/2]`.
#[derive(Clone)]
pub(super) struct RotaryEmbedding {
    cos: Tensor<5>,
    sin: Tensor<5>,
}

impl RotaryEmbedding {
    /// Rotates every head of `[batch, tokens, heads, d]`.
    pub(super) fn apply(&self, x: Tensor<4>, pass: &Pass) -> Tensor<4> {
        let [batch, tokens, heads, width] = x.dims();
        let half = width / 2;
        let x = x.reshape([batch, tokens, heads, 2, half]);
        let (first, second) = (x.clone().narrow(3, 0, 1), x.narrow(3, 1, 1));
        let [cos, sin] = [&self.cos, &self.sin].map(|t| pass.repeated(t.clone(), batch));
        let rotated = [
            first.clone() * cos.clone() - second.clone() * sin.clone(),
            second * cos.clone() + first * sin.clone(),
        ];
        Tensor::cat(rotated.to_vec(), 3).reshape([batch, tokens, heads, width])
    }
}
